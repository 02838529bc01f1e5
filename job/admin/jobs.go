// Package admin has the forms of the operator API's answers, which storage fills in and the admin listener sends
// as they are. The names of the members are those of the API's document.
package admin

import (
	"encoding/json"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// JobQuery chooses jobs of all clients. Zero fields choose all.
type JobQuery struct {
	ClientID      job.ID
	BatchID       job.ID
	ScheduleID    job.ID
	State         job.State
	Type          job.Type
	WorkKind      job.Kind
	CorrelationID string
	FailureCode   job.Code
	From, To      *time.Time // of created_at: at this moment or later, and before
	After         Place
	Limit         int
}

// Order is how a list of jobs is sorted: by what is asked for, so that an index gives it.
type Order int

// The orders of lists of jobs.
const (
	ByID       Order = iota // the newest first
	ByEnd                   // the last to end first: final states
	ByRunAt                 // the next to run first: QUEUED
	BySchedule              // the next to be queued first: CREATED
	ByHolding               // what workers hold, the newest first
)

// Order says how the answer to q is sorted. Jobs of one client, batch or schedule are in the order of their ids.
func (q JobQuery) Order() Order {
	switch {
	case !q.ClientID.IsZero() || !q.BatchID.IsZero() || !q.ScheduleID.IsZero():
		return ByID
	case q.State.Final() || q.State == "" && q.FailureCode != "":
		return ByEnd
	case q.State == job.Created:
		return BySchedule
	case q.State == job.Queued:
		return ByRunAt
	case q.State != "":
		return ByHolding
	}
	return ByID
}

// Place is where a list goes on: after the job with this id, and in orders by time, this moment. The zero value is
// the beginning.
type Place struct {
	At time.Time
	ID job.ID
}

// IsZero reports whether p is the beginning of a list.
func (p Place) IsZero() bool { return p.ID.IsZero() }

// JobSummary is a job in a list.
type JobSummary struct {
	view.Job
	ClientID    job.ID         `json:"client_id"`
	FailureCode *job.Code      `json:"failure_code"`
	Progress    *view.Progress `json:"progress"` // of the attempt that runs; storage does not know
}

// SummaryOf shows a job that was read in another way.
func SummaryOf(j *job.Job) JobSummary {
	s := JobSummary{Job: view.JobOf(j), ClientID: j.ClientID}
	if j.Failure != nil {
		s.FailureCode = &j.Failure.Code
	}
	return s
}

// JobPage is a part of a list of jobs. It may be short, or empty, before the end.
type JobPage struct {
	Jobs []JobSummary
	Next Place // zero at the end
}

// Job is a job with everything that is stored of it but the body of its result.
type Job struct {
	JobSummary
	AutoRetry      bool            `json:"auto_retry"`
	Callback       *string         `json:"callback"`
	RequestID      string          `json:"request_id"`
	TraceID        *string         `json:"trace_id"`
	TraceURL       *string         `json:"trace_url"` // where it is shown; storage does not know
	QueuedAt       *job.Time       `json:"queued_at"`
	AssignedAt     *job.Time       `json:"assigned_at"`
	RunAt          job.Time        `json:"run_at"`
	WorkerID       *job.ID         `json:"worker_id"`
	Fence          int64           `json:"fence"`
	LeaseExpiries  int             `json:"lease_expiries"`
	Definition     json.RawMessage `json:"definition"`
	Params         json.RawMessage `json:"params"`
	Waiting        *Waiting        `json:"waiting"`
	Failure        *Failure        `json:"failure"`
	Result         *Result         `json:"result"`
	AttemptsLog    []Attempt       `json:"attempts_log"`
	Events         []Event         `json:"events"`
	MoreEvents     bool            `json:"more_events"`
	Deliveries     []Delivery      `json:"deliveries"`
	MoreDeliveries bool            `json:"more_deliveries"`
}

// Failure is how an attempt failed.
type Failure struct {
	Reason    job.Reason `json:"reason"`
	Code      job.Code   `json:"code"`
	Retryable bool       `json:"retryable"`
	Stage     job.Stage  `json:"stage"`
	Detail    string     `json:"detail"`
}

// Waiting says why a job waits.
type Waiting struct {
	Reason job.WaitingReason `json:"reason"`
	Detail string            `json:"detail"`
	Until  *job.Time         `json:"until"`
}

// Result is what is known of a result.
type Result struct {
	MediaType string   `json:"media_type"`
	SizeBytes int      `json:"size_bytes"`
	SHA256    string   `json:"sha256"`
	ExpiresAt job.Time `json:"expires_at"`
}

// Attempt is one that ended.
type Attempt struct {
	Attempt    int         `json:"attempt"`
	Outcome    job.Outcome `json:"outcome"`
	StartedAt  *job.Time   `json:"started_at"`
	FinishedAt job.Time    `json:"finished_at"`
	DurationMS int64       `json:"duration_ms"`
	WorkerID   *job.ID     `json:"worker_id"`
	Failure    *Failure    `json:"failure"`
}

// Event is an entry of a job's log.
type Event struct {
	EventID   job.ID          `json:"event_id"`
	Seq       int             `json:"seq"`
	JobID     job.ID          `json:"job_id"`
	EventName string          `json:"event_name"`
	PrevState *job.State      `json:"prev_state"`
	NextState *job.State      `json:"next_state"`
	Attempt   int             `json:"attempt"`
	Timestamp job.Time        `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}
