// Package history keeps what was seen of a run of the simulator: every request
// and answer, every event of a stream, every delivery to a webhook, and at the
// end what the API and the rows say. Nothing is judged here.
//
// Facts are lines of JSON in a folder, spread over files by the job (or the event of no job) they are
// about, so that a run of a million jobs is written with little memory, and
// later read back one file at a time with all facts of a job together.
package history

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Kind says what a fact is about, and with that who saw it.
type Kind string

// What the client saw while the run went on.
const (
	// Submitted is one ticket: its request and all tries to hand it in.
	Submitted Kind = "submitted"
	// Acted is a cancel or a retry and its answer.
	Acted Kind = "acted"
	// Intruded is what another tenant was answered that asked for the job: Action,
	// with the verbs get, cancel, retry, report, events, result and delete.
	Intruded Kind = "intruded"
	// Looked is the job as a poll showed it.
	Looked Kind = "looked"
	// Streamed is an event on the client's stream.
	Streamed Kind = "streamed"
	// Received is a delivery, as it came to the receiver.
	Received Kind = "received"
	// Scheduled is a schedule that was created.
	Scheduled Kind = "scheduled"
	// Strange is what must never be seen, such as another client's event or a
	// delivery without a valid signature. Note says what.
	Strange Kind = "strange"
)

// What the API, the rows and Redis said at the end.
const (
	ListedJob     Kind = "listed job"      // GET /v1/jobs
	ToldReport    Kind = "told report"     // GET /v1/jobs/{id}/report?attempt=n, with its events
	ToldDelivery  Kind = "told delivery"   // GET /v1/jobs/{id}/deliveries
	StoredJob     Kind = "stored job"      // table jobs
	StoredEvent   Kind = "stored event"    // table events
	StoredReport  Kind = "stored report"   // table reports
	StoredTry     Kind = "stored try"      // table delivery_attempts
	StoredDeliver Kind = "stored delivery" // table deliveries
	QueuedTask    Kind = "queued task"     // a task in Redis
)

// Fact is one thing that was seen. Which members it has follows from its Kind.
type Fact struct {
	Job string `json:"job,omitempty"` // "" where there is none

	At time.Time `json:"at"` // by the simulator's clock; of an answer, when it had come
	// Of Looked and ListedJob: when it was asked for; of StoredJob and StoredDeliver:
	// as of when, by Postgres' clock; zero where not known.
	Sent   time.Time `json:"sent,omitzero"`
	Kind   Kind      `json:"kind"`
	Tenant int       `json:"tenant"`           // whose credentials, stream or webhook it was; from 0
	Ticket int64     `json:"ticket,omitempty"` // from 1; 0 where it is not known

	Submission *Submission `json:"submission,omitempty"`
	Action     *Action     `json:"action,omitempty"`
	Told       *Job        `json:"told,omitempty"`
	Event      *Event      `json:"event,omitempty"`
	Report     *Report     `json:"report,omitempty"`
	Delivery   *Delivery   `json:"delivery,omitempty"`
	Task       *Task       `json:"task,omitempty"`
	Schedule   *Schedule   `json:"schedule,omitempty"`
	Note       string      `json:"note,omitempty"`
}

// Subject is what the fact is kept with: its job, or of a delivery without one its event; "" for none.
func (f *Fact) Subject() string {
	if f.Job == "" && f.Delivery != nil {
		return f.Delivery.EventID
	}
	return f.Job
}

// Schedule is one by interval, whose due times are from its creation to its end, an interval after the other.
type Schedule struct {
	ID        string        `json:"id"`
	Interval  time.Duration `json:"interval"`
	CreatedAt time.Time     `json:"created_at"`
	EndAt     time.Time     `json:"end_at"`
}

// Submission is what a ticket asked for, and its requests.
type Submission struct {
	Key         string     `json:"key"` // idempotency key, the same on every try
	Type        string     `json:"type"`
	WorkKind    string     `json:"work_kind"`
	ExecutionAt *time.Time `json:"execution_at,omitempty"`
	AutoRetry   bool       `json:"auto_retry,omitempty"`
	Callback    string     `json:"callback,omitempty"` // URL
	Params      string     `json:"params,omitempty"`   // ParamsDigest of them
	Batch       string     `json:"batch,omitempty"`    // id of the batch that it came with
	Intended    time.Time  `json:"intended"`           // when it was to be sent
	Tries       []Try      `json:"tries"`
}

