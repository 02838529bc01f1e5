package client

import (
	"encoding/json"
	"time"
)

// The types of jobs.
const (
	Execute   = "EXECUTE"    // runs as soon as possible
	Deferred  = "DEFERRED"   // runs at ExecutionAt
	EmitEvent = "EMIT_EVENT" // publishes Event
)

// The states of a job. There may be others one day: a state that is not known
// here is not final.
const (
	Created   = "CREATED"
	Queued    = "QUEUED"
	Assigned  = "ASSIGNED"
	Running   = "RUNNING"
	Succeeded = "SUCCEEDED"
	Failed    = "FAILED"
	Canceled  = "CANCELED"
)

// JobRequest is a job to be submitted.
type JobRequest struct {
	ItemID        string    `json:"item_id,omitempty"` // of a batch item only
	Type          string    `json:"type"`
	WorkKind      string    `json:"work_kind,omitempty"`   // "": one is drawn
	ExecutionAt   time.Time `json:"execution_at,omitzero"` // Deferred only, and required there
	Callback      string    `json:"callback,omitempty"`
	Params        any       `json:"params,omitempty"` // what becomes a JSON object
	AutoRetry     bool      `json:"auto_retry,omitempty"`
	Event         *Emission `json:"event,omitempty"` // EmitEvent only
	CorrelationID string    `json:"correlation_id,omitempty"`
}

