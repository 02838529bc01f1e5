// Package history stores what the simulator observed: requests, events, deliveries, and the final state of API and tables. Package judge
// checks these observations for violations.
//
// Facts are lines of JSON, in one folder. All facts of a job are in the same file. So the judge can read one file at a time, and needs
// little memory for a million jobs.
package history

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/forgerun/forgerun/client"
)

// Kind says what a fact is about and where it was observed.
type Kind string

// Observations of the client during the run.
const (
	Submitted Kind = "submitted" // a job's submission, with the responses to all its tries
	Acted     Kind = "acted"     // a request to cancel or retry a job, and its response
	Intruded  Kind = "intruded"  // a request for a job of another tenant, and its response
	Looked    Kind = "looked"    // a job in the response to a poll
	Streamed  Kind = "streamed"  // an event on the client's stream
	Received  Kind = "received"  // a webhook message that a receiver got
	Scheduled Kind = "scheduled"
	Forbidden Kind = "forbidden" // an observation that is always wrong, such as a delivery with a wrong signature; see Note
)

// State in the API, the tables and Redis at the end of the run.
const (
	ListedJob     Kind = "listed job"      // GET /v1/jobs
	APIReport     Kind = "api report"      // GET /v1/jobs/{id}/report?attempt=n, with the attempt's events
	APIDelivery   Kind = "api delivery"    // GET /v1/jobs/{id}/deliveries
	StoredJob     Kind = "stored job"      // table jobs
	StoredEvent   Kind = "stored event"    // table events
	StoredReport  Kind = "stored report"   // table reports
	StoredDeliver Kind = "stored delivery" // table deliveries
	Contradiction Kind = "contradiction"   // violation found by package invariants; Note has the invariant and the violation
	QueuedTask    Kind = "queued task"
)

// Fact is an observation. Kind determines which fields are set.
type Fact struct {
	Job  string    `json:"job"`  // "" for none
	At   time.Time `json:"at"`   // observation time on the simulator's clock; for a response, time of its arrival
	Sent time.Time `json:"sent"` // time of the request; for a row, time of the transaction on Postgres' clock

	Kind   Kind  `json:"kind"`
	Tenant int   `json:"tenant"` // number of the tenant, from 0
	Ticket int64 `json:"ticket"` // number of the planned submission, from 1; 0: unknown

	Submission *Submission `json:"submission"`
	Action     *Answer     `json:"action"`
	Shown      *Job        `json:"shown"` // the job as shown in a response or stored in a row
	Event      *Event      `json:"event"`
	Report     *Report     `json:"report"`
	Delivery   *Delivery   `json:"delivery"`
	Task       *Task       `json:"task"`
	Schedule   *Schedule   `json:"schedule"`
	Note       string      `json:"note"`
}

// Subject returns the id of the job or, for a delivery without a job, the id of the event. Facts with the same subject are in the same
// file.
func (f *Fact) Subject() string {
	if f.Job == "" && f.Delivery != nil {
		return f.Delivery.EventID
	}
	return f.Job
}

// Schedule is a schedule that the run created. It is due once per Interval from CreatedAt to EndAt.
type Schedule struct {
	ID        string        `json:"id"`
	Interval  time.Duration `json:"interval"`
	CreatedAt time.Time     `json:"created_at"`
	EndAt     time.Time     `json:"end_at"`
}

// Submission is one planned job, with all tries to submit it.
type Submission struct {
	Key         string    `json:"key"` // idempotency key, the same on every try
	Type        string    `json:"type"`
	WorkKind    string    `json:"work_kind"`
	ExecutionAt time.Time `json:"execution_at"`
	AutoRetry   bool      `json:"auto_retry"`
	Callback    string    `json:"callback"` // URL
	Params      string    `json:"params"`   // ParamsDigest of the params
	Batch       string    `json:"batch"`
	Tries       []Answer  `json:"tries"`
}

// Answer is a request and its response. Status is 0 if no complete response arrived. Even then, the service may have handled the request.
type Answer struct {
	Verb      string    `json:"verb"` // cancel or retry; "" for a submission
	Sent      time.Time `json:"sent"`
	Answered  time.Time `json:"answered"`
	Status    int       `json:"status"`
	Code      string    `json:"code"` // code of a problem document
	RequestID string    `json:"request_id"`
	Job       string    `json:"job"`
	State     string    `json:"state"`
	Attempt   int       `json:"attempt"` // number of the job's current attempt, from the response
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	Location  string    `json:"location"` // response header
	Replayed  bool      `json:"replayed"`
	Error     string    `json:"error"` // why no response arrived
}

// Accepted reports whether a submission returned a job.
func (a Answer) Accepted() bool { return (a.Status == 202 || a.Status == 200) && a.Job != "" }

// Unknown reports whether it is unclear if the service handled the request.
func (a Answer) Unknown() bool { return a.Status == 0 || a.Status >= 500 }

// Job is a job from a response or a row, without large or secret members.
type Job struct {
	client.Job

	// The fields below are only set for a row of table jobs.
	RunAt        time.Time `json:"run_at"`
	Keys         int       `json:"keys"` // number of unexpired idempotency keys of the job
	ParamsDigest string    `json:"params_digest"`
}

// JobOf converts a job from a response.
func JobOf(j client.Job) *Job {
	j.Params, j.Links, j.Callback = nil, nil, ""
	return &Job{Job: j}
}

