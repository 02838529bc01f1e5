package testbed

import (
	"time"

	"github.com/forgerun/forgerun/job"
)

// Bounds of what is recorded.
const (
	MaxSessions  = 20       // of a client that are kept; the oldest go first
	MaxExchanges = 50_000   // of a session; what comes later is counted, and not judged
	MaxBytes     = 32 << 20 // that these take, likewise
	MaxShown     = 1_000    // jobs that one answer or stream is known to have shown
)

// Exchange is a request of a client in a session and what it got, or one that was sent to it. Neither keys nor bodies are kept.
type Exchange struct {
	Start time.Time `json:"start"`       // when the request was read
	End   time.Time `json:"end"`         // when its answer was made, or the stream was over
	At    time.Time `json:"at,omitzero"` // End by the service's clock, if that was moved

	Method    string `json:"method"`
	Path      string `json:"path"`
	Query     string `json:"query,omitempty"`
	Operation string `json:"operation,omitempty"` // operationId; empty: no route wanted it

	// Of the request.
	Key         string `json:"key,omitempty"`  // hash of its idempotency key
	Body        string `json:"body,omitempty"` // hash of its body, whatever the order of members and the spacing
	Correlation string `json:"correlation,omitempty"`
	Trace       string `json:"trace,omitempty"` // trace-id of its traceparent
	Prefer      string `json:"prefer,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	Accept      string `json:"accept,omitempty"`
	IfNoneMatch string `json:"if_none_match,omitempty"`
	LastEventID string `json:"last_event_id,omitempty"`
	KeyID       string `json:"key_id,omitempty"` // of the API key
	KeyInURL    bool   `json:"key_in_url,omitempty"`
	Reused      bool   `json:"reused,omitempty"` // its connection had served another request before

	// Of the answer.
	Status     int      `json:"status"`
	Code       job.Code `json:"code,omitempty"`
	RetryAfter *int     `json:"retry_after,omitempty"` // s
	ETag       string   `json:"etag,omitempty"`
	Job        job.ID   `json:"job,omitzero"`    // that the path names, or that was made
	Made       job.ID   `json:"made,omitzero"`   // of a submission, also if it is a repetition
	Final      []job.ID `json:"final,omitempty"` // jobs that were shown in a final state
	Shown      []job.ID `json:"shown,omitempty"` // and in any other

	Fault  *Effect `json:"fault,omitempty"`
	HungUp bool    `json:"hung_up,omitempty"` // the client did, while it was kept waiting

	// Of a request that the service sent to the client as part of a disturbed delivery, or did not send: see Effect.
	Delivery job.ID `json:"delivery,omitzero"`
	Number   int    `json:"attempt,omitempty"`
	Event    string `json:"event,omitempty"`

	Stream *Part `json:"stream,omitempty"` // nil unless the answer was an event stream
}

// Part is what a client got of an event stream over one connection.
type Part struct {
	Events int      `json:"events"`
	Cut    bool     `json:"cut,omitempty"` // a fault has ended it, or silenced it
	IDs    []string `json:"ids,omitempty"` // of the events, without those before the last MaxShown
}

// Arrived reports whether the client got the answer as a whole.
func (x *Exchange) Arrived() bool {
	return !x.HungUp && (x.Stream != nil || x.Fault == nil || x.Fault.Close == "")
}

// ServiceEnd is End by the clock by which jobs live.
func (x *Exchange) ServiceEnd() time.Time {
	if x.At.IsZero() {
		return x.End
	}
	return x.At
}

// Disturbed reports whether what the client saw was not the service's own.
func (x *Exchange) Disturbed() bool { return x.Fault != nil }

// Run is a job of a session's client.
type Run struct {
	ID        job.ID
	State     job.State
	Finished  time.Time // zero while it is not final
	Retryable bool      // of a failed one
}

// Attempt is a request by which an event was delivered to a client of a session.
type Attempt struct {
	DeliveryID job.ID
	JobID      job.ID // zero for an event of no job
	Number     int
	Event      string
	At         time.Time
	Took       time.Duration
	Status     int    // 0 without an answer
	Error      string // its class; empty if it was delivered
}