// Emission is an event of the client's own.
type Emission struct {
	Name string          `json:"name"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Accepted tells of a submitted job.
type Accepted struct {
	JobID     string    `json:"job_id"`
	State     string    `json:"state"`
	CreatedAt time.Time `json:"created_at"`
	// Status is 202, or 200 if the job ended while the request waited
	// (PreferWait).
	Status    int    `json:"-"`
	Job       *Job   `json:"-"` // with 200
	Replayed  bool   `json:"-"` // this idempotency key was used before
	RequestID string `json:"-"`
	Location  string `json:"-"` // of the job
}

// Job is a job as the service shows it. What is absent or null is zero; lists
// leave out what is after ItemID.
type Job struct {
	JobID         string    `json:"job_id"`
	Type          string    `json:"type"`
	WorkKind      string    `json:"work_kind"`
	State         string    `json:"state"`
	Outcome       string    `json:"outcome"` // "" until the job is final
	CreatedAt     time.Time `json:"created_at"`
	ExecutionAt   time.Time `json:"execution_at"`
	UpdatedAt     time.Time `json:"updated_at"`
	StartedAt     time.Time `json:"started_at"`
	FinishedAt    time.Time `json:"finished_at"`
	CanceledAt    time.Time `json:"canceled_at"`
	Attempt       int       `json:"attempt"`
	Attempts      int       `json:"attempts"`
	MaxAttempts   int       `json:"max_attempts"`
	CanRetry      bool      `json:"can_retry"`
	BatchID       string    `json:"batch_id"`
	CorrelationID string    `json:"correlation_id"`
	ItemID        string    `json:"item_id"` // in a batch's list

	AutoRetry           bool              `json:"auto_retry"`
	Callback            string            `json:"callback"`
	Definition          *Definition       `json:"definition"`
	Params              json.RawMessage   `json:"params"`
	Waiting             *Waiting          `json:"waiting"`
	Progress            *Progress         `json:"progress"`
	EstimatedCompletion time.Time         `json:"estimated_completion"`
	ExpiresAt           time.Time         `json:"expires_at"`
	Failure             *Outcome          `json:"failure"` // FAILED only
	Result              *ResultInfo       `json:"result"`  // SUCCEEDED only
	Links               map[string]string `json:"links"`

	ETag string `json:"-"`
	// RetryAfter is the header: while the job is not final, when to look again;
	// of a failure that may pass, when to resubmit. 0 for none.
	RetryAfter time.Duration `json:"-"`
	RequestID  string        `json:"-"`
}

// Final reports whether the job has ended. A state that is not known has not.
func (j *Job) Final() bool { return j.State == Succeeded || j.State == Failed || j.State == Canceled }

// Definition is what a job does.
type Definition struct {
	WorkKind        string `json:"work_kind"`
	DurationMS      int64  `json:"duration_ms"`
	ShouldFail      bool   `json:"should_fail"`
	PayloadSize     int64  `json:"payload_size"`
	ExpectedOutcome string `json:"expected_outcome"`
}

// Waiting says why a job waits: SCHEDULED, BACKOFF, NO_WORKERS or QUEUE, and
// for the first two until when.
type Waiting struct {
	Reason string    `json:"reason"`
	Until  time.Time `json:"until"`
}

// Progress is how far a running job has come.
type Progress struct {
	Percentage     int       `json:"percentage"`
	Phase          string    `json:"phase"`
	StepsCompleted int       `json:"steps_completed"`
	StepsTotal     int       `json:"steps_total"`
	ItemsProcessed int       `json:"items_processed"`
	ItemsTotal     int       `json:"items_total"`
	UpdatedAt      time.Time `json:"updated_at"`
}

// ResultInfo describes a job's result: State is AVAILABLE, or EXPIRED with
// ExpiredAt alone.
type ResultInfo struct {
	State       string    `json:"state"`
	MediaType   string    `json:"media_type"`
	SizeBytes   int64     `json:"size_bytes"`
	Checksum    Checksum  `json:"checksum"`
	ExpiresAt   time.Time `json:"expires_at"`
	ExpiredAt   time.Time `json:"expired_at"`
	DownloadURL string    `json:"download_url"`
}

// Checksum is the hash of a result, in hexadecimal digits.
type Checksum struct {
	Algorithm string `json:"algorithm"` // sha256
	Value     string `json:"value"`
}

// Changed is a job's state after Cancel or Retry.
type Changed struct {
	JobID     string    `json:"job_id"`
	State     string    `json:"state"`
	UpdatedAt time.Time `json:"updated_at"`
	Attempt   int       `json:"attempt"` // of Retry only
	RequestID string    `json:"-"`
}

// JobFilter selects jobs; zero members do not filter.
type JobFilter struct {
	State, Type, WorkKind, BatchID string
	CreatedAfter                   time.Time // inclusive
	CreatedBefore                  time.Time // exclusive
	PageSize                       int       // of one request, up to 100; 0: the service's default
}

// Attempt is one run of a job.
type Attempt struct {
	Attempt    int       `json:"attempt"`
	State      string    `json:"state"`
	Outcome    string    `json:"outcome"` // "" until it has ended
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
	DurationMS int64     `json:"duration_ms"`
	Failure    *Outcome  `json:"failure"`
}

// Report is what is known of an attempt that has ended.
type Report struct {
	JobID      string    `json:"job_id"`
	Attempt    int       `json:"attempt"`
	Outcome    string    `json:"outcome"`
	StartedAt  time.Time `json:"started_at"` // zero if it never ran
	FinishedAt time.Time `json:"finished_at"`
	DurationMS int64     `json:"duration_ms"`
	Failure    *Outcome  `json:"failure"`
	Events     []Event   `json:"events"` // from the job's beginning to the attempt's end
	RequestID  string    `json:"-"`
}

// Event is an entry of a job's log, or of a batch's or webhook's, which has no
// Seq.
type Event struct {
	EventID   string          `json:"event_id"`
	Seq       int             `json:"seq"` // from 1, without gaps in a job's log
	JobID     string          `json:"job_id"`
	BatchID   string          `json:"batch_id"`
	WebhookID string          `json:"webhook_id"`
	Name      string          `json:"event_name"`
	PrevState string          `json:"prev_state"`
	NextState string          `json:"next_state"`
	Attempt   int             `json:"attempt"`
	Timestamp time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

// Result is the bytes that a job has produced.
type Result struct {
	ContentType string
	Data        []byte // as the service's digest says they are
	ETag        string
	RequestID   string
}
