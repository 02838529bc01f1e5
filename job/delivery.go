package job

import (
	"math"
	"slices"
	"time"
)

// DeliveryState is the state of a delivery.
type DeliveryState string

// States of a delivery. A finished delivery can be sent again, which makes it PENDING.
const (
	DeliveryPending   DeliveryState = "PENDING"
	DeliveryDelivered DeliveryState = "DELIVERED" // the receiver returned 2xx
	DeliveryFailed    DeliveryState = "FAILED"    // given up
)

// DeliveryStates lists all states.
var DeliveryStates = []DeliveryState{DeliveryPending, DeliveryDelivered, DeliveryFailed}

// Valid reports whether s is a known state.
func (s DeliveryState) Valid() bool { return slices.Contains(DeliveryStates, s) }

// Delivery is the delivery of one event to one webhook or callback.
type Delivery struct {
	ID        ID
	ClientID  ID
	Endpoint  ID     // id of the webhook, or of the callback's origin; sending capacity is divided among endpoints
	WebhookID ID     // zero for a callback
	URL       string // URL of a callback; "" for a webhook
	JobID     ID     // zero for an event without a job
	Seq       int    // seq of the event within its job
	EventID   ID
	EventName string
	CreatedAt time.Time

	State         DeliveryState
	Attempts      int
	Tries         int        // attempts since the latest redelivery, or since the creation if there was none
	NextAttemptAt *time.Time // set while PENDING
	ClaimedUntil  *time.Time // set while the delivery is being sent
	SettledAt     *time.Time // set unless PENDING
	LastStatus    int        // HTTP status of the latest attempt, or 0 if there is none
	LastError     SendError  // error of the latest attempt, or "" if there is none
	LastReason    string     // what failed and the receiver's address; "" if LastError is enough
}

// DeliveryAttempt is one attempt to send a delivery, with the response or the error.
type DeliveryAttempt struct {
	Number    int
	StartedAt time.Time
	Duration  time.Duration
	Status    int       // HTTP status; 0 without a response
	Error     SendError // "" if delivered
	Reason    string    // what failed and the receiver's address
	Header    map[string][]string
	Body      []byte // first bytes of the response, at most MaxStoredBody
	Truncated bool   // the response was longer than Body
}

// MaxStoredBody limits the stored part of a receiver's response, in bytes.
const MaxStoredBody = 8 << 10

// SendError is the class of an attempt's error.
type SendError string

// Classes of errors. WEBHOOK_DISABLED and WEBHOOK_DELETED end a delivery without an attempt.
const (
	SendTimeout     SendError = "TIMEOUT"           // no complete response within the time limit
	SendRefused     SendError = "CONNECTION_FAILED" // no connection to the host or port
	SendReset       SendError = "CONNECTION_LOST"   // closed or reset before the response was complete
	SendDNS         SendError = "NAME_NOT_RESOLVED" // the host has no address, or a forbidden one (not public)
	SendTLS         SendError = "TLS_FAILED"
	SendForbidden   SendError = "ADDRESS_FORBIDDEN" // forbidden address in the URL
	SendRedirect    SendError = "REDIRECT"          // 3xx: redirects are not followed
	SendBadAnswer   SendError = "INVALID_ANSWER"    // not HTTP, or response headers over the size limit
	SendRateLimited SendError = "RATE_LIMITED"      // 429
	SendGone        SendError = "GONE"              // 410
	SendClientError SendError = "HTTP_4XX"
	SendServerError SendError = "HTTP_5XX"
	SendInternal    SendError = "INTERNAL" // internal error

	SendDisabled SendError = "WEBHOOK_DISABLED"
	SendDeleted  SendError = "WEBHOOK_DELETED"
)

// Text returns a sentence about the class, or "" for an unknown class.
func (e SendError) Text() string { return sendTexts[e] }

// SendErrors lists all classes.
var SendErrors = []SendError{
	SendTimeout, SendRefused, SendReset, SendDNS, SendTLS, SendForbidden, SendRedirect, SendBadAnswer, SendRateLimited, SendGone,
	SendClientError, SendServerError, SendInternal, SendDisabled, SendDeleted,
}

var sendTexts = map[SendError]string{
	SendTimeout:     "The receiver did not complete its response within the time limit.",
	SendRefused:     "No connection to the receiver could be made.",
	SendReset:       "The receiver closed the connection before its response was complete.",
	SendDNS:         "The receiver's host name does not resolve to an allowed address.",
	SendTLS:         "The TLS handshake failed or the receiver's certificate is not trusted.",
	SendForbidden:   "The receiver's address is not public.",
	SendRedirect:    "The receiver returned a redirect; redirects are not followed.",
	SendBadAnswer:   "The response was not valid HTTP, or its header was too large.",
	SendRateLimited: "The receiver returned 429 Too Many Requests.",
	SendGone:        "The receiver returned 410 Gone.",
	SendClientError: "The receiver returned a 4xx status.",
	SendServerError: "The receiver returned a 5xx status.",
	SendInternal:    "The delivery could not be sent because of an internal error.",
	SendDisabled:    "The delivery ended without another attempt because the webhook was disabled.",
	SendDeleted:     "The delivery ended without another attempt because the webhook was deleted.",
}