// ParamsDigest returns the first hexadecimal digits of the SHA-256 of a job's params, which are JSON; "" without params.
func ParamsDigest(params []byte) string {
	if len(params) == 0 {
		return ""
	}
	sum := sha256.Sum256(params)
	return hex.EncodeToString(sum[:8])
}

// Event is an entry of a job's log. On a stream, the event that ends an attempt is an outcome document, so Seq, Prev and Next are not set.
type Event struct {
	ID      string    `json:"id"`
	Seq     int       `json:"seq"`
	Name    string    `json:"name"`
	Prev    string    `json:"prev"`
	Next    string    `json:"next"`
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	Status  string    `json:"status"`  // jobStatus of an outcome document
	Emitted string    `json:"emitted"` // only for event.emitted: name and data of the client's event, separated by a space

	Job string `json:"job"` // only set for an event in an API report

	Scenario // an event from a row has only WorkKind
}

// Scenario has the members of an event that describe the job's work kind.
type Scenario struct {
	WorkKind        string `json:"work_kind"`
	DurationMS      int    `json:"duration_ms"`
	ExpectedOutcome string `json:"expected_outcome"`
}

// Report is the report of one finished attempt.
type Report struct {
	Attempt    int       `json:"attempt"`
	Outcome    string    `json:"outcome"`
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
	DurationMS int       `json:"duration_ms"`
	Failure    string    `json:"failure"`   // code of the failure
	EventSeq   int       `json:"event_seq"` // only in rows: seq of the attempt's last event

	// Only set in facts that were read from the API:
	Events      []Event `json:"events"`
	Job         string  `json:"job"`
	ResultSize  *int    `json:"result_size"`  // size of the attempt's result in bytes; nil: see ResultError
	ResultError string  `json:"result_error"` // why the result could not be read, or that its hash is wrong
}

// Delivery is one received webhook message, or a delivery in a response or a row.
type Delivery struct {
	ID        string    `json:"id"`
	Webhook   string    `json:"webhook"` // id of the webhook; "" for a delivery to a callback
	Receiver  string    `json:"receiver"`
	URL       string    `json:"url"`
	EventID   string    `json:"event_id"`
	EventName string    `json:"event_name"`
	Seq       int       `json:"seq"`
	State     string    `json:"state"`      // PENDING, DELIVERED, FAILED
	Attempts  int       `json:"attempts"`   // number of attempts, as counted by the service
	Status    int       `json:"status"`     // status of the receiver's response; 0: none
	Error     string    `json:"error"`      // error code that the service reports
	Accepted  int       `json:"accepted"`   // only in rows: number of attempts with a 2xx response
	Uncounted int       `json:"uncounted"`  // only in rows: attempts with error INTERNAL; not counted toward the limit of attempts
	Next      time.Time `json:"next"`       // time of the next attempt of a PENDING delivery
	Body      string    `json:"body"`       // digest of the message's body
	JobStatus string    `json:"job_status"` // jobStatus in the received body
	Emitted   string    `json:"emitted"`    // as Event.Emitted

	// Only set for a received message.
	Scenario Scenario      `json:"scenario"`
	WorkKind string        `json:"work_kind"` // attribute workkind of the CloudEvent
	After    time.Duration `json:"after"`     // how long the receiver waited before its response

	// Only set in facts that were read from the API:
	CreatedAt time.Time                `json:"created_at"`
	SettledAt time.Time                `json:"settled_at"`
	HasLog    bool                     `json:"has_log"` // the delivery was read by its id, so Log is set
	Log       []client.DeliveryAttempt `json:"log"`
}

// Task is an entry of the queue in Redis.
type Task struct {
	Queue   string `json:"queue"`
	ID      string `json:"id"`
	State   string `json:"state"` // pending, active, scheduled, retry, archived, completed
	Attempt int    `json:"attempt"`
}

// Account is a tenant of a run.
type Account struct {
	Tenant   int
	ClientID string         // "" with --key, because the client may also have data of other runs
	Client   *client.Client // for requests outside the load
	Quick    *client.Client // for the load; never retries, because the load generator decides about retries
	Webhooks []Webhook
}

// Webhook is a tenant's subscription. It is registered before the tenant's first submission.
type Webhook struct {
	Tenant int
	ID     string
	Events []string // names, or patterns such as job.* and *
}

// EventOf converts an event from a job's log in the API. It fails if the data of an event.emitted is malformed.
func EventOf(e *client.Event) (kept *Event, err error) {
	kept = &Event{ID: e.EventID, Seq: e.Seq, Name: e.EventName, Prev: e.PrevState, Next: e.NextState, Attempt: e.Attempt, At: e.Timestamp}
	if e.JobID != "" {
		_ = json.Unmarshal(e.Data, &kept.Scenario)
	}
	if e.EventName == "event.emitted" {
		var own client.Emission
		err = json.Unmarshal(e.Data, &own)
		kept.Emitted = EmissionOf(&own)
	}
	return kept, err
}

// EmissionOf returns "NAME DATA" of an emission, or "" for nil.
func EmissionOf(e *client.Emission) string {
	if e == nil {
		return ""
	}
	return e.Name + " " + string(e.Data)
}

// ScenarioOf converts the scenario in an outcome document; it returns the zero value for nil.
func ScenarioOf(s *client.Scenario) (kept Scenario) {
	if s != nil {
		kept = Scenario(*s)
	}
	return kept
}
