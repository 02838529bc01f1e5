package job

import (
	"context"
	"slices"
	"time"
)

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
	MadeBy     string // id of the key that asked for this one; "" if it was the operator, nobody, or is not known
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
	ClientID ID     // zero for the operator and for nobody
	KeyID    string // "" unless a key was presented
	Scope    Scope  // of that key
	Admin    bool   // holds an operator's token
	Operator string // the name of that token
	Expired  bool   // the key has expired, too recently not to be renewed
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

// WithKey has storage refuse what is changed with the context when the API key has been revoked or has expired by then.
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
