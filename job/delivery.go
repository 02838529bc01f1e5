package job

import (
	"math"
	"slices"
	"time"
)

// DeliveryState is the state of a delivery.
type DeliveryState string

// The states of a delivery. A finished one can be sent again: it is PENDING then.
const (
	DeliveryPending   DeliveryState = "PENDING"
	DeliveryDelivered DeliveryState = "DELIVERED" // the receiver answered 2xx
	DeliveryFailed    DeliveryState = "FAILED"    // given up, and kept
)

// DeliveryStates are all of them.
var DeliveryStates = []DeliveryState{DeliveryPending, DeliveryDelivered, DeliveryFailed}

// Valid reports whether s is one of them.
func (s DeliveryState) Valid() bool { return slices.Contains(DeliveryStates, s) }

// Delivery is one event on its way to one webhook or callback.
type Delivery struct {
	ID        ID
	ClientID  ID
	Endpoint  ID     // the webhook, or what stands for the callback's origin; takes its share of the sending
	WebhookID ID     // zero for a callback
	URL       string // of a callback; "" otherwise
	JobID     ID     // zero for an event of no job
	Seq       int    // of the event within its job
	EventID   ID
	EventName string
	CreatedAt time.Time

	State         DeliveryState
	Attempts      int
	Tries         int        // attempts since it was made or redelivered last
	NextAttemptAt *time.Time // while PENDING
	ClaimedUntil  *time.Time // while it is being sent
	SettledAt     *time.Time // unless PENDING
	LastStatus    int        // HTTP status of the latest attempt, 0 for none
	LastError     SendError  // of the latest attempt, "" for none
	LastReason    string     // what exactly failed and the receiver's address; "" if LastError says it all
}

// DeliveryAttempt is one try: what was answered and what went wrong.
type DeliveryAttempt struct {
	Number    int
	StartedAt time.Time
	Duration  time.Duration
	Status    int       // HTTP, 0 without an answer
	Error     SendError // "" when it was delivered
	Reason    string    // what exactly failed and the receiver's address
	Header    map[string][]string
	Body      []byte // the beginning of the answer, at most MaxStoredBody
	Truncated bool   // the answer had more
}

// MaxStoredBody is how much of a receiver's answer is kept, in bytes.
const MaxStoredBody = 8 << 10

// SendError is the class of what went wrong with an attempt.
type SendError string

// The classes. Those at the end are not of an attempt: the delivery ended
// without one.
const (
	SendTimeout     SendError = "TIMEOUT"           // no complete answer within the time limit
	SendRefused     SendError = "CONNECTION_FAILED" // no connection, or none to that port
	SendReset       SendError = "CONNECTION_LOST"   // closed or reset before the answer was complete
	SendDNS         SendError = "NAME_NOT_RESOLVED" // the name has no address, or one that must not be called
	SendTLS         SendError = "TLS_FAILED"
	SendForbidden   SendError = "ADDRESS_FORBIDDEN" // the URL spells out an address that must not be called
	SendRedirect    SendError = "REDIRECT"          // 3xx: redirects are not followed
	SendBadAnswer   SendError = "INVALID_ANSWER"    // not HTTP, or a head over the limit
	SendRateLimited SendError = "RATE_LIMITED"      // 429
	SendGone        SendError = "GONE"              // 410
	SendClientError SendError = "HTTP_4XX"
	SendServerError SendError = "HTTP_5XX"
	SendInternal    SendError = "INTERNAL" // on this side

	SendDisabled SendError = "WEBHOOK_DISABLED"
	SendDeleted  SendError = "WEBHOOK_DELETED"
)

// Text says in a sentence what the class means. An unknown one has none.
func (e SendError) Text() string { return sendTexts[e] }

// SendErrors are all classes.
var SendErrors = []SendError{
	SendTimeout, SendRefused, SendReset, SendDNS, SendTLS, SendForbidden, SendRedirect, SendBadAnswer, SendRateLimited, SendGone,
	SendClientError, SendServerError, SendInternal, SendDisabled, SendDeleted,
}

