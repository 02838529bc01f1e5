package verdict

import (
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

// Limits of recorded exchanges.
const (
	MaxSessions  = 1_000        // sessions per client, including open ones; the oldest are removed first
	MaxAllBytes  = 5 * MaxBytes // bytes of records for all sessions of a client together
	MaxExchanges = 200_000      // maximum number of judged exchanges per session
	MaxBytes     = 128 << 20    // bytes of records for a session without a label
	MaxLabeled   = 4 << 20      // bytes of records for a session with a label
	MaxShown     = 1_000        // recorded jobs per response, and event ids per stream
	MaxStates    = 5            // recorded states of unfinished jobs
)

// MaxLabel is the maximum length of a session's label.
const MaxLabel = 200

// Role is the purpose of a request.
type Role string

// Role is empty for requests with none of these purposes.
const (
	Submit     Role = "submit"
	SubmitMany Role = "submit_many"
	Read       Role = "read"      // shows the state of a job
	ReadMany   Role = "read_many" // shows the states of jobs submitted together
	List       Role = "list"      // shows jobs
	Outcome    Role = "outcome"
	Stream     Role = "stream"
	Retry      Role = "retry"
	Delivery   Role = "delivery"
	Reset      Role = "reset" // removes the client's data; requests before and after it are judged separately
)

var faultUses = map[Role]fault.Use{
	Submit: fault.Submissions, SubmitMany: fault.Submissions, Read: fault.Lookups, ReadMany: fault.Lookups, List: fault.Lookups,
	Outcome: fault.Outcomes, Stream: fault.Streams, Delivery: fault.Deliveries, Retry: fault.Others, Reset: fault.Others, "": fault.Others,
}

// Exchange is a request with its response. The client sent the request, or received it (a delivery). Keys and bodies are recorded as
// hashes.
type Exchange struct {
	Start time.Time `json:"start"` // when the request was read
	End   time.Time `json:"end"`   // when the response was complete, or the stream ended

	Method    string `json:"method"`
	Host      string `json:"host,omitempty"` // with port
	Path      string `json:"path"`
	Query     string `json:"query,omitempty"`
	Operation string `json:"operation,omitempty"` // the API's name of the operation; empty if unknown
	Role      Role   `json:"role,omitempty"`

	Repeatable bool `json:"repeatable,omitempty"` // the API allows repeating the operation without a key

	// Request.
	Key         string `json:"key,omitempty"`  // hash of the idempotency key
	Body        string `json:"body,omitempty"` // hash of the body, independent of member order and spacing
	Correlation string `json:"correlation,omitempty"`
	Trace       string `json:"trace,omitempty"` // trace-id of the header traceparent
	Prefer      string `json:"prefer,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	Accept      string `json:"accept,omitempty"`
	IfNoneMatch string `json:"if_none_match,omitempty"`
	LastEventID string `json:"last_event_id,omitempty"`
	KeyID       string `json:"key_id,omitempty"`
	Expired     bool   `json:"expired,omitempty"` // the API key was refused as expired
	KeyInURL    bool   `json:"key_in_url,omitempty"`
	Connection  uint64 `json:"connection,omitempty"`
	Receiver    bool   `json:"receiver,omitempty"` // the request may name a receiver of notifications
	Reused      bool   `json:"reused,omitempty"`   // the connection served an earlier request
	Closes      bool   `json:"closes,omitempty"`   // the request asks to close the connection
	Agent       string `json:"agent,omitempty"`    // User-Agent

	// Response.
	Status     int      `json:"status"`
	Code       string   `json:"code,omitempty"`
	RetryAfter *int     `json:"retry_after,omitempty"` // s
	ETag       string   `json:"etag,omitempty"`
	Location   string   `json:"location,omitempty"`    // target of a redirect: path and query, or the whole URL for another origin
	Job        string   `json:"job,omitempty"`         // job in the path, or job that the request created
	Made       string   `json:"made,omitempty"`        // job that the response to a submission names; for a retry, the job of the first try
	Created    string   `json:"created,omitempty"`     // id or address of any resource in the response to a POST
	Unreached  string   `json:"unreached,omitempty"`   // why there is no response, such as "connection refused at 127.0.0.1:3000"
	Final      []string `json:"final,omitempty"`       // jobs shown in a final state
	Shown      []string `json:"shown,omitempty"`       // jobs shown in a state that is not final
	MaybeFinal []string `json:"maybe_final,omitempty"` // ended jobs that a fault showed in an unknown state
	More       bool     `json:"more,omitempty"`        // Final, Shown and MaybeFinal are not complete

	Fault  *fault.Effect `json:"fault,omitempty"`
	HungUp bool          `json:"hung_up,omitempty"` // the client hung up before the response was complete

	// Set only for deliveries that a fault disturbed. A delivery that a fault dropped has an Exchange too.
	Delivery string `json:"delivery,omitempty"`
	Number   int    `json:"attempt,omitempty"`
	Event    string `json:"event,omitempty"`

	Stream *Part `json:"stream,omitempty"` // nil unless the response was an event stream
}

// Part is the part of an event stream that a client received over one connection.
type Part struct {
	Open   bool     `json:"open,omitempty"` // the stream had not ended yet; a later Exchange with the same Start has the end
	Events int      `json:"events"`
	Cut    bool     `json:"cut,omitempty"`   // a fault ended or silenced the stream
	IDs    []string `json:"ids,omitempty"`   // ids of the last MaxShown events; an empty id clears the client's last event ID
	Late   int      `json:"late,omitempty"`  // number of ids at the end of IDs that may not have reached the client, because of a fault
	Half   string   `json:"half,omitempty"`  // id of an event that was cut in half
	Retry  int      `json:"retry,omitempty"` // reconnection time from the service, in ms
}

// Run is a job of the judged client.
type Run struct {
	ID        string
	State     string    // for people
	Finished  time.Time // zero while the job is not final
	Permanent bool      // the job failed, and a retry would not help
	Batch     string
	Groups    []string // batch and bulk operations that contain the job; an operation ends after all its jobs
}

// Attempt is one attempt to deliver an event to the client.
type Attempt struct {
	DeliveryID string
	JobID      string
	Number     int
	Event      string
	Final      bool // the event reports the end of the job
	At         time.Time
	Took       time.Duration
	Status     int    // 0 without a response
	Error      string // error class; empty if delivered
	GaveUp     bool   // the service stopped waiting for a response after Took
	Unsigned   bool   // missing or invalid signature

	place int // line number in the session's journal (see Entry)
}
