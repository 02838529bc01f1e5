package job

import (
	"net/url"
	"slices"
	"strings"
	"time"
)

// Webhook is a client's subscription. The service sends the requested events to its URL (API contract, section 8). Secrets are encrypted
// with a key that is not in the database.
type Webhook struct {
	ID          ID
	ClientID    ID
	URL         string
	Events      []string // names, "job.*" or "*"
	Description string
	ContentMode ContentMode
	Secrets     []SealedSecret // the current secret first, then others that are still valid
	CreatedAt   time.Time
	UpdatedAt   time.Time
	Disabled    *Disabled // nil if enabled
	Failures    int       // attempts that failed since the last success
	FailingFrom *time.Time
	ProvenAt    *time.Time // when the receiver confirmed that it wants events at this URL; nil if unconfirmed
}

// SealedSecret is an encrypted signing secret.
type SealedSecret struct {
	Sealed []byte
	Until  *time.Time // end of an old secret's validity; nil for the current secret
}

// ContentMode is the form of a CloudEvent in an HTTP request. In binary mode, the attributes are HTTP headers. In structured mode, the
// body is JSON with the attributes and the data.
type ContentMode string

// The content modes of CloudEvents' HTTP binding.
const (
	ContentBinary     ContentMode = "binary"
	ContentStructured ContentMode = "structured"
)

// Valid reports whether m is one of the two content modes.
func (m ContentMode) Valid() bool { return m == ContentBinary || m == ContentStructured }

// Disabled records when and why a webhook was disabled.
type Disabled struct {
	At     time.Time
	Reason DisabledReason
}

// DisabledReason is the reason why a webhook was disabled.
type DisabledReason string

// Reasons for disabling a webhook.
const (
	DisabledByOwner DisabledReason = "OWNER"
	DisabledGone    DisabledReason = "GONE"    // the receiver returned 410
	DisabledFailing DisabledReason = "FAILING" // too many failures in a row for too long
)

// Text returns the reason as a sentence.
func (r DisabledReason) Text() string {
	switch r {
	case DisabledGone:
		return "The receiver returned 410 Gone."
	case DisabledFailing:
		return "Deliveries to the webhook kept failing; see the log of deliveries."
	default:
		return "The webhook was disabled by its owner."
	}
}

// MaxWebhooks limits the webhooks of a client. The transaction that writes an event also writes a delivery for each webhook, so many
// webhooks would make a large batch of jobs slow.
const MaxWebhooks = 10

// SubscribableEvents are the events that a webhook can request by name. Progress is not in the list, because only event streams send it.
var SubscribableEvents = []string{
	EventCreated, EventQueued, EventAssigned, EventRunning, EventSucceeded, EventFailed, EventCanceled, EventRetried,
	EventLeaseExpired, EventRetriesExhausted, EventEmitted, EventBatchCompleted, EventBulkCompleted,
	EventWebhookDisabled, EventWebhookTest,
}

// Subscribable reports whether a webhook may request the name: an event, "job.*" for all events of jobs, or "*" for all events.
func Subscribable(name string) bool {
	return name == "*" || name == "job.*" || slices.Contains(SubscribableEvents, name)
}

// SubscribableNames returns all names that Subscribable allows, as text.
func SubscribableNames() string { return "*, job.*, " + strings.Join(SubscribableEvents, ", ") }

// WebhookRequest is a decoded request for a webhook. Violations lists the mistakes that decoding found.
type WebhookRequest struct {
	ClientID    ID
	URL         string
	Events      []string
	Description string
	ContentMode ContentMode // "" is binary
	Proven      bool        // the receiver confirmed that it wants events

	IdempotencyKey string
	Hash           [32]byte // hash of the canonical request without the idempotency key

	Violations []Violation
	Unlisted   int  // number of violations that decoding found but did not list
	Malformed  bool // a violation is a mistake in the structure, not in a value
}

// WebhookPatch changes a webhook. A nil field leaves the webhook's value unchanged.
type WebhookPatch struct {
	URL         *string
	Events      []string
	Description *string
	ContentMode *ContentMode
	Enabled     *bool
	Proven      bool // the receiver confirmed that it wants events at URL

	Violations []Violation
	Unlisted   int
	Malformed  bool
}

// IssuedWebhook is the response to registering a webhook or rotating its secret.
type IssuedWebhook struct {
	Webhook
	Secret string // whsec_..., shown only once
}

// SigningKey is a key pair that signs deliveries (RFC 9421, ed25519).
type SigningKey struct {
	KID       string // RFC 7638 thumbprint
	Public    []byte
	Sealed    []byte // encrypted private key; nil if it is in a file
	CreatedAt time.Time
	SignsFrom time.Time  // when the key begins to sign; it is published earlier, so that receivers can fetch it in time
	RetiresAt *time.Time // end of publication; nil for the newest key
}

// OriginOf returns the normalized origin of a URL (scheme, host and port), or "" if it has none.
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