var sendTexts = map[SendError]string{
	SendTimeout:     "The receiver did not answer completely within the time limit.",
	SendRefused:     "No connection to the receiver could be made.",
	SendReset:       "The receiver closed the connection before its answer was complete.",
	SendDNS:         "The receiver's name does not resolve to an address that may be called.",
	SendTLS:         "The TLS handshake failed or the receiver's certificate is not trusted.",
	SendForbidden:   "The receiver's address is not a public one.",
	SendRedirect:    "The receiver answered with a redirect; redirects are not followed.",
	SendBadAnswer:   "The answer was not valid HTTP, or its head was too large.",
	SendRateLimited: "The receiver answered 429 Too Many Requests.",
	SendGone:        "The receiver answered 410 Gone.",
	SendClientError: "The receiver answered with a 4xx status.",
	SendServerError: "The receiver answered with a 5xx status.",
	SendInternal:    "The delivery could not be sent because of an internal error.",
	SendDisabled:    "Not tried: webhook disabled.",
	SendDeleted:     "Not tried: webhook deleted.",
}

// ClaimedDelivery is a claimed delivery with all that it takes to send it.
type ClaimedDelivery struct {
	Delivery
	Fence       int // of this claim: what is recorded under an older one changes nothing
	Target      Target
	Occurrence  Occurrence
	RequestID   string // of the event's job; "" for none
	TraceParent string // of the event's job when it happened; "" for none
}

// Target is where and how a delivery is sent.
type Target struct {
	URL         string
	ContentMode ContentMode
	Secrets     []SealedSecret // none for a callback, which is signed by the server's key only
	Failures    int            // in a row, when it was claimed
}

// Sent is what became of one attempt to send.
type Sent struct {
	Attempt    DeliveryAttempt // without its number
	RetryAfter time.Duration   // what the receiver asked for, 0 for nothing
}

// DeliveryResult is what is stored of one attempt.
type DeliveryResult struct {
	DeliveryID ID
	Fence      int
	Sent       Sent
	State      DeliveryState  // after it
	Wait       time.Duration  // until the next attempt, while PENDING
	Disable    DisabledReason // "" to leave the webhook as it is
}

// Recorded is storage's answer to a DeliveryResult.
type Recorded struct {
	Number   int            // of the attempt, from 1
	Disabled DisabledReason // why the webhook was disabled because of it, "" if it was not
}

// EndpointKey is a place in the order of endpoints. The zero place comes
// before all.
type EndpointKey struct {
	Client, Endpoint ID
}

// DeliveryPolicy decides what follows an attempt.
type DeliveryPolicy struct {
	MaxRetries int // attempts after the first
	Backoff    Backoff
}

// maxInternalAge is how old a delivery becomes while it cannot be sent for a
// reason of our own.
const maxInternalAge = 3 * 24 * time.Hour

// Next gives the state of d, as it was claimed, after one more attempt, and how
// long to wait for the next one.
//
// The wait is half fixed, half random, of the exponential backoff; after a
// timeout and a 429 of twice that, within the backoff's maximum. What the
// receiver asks for is honoured from the backoff to its double. Trouble on our
// side is no try: it ends a delivery only when that is old.
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

// jittered leaves out a random part of half a wait.
func jittered(wait time.Duration, random float64) time.Duration {
	return wait/2 + time.Duration(random*float64(wait/2))
}

func doubled(d time.Duration) time.Duration {
	if d > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return 2 * d
}

// DeliveryOwner names whose deliveries are meant: those of a webhook or of a
// job. One of the two is set.
type DeliveryOwner struct {
	WebhookID, JobID ID
}

// DeliveryQuery selects deliveries, newest first. A zero member does not restrict.
type DeliveryQuery struct {
	Owner         DeliveryOwner
	State         DeliveryState
	EventName     string
	CreatedAfter  *time.Time // at this moment or later
	CreatedBefore *time.Time // before this moment
	After         ID         // go on after this delivery
	Limit         int
}

// DeliveryPage is a part of a list of deliveries.
type DeliveryPage struct {
	Deliveries []Delivery
	Next       ID // where to go on; zero at the end
}

// Replay is the answer to sending again what was missed.
type Replay struct {
	Queued int      // deliveries that are PENDING because of it
	More   bool     // there was more than one request does
	Next   Position // where to go on while there is more
}

// OutcomeMessage is an outcome for the stream.
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
	Language    string // of the texts in Value; "" if there are none
	Value       []byte
}
