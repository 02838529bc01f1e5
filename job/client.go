package job

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"
)

// Client is a client of the API. Each job belongs to one client.
type Client struct {
	ID        ID
	CreatedAt time.Time
}

// APIKey is a client's key without the secret.
type APIKey struct {
	ID         string // public part of the key
	ClientID   ID
	SecretHash [32]byte
	CreatedAt  time.Time
	ExpiresAt  time.Time
	RevokedAt  *time.Time
	ReplacedBy string     // id of its replacement, or "" if there is none
	UsedAt     *time.Time // first use; nil if unused
	IssuedBy   KeyIssue
	Scope      Scope
	MadeBy     string // id of the key that requested this key; "" if unknown, or if the caller had no key
}

// Scope is the set of requests that a key allows.
type Scope string

// Scopes of keys. Each scope includes the previous ones.
const (
	ScopeRead   Scope = "read"
	ScopeSubmit Scope = "submit" // jobs and batches
	ScopeAll    Scope = "all"
)

// Scopes lists all scopes, the smallest first.
var Scopes = []Scope{ScopeRead, ScopeSubmit, ScopeAll}

// Allows reports whether s includes the scope `needed`.
func (s Scope) Allows(needed Scope) bool {
	return slices.Index(Scopes, s) >= slices.Index(Scopes, needed)
}

// KeyIssue is the action that created a key.
type KeyIssue string

// Actions that create keys.
const (
	KeyCreated KeyIssue = "CREATED"
	KeyRenewed KeyIssue = "RENEWED"
	KeyRotated KeyIssue = "ROTATED"
)

// IssuedKey is the response to creating or renewing a key. Secret is the whole key, which is shown only once. Secret is "" if the response
// is about an existing key.
type IssuedKey struct {
	APIKey
	Secret string
}

// Caller is the sender of a request.
type Caller struct {
	ClientID ID     // zero for the operator and anonymous callers
	KeyID    string // "" unless a key was presented
	Scope    Scope
	Admin    bool   // holds an operator's token
	Operator string // name of that token
	Expired  bool
}

// Anonymous reports whether no credentials were presented.
func (c Caller) Anonymous() bool { return !c.Admin && c.ClientID.IsZero() }

// Allowance is the state of a client's rate limit after one request.
type Allowance struct {
	OK         bool
	Policy     string        // name of the limit: "minute" or "day"
	Limit      int           // requests per window
	Remaining  int           // requests left now
	Reset      time.Duration // time until the full limit is available again
	RetryAfter time.Duration // time until the next request can pass; 0 if OK is true
}

type keyOfChanges struct{}

// WithKey returns a context for the requests of an API key. If the key is revoked or expires, the store refuses writes and event-stream
// reads with this context.
func WithKey(ctx context.Context, keyID string) context.Context {
	return context.WithValue(ctx, keyOfChanges{}, keyID)
}

// KeyOf returns the key that WithKey has set, or "".
func KeyOf(ctx context.Context) string {
	id, _ := ctx.Value(keyOfChanges{}).(string)
	return id
}

// KeyChange is a change of a client's keys.
type KeyChange struct {
	New     *APIKey
	Changed []APIKey // existing keys with a new expiry, revocation or replacement
}

// ErasedTables lists the tables that can have rows of a client. The record of an erasure has the numbers of removed and remaining rows for
// each table.
var ErasedTables = []string{
	"api_keys", "batches", "bulk_items", "bulk_operations", "client_events", "clients", "deliveries", "delivery_attempts", "events",
	"idempotency_keys", "jobs", "outcome_outbox", "reports", "results", "schedules", "testbed_exchanges", "testbed_faults",
	"testbed_requests", "testbed_sessions", "tombstones", "webhooks",
}

// ErasureState is the stage of an erasure.
type ErasureState string

// States of an erasure.
const (
	ErasurePending ErasureState = "PENDING"
	ErasureRunning ErasureState = "RUNNING"
	ErasureDone    ErasureState = "DONE"
)

// ErasureRequest asks for the erasure of a client with all its data.
type ErasureRequest struct {
	ClientID  ID
	Operator  string
	Reason    string // printable
	RequestID string
}

// Erasure is the erasure of a client. It contains no data of the client except the id.
type Erasure struct {
	ID         ID
	ClientID   ID
	Operator   string
	Reason     string
	RequestID  string
	CreatedAt  time.Time
	StartedAt  *time.Time
	FinishedAt *time.Time

	Step        string // current step, as named by the store
	Position    ID     // the step continues after this row
	PositionJob ID
	Removed     map[string]int // removed rows by table
	Remaining   map[string]int // remaining rows by table, counted after the removal

	Record string // erasure record as canonical JSON (RFC 8785); SHA256 is its hash. "" until the erasure is done
	SHA256 []byte
}

// State returns the stage of the erasure.
func (e *Erasure) State() ErasureState {
	switch {
	case e.FinishedAt != nil:
		return ErasureDone
	case e.StartedAt != nil:
		return ErasureRunning
	}
	return ErasurePending
}

// Finish sets the end and the record of the erasure: the removed and remaining rows of every table.
func (e *Erasure) Finish(at time.Time) error {
	e.FinishedAt = &at
	e.Removed, e.Remaining = ofAllTables(e.Removed), ofAllTables(e.Remaining)
	// All numbers here are integers and all strings are printable, so json.Encoder writes canonical JSON. It sorts map members and escapes
	// characters as RFC 8785 requires.
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(map[string]any{
		"client_id": e.ClientID, "created_at": Time(e.CreatedAt), "erasure_id": e.ID, "finished_at": Time(at), "operator": e.Operator,
		"reason": e.Reason, "remaining": e.Remaining, "removed": e.Removed, "request_id": e.RequestID, "started_at": TimeOf(e.StartedAt),
	})
	if err != nil {
		return err
	}
	canonical := bytes.TrimRight(text.Bytes(), "\n")
	sum := sha256.Sum256(canonical)
	e.Record, e.SHA256 = string(canonical), sum[:]
	return nil
}

func ofAllTables(counts map[string]int) map[string]int {
	all := make(map[string]int, len(ErasedTables))
	for _, table := range ErasedTables {
		all[table] = counts[table]
	}
	return all
}

// ErasureStep is the result of a part of an erasure.
type ErasureStep struct {
	Erasure    *Erasure // the erasure with its new progress
	Progress   bool     // false if the erasure must wait, for example until older transactions have ended
	Unfinished []ID     // jobs to cancel
	Tasks      []Task   // tasks of removed jobs
	Deliveries []ID     // removed deliveries that may have a task
}
