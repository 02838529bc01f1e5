package job

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"
)

// Client is an initiator of jobs.
type Client struct {
	ID        ID
	CreatedAt time.Time
}

// APIKey is what is known of a client's key: never the secret itself.
type APIKey struct {
	ID         string // the public part
	ClientID   ID
	SecretHash [32]byte
	CreatedAt  time.Time
	ExpiresAt  time.Time
	RevokedAt  *time.Time
	ReplacedBy string     // id of the key that took over, "" for none
	UsedAt     *time.Time // when it first authenticated a request; nil: it never did
	IssuedBy   KeyIssue
	Scope      Scope
	MadeBy     string // id of the key that asked for this one; "" if it was the operator, an anonymous caller, or is not known
}

// Scope is what requests a key authenticates.
type Scope string

// Scopes; each allows what those before it do.
const (
	ScopeRead   Scope = "read"
	ScopeSubmit Scope = "submit" // jobs and batches
	ScopeAll    Scope = "all"
)

// Scopes are all there are, the least first.
var Scopes = []Scope{ScopeRead, ScopeSubmit, ScopeAll}

// Allows reports whether a key of scope s may do what needs another one.
func (s Scope) Allows(needed Scope) bool {
	return slices.Index(Scopes, s) >= slices.Index(Scopes, needed)
}

// KeyIssue is the action that made a key.
type KeyIssue string

// The actions that make keys.
const (
	KeyCreated KeyIssue = "CREATED" // where the client had no usable key
	KeyRenewed KeyIssue = "RENEWED"
	KeyRotated KeyIssue = "ROTATED"
)

// IssuedKey is the answer to creating or renewing a key. Secret is the whole
// key, shown this once; it is "" when an existing key was found instead.
type IssuedKey struct {
	APIKey
	Secret string
}

// Caller is who sends a request.
type Caller struct {
	ClientID ID     // zero for the operator and without credentials
	KeyID    string // "" unless a key was presented
	Scope    Scope  // of that key
	Admin    bool   // holds an operator's token
	Operator string // the name of that token
	Expired  bool   // the key has expired
}

// Anonymous reports whether no credentials were presented.
func (c Caller) Anonymous() bool { return !c.Admin && c.ClientID.IsZero() }

// Allowance is the state of a client's rate limit after one request.
type Allowance struct {
	OK         bool
	Policy     string        // which limit: "minute" or "day"
	Limit      int           // requests per window
	Remaining  int           // requests left now
	Reset      time.Duration // until the allowance is whole again
	RetryAfter time.Duration // when !OK: until the next request can pass
}

type keyOfChanges struct{}

// WithKey has storage refuse changes, and events of streams, when the API key was revoked or has expired by then.
func WithKey(ctx context.Context, keyID string) context.Context {
	return context.WithValue(ctx, keyOfChanges{}, keyID)
}

// KeyOf gives the key of WithKey, "" if there is none.
func KeyOf(ctx context.Context) string {
	id, _ := ctx.Value(keyOfChanges{}).(string)
	return id
}

// KeyChange is what a decision about a client's keys stores.
type KeyChange struct {
	New     *APIKey  // to be added
	Changed []APIKey // existing keys with a new expiry, revocation or replacement
}

// ErasedTables are the tables that can hold rows of a client. A record tells of each how
// many were removed, and how many remain.
var ErasedTables = []string{
	"api_keys", "batches", "bulk_items", "bulk_operations", "client_events", "clients", "deliveries", "delivery_attempts", "events",
	"idempotency_keys", "jobs", "outcome_outbox", "reports", "results", "schedules", "testbed_exchanges", "testbed_faults",
	"testbed_requests", "testbed_sessions", "tombstones", "webhooks",
}

// ErasureState says how far an erasure has come.
type ErasureState string

// The states.
const (
	ErasurePending ErasureState = "PENDING"
	ErasureRunning ErasureState = "RUNNING"
	ErasureDone    ErasureState = "DONE"
)

// ErasureRequest asks for a client to be erased with all that belongs to it.
type ErasureRequest struct {
	ClientID  ID
	Operator  string
	Reason    string // printable
	RequestID string
}

// Erasure is the erasure of a client. Of the client it keeps the id alone.
type Erasure struct {
	ID         ID
	ClientID   ID
	Operator   string
	Reason     string
	RequestID  string
	CreatedAt  time.Time
	StartedAt  *time.Time
	FinishedAt *time.Time

	Step        string // what is being done, in words of storage
	Position    ID     // behind which the step goes on
	PositionJob ID
	Removed     map[string]int // rows by table
	Remaining   map[string]int // rows by table, counted after the removal

	Record string // what the hash is of: canonical JSON (RFC 8785); "" until it is done
	SHA256 []byte // of Record
}

// State tells how far the erasure has come.
func (e *Erasure) State() ErasureState {
	switch {
	case e.FinishedAt != nil:
		return ErasureDone
	case e.StartedAt != nil:
		return ErasureRunning
	}
	return ErasurePending
}

// Finish gives the erasure its end and its record: what was removed and what remains, for
// every table.
func (e *Erasure) Finish(at time.Time) error {
	e.FinishedAt = &at
	e.Removed, e.Remaining = ofAllTables(e.Removed), ofAllTables(e.Remaining)
	// Members of maps are in order, numbers are integers, and strings have no characters that are not printable: of the
	// others the encoder escapes those that RFC 8785 does.
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

// ErasureStep is what became of a part of the work on an erasure.
type ErasureStep struct {
	Erasure    *Erasure // as it is after it
	Progress   bool     // false: something must happen elsewhere before it goes on
	Unfinished []ID     // jobs that must be canceled
	Tasks      []Task   // of jobs that are no more
	Deliveries []ID     // that are no more, and may have a task
}
