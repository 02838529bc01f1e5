package verdict

import (
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

// Bounds of what is recorded.
const (
	MaxSessions  = 1_000        // of a client that are kept, the open ones included; the oldest go first
	MaxAllBytes  = 5 * MaxBytes // of all sessions of a client
	MaxExchanges = 200_000      // per session; later ones are counted but not judged
	MaxBytes     = 128 << 20    // per session
	MaxLabelled  = 4 << 20      // per session with a label
	MaxShown     = 1_000        // jobs that one answer or stream is known to have shown
)

// MaxLabel is how long a session's label may be.
const MaxLabel = 200

// Role is what a request does for the client. A job is whatever a submission makes; its id is opaque.
type Role string

// The roles; requests of any other kind have none.
const (
	Submit     Role = "submit"      // makes a job
	SubmitMany Role = "submit_many" // makes several
	Read       Role = "read"        // shows the state of a job
	ReadMany   Role = "read_many"   // shows the states of what was submitted together
	List       Role = "list"        // shows jobs
	Outcome    Role = "outcome"     // shows what became of a job
	Stream     Role = "stream"      // of events
	Retry      Role = "retry"       // has a job tried again
	Delivery   Role = "delivery"    // of an event, by the service to the client
	Reset      Role = "reset"       // removes what the client has: from then on nothing is a repetition of what was before
)

var uses = map[Role]fault.Use{
	Submit: fault.Submissions, SubmitMany: fault.Submissions, Read: fault.Lookups, ReadMany: fault.Lookups, List: fault.Lookups,
	Outcome: fault.Outcomes, Stream: fault.Streams, Delivery: fault.Deliveries, Retry: fault.Others, Reset: fault.Others, "": fault.Others,
}

// Exchange is a request of a client in a session and what it got, or one that was sent to it. Neither keys nor bodies are kept.
type Exchange struct {
	Start time.Time `json:"start"` // when the request was read
	End   time.Time `json:"end"`   // when its answer was made, or the stream was over

	Method    string `json:"method"`
	Host      string `json:"host,omitempty"` // that the client named, with its port
	Path      string `json:"path"`
	Query     string `json:"query,omitempty"`
	Operation string `json:"operation,omitempty"` // as the API names it; empty: it has none such
	Role      Role   `json:"role,omitempty"`

	Repeatable bool `json:"repeatable,omitempty"` // the API says that the operation may be repeated

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
	KeyID       string `json:"key_id,omitempty"`  // of the API key
	Expired     bool   `json:"expired,omitempty"` // which was refused for its age
	KeyInURL    bool   `json:"key_in_url,omitempty"`
	Connection  uint64 `json:"connection,omitempty"`
	Receiver    bool   `json:"receiver,omitempty"` // it may name where the client hears of what happens
	Reused      bool   `json:"reused,omitempty"`   // its connection had served another request before
	Closes      bool   `json:"closes,omitempty"`   // it asks to close its connection
	Agent       string `json:"agent,omitempty"`    // its User-Agent

	// Of the answer.
	Status     int      `json:"status"`
	Code       string   `json:"code,omitempty"`
	RetryAfter *int     `json:"retry_after,omitempty"` // s
	ETag       string   `json:"etag,omitempty"`
	Location   string   `json:"location,omitempty"`  // path and query that it redirects to; a whole URL if that is another origin
	Job        string   `json:"job,omitempty"`       // that the path names, or that was made
	Made       string   `json:"made,omitempty"`      // of a submission, also if it is a repetition
	Created    string   `json:"created,omitempty"`   // id or address in the answer to a POST, whether it is a job or not
	Unreached  string   `json:"unreached,omitempty"` // why the target did not answer, such as "connection refused at 127.0.0.1:3000"
	Final      []string `json:"final,omitempty"`     // jobs that were shown in a final state
	Shown      []string `json:"shown,omitempty"`     // and in any other
	Told       []string `json:"told,omitempty"`      // jobs in an unknown state, of which another member says that they have ended
	More       bool     `json:"more,omitempty"`      // it has shown more jobs than these

	Fault  *fault.Effect `json:"fault,omitempty"`
	HungUp bool          `json:"hung_up,omitempty"` // the client did, while it was kept waiting

	// Of a request that the service sent to the client as part of a disturbed delivery, or did not send: see Effect.
	Delivery string `json:"delivery,omitempty"`
	Number   int    `json:"attempt,omitempty"`
	Event    string `json:"event,omitempty"`

	Stream *Part `json:"stream,omitempty"` // nil unless the answer was an event stream
}

// Part is what a client got of an event stream over one connection.
type Part struct {
	Open   bool     `json:"open,omitempty"` // this is the record of its beginning; another one, with equal Start, tells of its end
	Events int      `json:"events"`
	Cut    bool     `json:"cut,omitempty"`   // a fault has ended it, or silenced it
	IDs    []string `json:"ids,omitempty"`   // of the events, without those before the last MaxShown; "" resets the last event ID
	Late   int      `json:"late,omitempty"`  // last ids that the client may not have got: they came at the moment of the fault
	Half   string   `json:"half,omitempty"`  // id of an event of which half came
	Retry  int      `json:"retry,omitempty"` // ms that it told the client to wait before it is opened again
}

// Run is a job of a session's client.
type Run struct {
	ID        string
	State     string    // as people read it
	Finished  time.Time // zero while it is not final
	Permanent bool      // it failed, and its failure says that another try would not help
	Batch     string    // id of its batch; empty: it has none
	Groups    []string  // ids of its batch, and of the bulk operations that changed it or left it as it was: their end is its end
}

// Attempt is a request by which an event was delivered to a client of a session.
type Attempt struct {
	DeliveryID string
	JobID      string // empty for an event of no job
	Number     int
	Event      string
	Final      bool // it tells that the job has ended
	At         time.Time
	Took       time.Duration
	Status     int    // 0 without an answer
	Error      string // its class; empty if it was delivered
	GaveUp     bool   // the service did, after Took
	Unsigned   bool   // its signature did not hold, or there was none

	place int // in the journal of a record that is judged
}