// ClaimedDelivery is a claimed delivery with the data to send it.
type ClaimedDelivery struct {
	Delivery
	Fence       int // fence of this claim; results with an older fence have no effect
	Target      Target
	Occurrence  Occurrence
	RequestID   string // request id of the event's job; "" if there is none
	TraceParent string // traceparent of the event's job at the time of the event; "" if there is none
}

// Target is the destination of a delivery.
type Target struct {
	URL         string
	ContentMode ContentMode
	Secrets     []SealedSecret // empty for a callback, which is signed only with the server's key
	Failures    int            // consecutive failures at the time of the claim
}

// Sent is the result of one attempt to send.
type Sent struct {
	Attempt    DeliveryAttempt // its Number is not set
	RetryAfter time.Duration   // wait that the receiver requested; 0: none
}

// DeliveryResult is the result of one attempt, for the store.
type DeliveryResult struct {
	DeliveryID ID
	Fence      int
	Sent       Sent
	State      DeliveryState  // state after the attempt
	Wait       time.Duration  // wait before the next attempt, if PENDING
	Disable    DisabledReason // reason to disable the webhook, or ""
}

// Recorded is the effect of storing a DeliveryResult.
type Recorded struct {
	Number   int            // number of the attempt, from 1
	Disabled DisabledReason // why the result disabled the webhook, or ""
}

// EndpointKey identifies an endpoint, and determines its position in lists. The zero value comes first.
type EndpointKey struct {
	Client, Endpoint ID
}

// DeliveryPolicy decides whether and when a delivery is sent again.
type DeliveryPolicy struct {
	MaxRetries int // attempts after the first
	Backoff    Backoff
}

// An internal error ends a delivery only if the delivery is older than maxInternalAge.
const maxInternalAge = 3 * 24 * time.Hour

// Next returns the state of the claimed delivery d after an attempt with the result s, and the wait before the next attempt.
//
// The wait is random, between 50 % and 100 % of the exponential backoff. After a timeout or a 429 the backoff is doubled, up to its
// maximum. If the receiver sent Retry-After, the wait is that time, but at least the backoff and at most twice the backoff. Internal errors
// do not count as tries. An internal error ends a delivery that is older than maxInternalAge.
func (p DeliveryPolicy) Next(d *Delivery, s Sent, random float64) (DeliveryState, time.Duration) {
	try := d.Tries + 1
	switch s.Attempt.Error {
	case "":
		return DeliveryDelivered, 0
	case SendGone:
		return DeliveryFailed, 0
	case SendInternal:
		if s.Attempt.StartedAt.Sub(d.CreatedAt) > maxInternalAge {
			return DeliveryFailed, 0
		}
		return DeliveryPending, jittered(p.Backoff.Ceiling(d.Attempts+1), random)
	default:
		if try > p.MaxRetries {
			return DeliveryFailed, 0
		}
	}
	wait := p.Backoff.Ceiling(try)
	if s.RetryAfter > 0 {
		return DeliveryPending, min(max(s.RetryAfter, wait), doubled(wait))
	}
	if s.Attempt.Error == SendTimeout || s.Attempt.Error == SendRateLimited {
		wait = min(doubled(wait), p.Backoff.Max)
	}
	return DeliveryPending, jittered(wait, random)
}

func jittered(wait time.Duration, random float64) time.Duration {
	return wait/2 + time.Duration(random*float64(wait/2))
}

func doubled(d time.Duration) time.Duration {
	if d > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return 2 * d
}

// DeliveryOwner is the owner of deliveries: a webhook or a job. One of the two is set.
type DeliveryOwner struct {
	WebhookID, JobID ID
}

// DeliveryQuery selects deliveries, newest first. A zero member matches every delivery.
type DeliveryQuery struct {
	Owner         DeliveryOwner
	State         DeliveryState
	EventName     string
	CreatedAfter  *time.Time // inclusive
	CreatedBefore *time.Time // exclusive
	After         ID         // the page begins after this delivery
	Limit         int
}

// DeliveryPage is a part of a list of deliveries.
type DeliveryPage struct {
	Deliveries []Delivery
	Next       ID // position of the next page; zero at the end
}

// Replay is the result of sending missed events again.
type Replay struct {
	Queued int      // deliveries that became PENDING
	More   bool     // a further request may find more matching deliveries
	Next   Position // position from which the next request continues
}

// OutcomeMessage is an outcome to publish in the outcome stream.
type OutcomeMessage struct {
	JobID   ID
	Attempt int
	Origin  Origin
	Ended   Attempt
}

// StreamEntry is an entry of the outcome stream.
type StreamEntry struct {
	Key         string // the job's id
	ContentType string
	Language    string // language of the texts in Value; "" if there are none
	Value       []byte
}
