package job

import (
	"net/url"
	"slices"
	"strings"
	"time"
)

// Webhook is a subscription of a client: its URL gets the events that it asks
// for (section 8). Secrets are encrypted; what encrypts them is not stored
// beside them.
type Webhook struct {
	ID          ID
	ClientID    ID
	URL         string
	Events      []string // names, "job.*" or "*"
	Description string
	ContentMode ContentMode
	Secrets     []SealedSecret // the current one first, then those that are still valid
	CreatedAt   time.Time
	UpdatedAt   time.Time
	Disabled    *Disabled // nil while it is enabled
	Failures    int       // attempts that failed since the last success
	FailingFrom *time.Time
	ProvenAt    *time.Time // when its receiver said that it wants events at this URL; nil: never asked, or not at this one
}

// SealedSecret is an encrypted signing secret.
type SealedSecret struct {
	Sealed []byte
	Until  *time.Time // nil for the current one
}

// ContentMode is the way a CloudEvent travels over HTTP: its attributes in
// headers, or around the data in the body.
type ContentMode string

// The content modes of CloudEvents' HTTP binding.
const (
	ContentBinary     ContentMode = "binary"
	ContentStructured ContentMode = "structured"
)

// Valid reports whether m is one of the two.
func (m ContentMode) Valid() bool { return m == ContentBinary || m == ContentStructured }

// Disabled says since when and why a webhook gets no events.
type Disabled struct {
	At     time.Time
	Reason DisabledReason
}

// DisabledReason is who or what disabled a webhook.
type DisabledReason string

// The reasons.
const (
	DisabledByOwner DisabledReason = "OWNER"
	DisabledGone    DisabledReason = "GONE"    // the receiver answered 410
	DisabledFailing DisabledReason = "FAILING" // too many failures in a row for too long
)

// Text says the reason in a sentence.
func (r DisabledReason) Text() string {
	switch r {
	case DisabledGone:
		return "The receiver answered 410 Gone."
	case DisabledFailing:
		return "Deliveries kept failing; see the log of deliveries."
	default:
		return "It was disabled by its owner."
	}
}

// MaxWebhooks is how many webhooks a client may have. The transaction that writes
// an event writes its deliveries too: a few webhooks must not
// make a large batch slow.
const MaxWebhooks = 10

// SubscribableEvents are the events that a webhook can ask for by name.
// Progress is not among them: it is shown in streams only.
var SubscribableEvents = []string{
	EventCreated, EventQueued, EventAssigned, EventRunning, EventSucceeded, EventFailed, EventCanceled, EventRetried,
	EventLeaseExpired, EventRetriesExhausted, EventEmitted, EventBatchCompleted, EventBulkCompleted,
	EventWebhookDisabled, EventWebhookTest,
}

// Subscribable reports whether a webhook may ask for the name: that of an
// event, "job.*" for all of jobs, or "*" for all.
func Subscribable(name string) bool {
	return name == "*" || name == "job.*" || slices.Contains(SubscribableEvents, name)
}

// SubscribableNames lists all that Subscribable allows, for a sentence.
func SubscribableNames() string { return "*, job.*, " + strings.Join(SubscribableEvents, ", ") }

// WebhookRequest is a decoded request for a webhook. Violations holds what
// decoding found wrong with it.
type WebhookRequest struct {
	ClientID    ID
	URL         string
	Events      []string
	Description string
	ContentMode ContentMode // "" is binary
	Proven      bool        // the receiver said that it wants events

	IdempotencyKey string
	Hash           [32]byte // of the canonical request without the key

	Violations []Violation
	Unlisted   int  // violations that decoding found and left out
	Malformed  bool // some of the Violations are of the form, not of values
}

// WebhookPatch changes a webhook: what is nil stays as it is.
type WebhookPatch struct {
	URL         *string
	Events      []string
	Description *string
	ContentMode *ContentMode
	Enabled     *bool
	Proven      bool // the receiver said that it wants events at URL

	Violations []Violation
	Unlisted   int
	Malformed  bool
}

// IssuedWebhook is the answer to registering a webhook or rotating its secret.
type IssuedWebhook struct {
	Webhook
	Secret string // whsec_..., shown this once
}

// SigningKey is a key pair that signs deliveries (RFC 9421, ed25519).
type SigningKey struct {
	KID       string // RFC 7638 thumbprint
	Public    []byte
	Sealed    []byte // the encrypted private key; nil where a file has it
	CreatedAt time.Time
	SignsFrom time.Time  // published before, so that receivers know it in time
	RetiresAt *time.Time // published until then; nil for the newest key
}

// OriginOf gives the origin of a URL: scheme, host and port, in one spelling;
// "" if it has none.
func OriginOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}