// Try is one request of a submission. Status 0: no complete answer came, and the job may exist.
type Try struct {
	Sent      time.Time `json:"sent"`
	Answered  time.Time `json:"answered"`
	Status    int       `json:"status"`
	Code      string    `json:"code,omitempty"` // of a problem document
	RequestID string    `json:"request_id,omitempty"`
	Job       string    `json:"job,omitempty"`
	State     string    `json:"state,omitempty"`
	CreatedAt time.Time `json:"created_at,omitzero"`
	Location  string    `json:"location,omitempty"` // header, of a refusal too
	Replayed  bool      `json:"replayed,omitempty"`
	Error     string    `json:"error,omitempty"` // why there was no answer
}

// Accepted reports whether the try was answered with a job.
func (t Try) Accepted() bool { return (t.Status == 202 || t.Status == 200) && t.Job != "" }

// Unknown reports whether the service may have done what it was asked for all
// the same: no answer came, or one that leaves it open.
func (t Try) Unknown() bool { return t.Status == 0 || t.Status >= 500 }

// Action is a cancel or a retry with its answer.
type Action struct {
	Verb      string    `json:"verb"` // cancel, retry
	Sent      time.Time `json:"sent"`
	Status    int       `json:"status"` // 0: no answer
	Code      string    `json:"code,omitempty"`
	RequestID string    `json:"request_id,omitempty"`
	Job       string    `json:"job,omitempty"` // the answer's
	State     string    `json:"state,omitempty"`
	Attempt   int       `json:"attempt,omitempty"`
	UpdatedAt time.Time `json:"updated_at,omitzero"`
	Error     string    `json:"error,omitempty"`
}

// Job is a job as the API or the rows have it. What they do not have is empty.
type Job struct {
	Type        string     `json:"type,omitempty"`
	WorkKind    string     `json:"work_kind,omitempty"`
	State       string     `json:"state"`
	Outcome     string     `json:"outcome,omitempty"`
	Attempt     int        `json:"attempt"`
	MaxAttempts int        `json:"max_attempts,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
	ExecutionAt *time.Time `json:"execution_at,omitempty"`
	StartedAt   *time.Time `json:"started_at,omitempty"`
	FinishedAt  *time.Time `json:"finished_at,omitempty"`
	Correlation string     `json:"correlation_id,omitempty"`
	Batch       string     `json:"batch_id,omitempty"`
	// Of a run of a schedule: which, and the due time that it stands for.
	Schedule     string     `json:"schedule_id,omitempty"`
	ScheduledFor *time.Time `json:"scheduled_for,omitempty"`
	Failure      string     `json:"failure,omitempty"` // its code

	// Of polls only.
	Document *Failure `json:"failure_document,omitempty"`
	Result   *Result  `json:"result,omitempty"`

	// Of polls and rows: its definition.
	DurationMS  *int64 `json:"duration_ms,omitempty"`
	ShouldFail  bool   `json:"should_fail,omitempty"`
	PayloadSize *int64 `json:"payload_size,omitempty"` // of polls only

	// Of rows only.
	RunAt         *time.Time `json:"run_at,omitempty"`
	EventSeq      int        `json:"event_seq,omitempty"`
	Fence         int        `json:"fence,omitempty"`
	LeaseExpiries int        `json:"lease_expiries,omitempty"`
	ResultAttempt int        `json:"result_attempt,omitempty"` // 0: no result
	Keys          int        `json:"keys,omitempty"`           // idempotency keys that lead to it and have not expired
	Held          bool       `json:"held,omitempty"`           // has a worker
	Params        string     `json:"params,omitempty"`         // ParamsDigest of them
	AutoRetry     bool       `json:"auto_retry,omitempty"`
}

// ParamsDigest stands for the params of a job: 16 hexadecimal digits of the
// SHA-256 of their JSON as it was sent, "" if there are none.
func ParamsDigest(params []byte) string {
	if len(params) == 0 {
		return ""
	}
	sum := sha256.Sum256(params)
	return hex.EncodeToString(sum[:8])
}

// Failure is the failure document of a job.
type Failure struct {
	Code       string `json:"code"`
	Job        string `json:"job"`
	Status     string `json:"status"` // jobStatus
	Retryable  bool   `json:"retryable"`
	RetryAfter *int   `json:"retry_after,omitempty"` // seconds
}

// Result describes what a job has produced.
type Result struct {
	Size     int64 `json:"size"`
	Checksum bool  `json:"checksum"` // there is one
}

// Event is an entry of a job's log. A stream shows the end of an attempt as its
// outcome document, which has no Seq and no states.
type Event struct {
	ID       string    `json:"id,omitempty"`
	StreamID string    `json:"stream_id,omitempty"`
	Seq      int       `json:"seq,omitempty"`
	Name     string    `json:"name"`
	Prev     string    `json:"prev,omitempty"`
	Next     string    `json:"next,omitempty"`
	Attempt  int       `json:"attempt"`
	At       time.Time `json:"at,omitzero"`
	Status   string    `json:"status,omitempty"`  // jobStatus of an outcome document
	Emitted  string    `json:"emitted,omitempty"` // of event.emitted: name and data, a space between

	Scenario // of rows the kind only

	// Of reports only: whose event it is.
	Job string `json:"job,omitempty"`
}

// Scenario is what is told of a job's work kind. Members that were not told are zero.
type Scenario struct {
	WorkKind        string `json:"work_kind,omitempty"`
	DurationMS      int64  `json:"duration_ms,omitempty"`
	ExpectedOutcome string `json:"expected_outcome,omitempty"`
}

// Report is the account of one finished attempt.
type Report struct {
	Attempt    int        `json:"attempt"`
	Outcome    string     `json:"outcome"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt time.Time  `json:"finished_at"`
	DurationMS int64      `json:"duration_ms"`
	Failure    string     `json:"failure,omitempty"`   // its code
	EventSeq   int        `json:"event_seq,omitempty"` // rows: the last event that it covers
	Events     []Event    `json:"events,omitempty"`    // API

	// Of the API only: the job it names, and the result of the attempt, where it was
	// read.
	Job         string `json:"job,omitempty"`
	ResultSize  *int   `json:"result_size,omitempty"`  // bytes, after they were verified
	ResultError string `json:"result_error,omitempty"` // why there are none
}

// Delivery is one webhook message: as it came in one try, or as the service reports it.
type Delivery struct {
	ID        string    `json:"id"`
	Webhook   string    `json:"webhook,omitempty"` // id; "" for a callback
	Receiver  string    `json:"receiver,omitempty"`
	URL       string    `json:"url,omitempty"`
	EventID   string    `json:"event_id"`
	EventName string    `json:"event_name"`
	Seq       int       `json:"seq,omitempty"`
	State     string    `json:"state,omitempty"`    // PENDING, DELIVERED, FAILED
	Attempts  int       `json:"attempts,omitempty"` // as the service counts them
	Status    int       `json:"status,omitempty"`   // what was answered; 0: nothing
	Error     string    `json:"error,omitempty"`    // code, as the service reports it
	Tried     time.Time `json:"tried,omitzero"`
	Next      time.Time `json:"next,omitzero"`        // when a PENDING one is to be tried next
	Body      string    `json:"body,omitempty"`       // digest of the bytes
	JobStatus string    `json:"job_status,omitempty"` // of the body, as it came
	Emitted   string    `json:"emitted,omitempty"`    // of event.emitted: as in Event

	// Of Received: what the body and the attribute workkind say, and how late the
	// receiver answers.
	Scenario Scenario      `json:"scenario,omitzero"`
	WorkKind string        `json:"work_kind,omitempty"`
	After    time.Duration `json:"after,omitempty"`

	// Of the API only. Log is there if the delivery was read by itself.
	CreatedAt time.Time   `json:"created_at,omitzero"`
	SettledAt time.Time   `json:"settled_at,omitzero"`
	HasLog    bool        `json:"has_log,omitempty"`
	Log       []LoggedTry `json:"log,omitempty"`
}

// LoggedTry is a try to deliver, as the service tells it.
type LoggedTry struct {
	Number int           `json:"number"`
	Status int           `json:"status"` // 0: no answer
	Took   time.Duration `json:"took"`
}

// Task is an entry of the queue in Redis.
type Task struct {
	Queue   string `json:"queue"`
	ID      string `json:"id"`
	State   string `json:"state"` // pending, active, scheduled, retry, archived, completed
	Attempt int    `json:"attempt,omitempty"`
}
