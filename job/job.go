// Package job contains the domain types of ForgeRun, such as jobs, work kinds, attempts, events and failures. It also defines the errors
// that the other packages return.
//
// It imports only the standard library. It reads no clock and uses no random source; time and random numbers are arguments.
package job

import (
	"encoding/json"
	"fmt"
	"time"
)

// Job is one unit of work with its current state. Times are UTC with microseconds. Times of events that have not happened are nil.
type Job struct {
	ID       ID
	ClientID ID
	Type     Type
	WorkKind Kind
	// Definition is the stored definition, nil if it is missing or damaged. Such a job fails; it never runs with defaults.
	Definition *Definition
	Params     json.RawMessage // the client's parameters, unchanged

	State       State
	Outcome     Outcome // "" until final
	Attempt     int     // number of the current attempt, from 1
	MaxAttempts int
	AutoRetry   bool
	EventSeq    int // seq of the latest event

	CreatedAt   time.Time
	UpdatedAt   time.Time
	ExecutionAt *time.Time // DEFERRED only
	RunAt       time.Time  // earliest start of the attempt
	StartedAt   *time.Time // start of the current attempt
	FinishedAt  *time.Time // end of the current attempt

	Failure *Failure // FAILED only
	Result  *ResultInfo

	// The store does not set Progress and Waiting.
	Progress *Progress     // RUNNING only; nil if unknown
	Waiting  WaitingReason // "" unless the job waits

	Lease ID // lease under which the job is stored, see Lease; zero if there is none

	BatchID       ID         // zero if there is none
	ScheduleID    ID         // zero if there is none
	ScheduledFor  *time.Time // due time of the schedule's run; nil if a client triggered the run
	Callback      string
	CorrelationID string
	TraceParent   string
	Language      string
	RequestID     string
}

// ResultInfo describes a result body.
type ResultInfo struct {
	MediaType string
	Size      int
	SHA256    [32]byte
	ExpiresAt time.Time
	Removed   bool
}

// Expired reports whether the body is no longer available.
func (r *ResultInfo) Expired(now time.Time) bool { return r.Removed || !now.Before(r.ExpiresAt) }

// WaitingReason is the reason why an unclaimed job waits.
type WaitingReason string

// Reasons why a job waits.
const (
	WaitingScheduled   WaitingReason = "SCHEDULED"    // for its execution_at
	WaitingBackoff     WaitingReason = "BACKOFF"      // for the end of the wait between attempts
	WaitingPaused      WaitingReason = "PAUSED"       // for the end of an operator's pause of its kind, its client or everything
	WaitingClientLimit WaitingReason = "CLIENT_LIMIT" // the client already runs its maximum number of jobs
	WaitingNoWorkers   WaitingReason = "NO_WORKERS"   // no worker is alive
	WaitingQueue       WaitingReason = "QUEUE"        // for a free worker
)

// Text returns the reason as a sentence.
func (r WaitingReason) Text() string {
	switch r {
	case WaitingScheduled:
		return "The job's execution_at has not been reached."
	case WaitingBackoff:
		return "An attempt failed, and the next attempt is not due yet."
	case WaitingPaused:
		return "The operator has paused the job's work kind, its client or the whole service."
	case WaitingClientLimit:
		return "The client already runs its maximum number of jobs."
	case WaitingNoWorkers:
		return "The job can run now, but no worker is alive."
	case WaitingQueue:
		return "The job can run now and waits for a free worker."
	}
	return ""
}

// ThrottledUntil is a time that never comes. A QUEUED job has this RunAt while its client is at the limit of running jobs. Afterwards,
// RunAt is the time when the job was queued.
var ThrottledUntil = time.Date(2200, time.January, 1, 0, 0, 0, 0, time.UTC)

// Throttled reports whether j waits until its client runs fewer jobs.
func (j *Job) Throttled() bool { return j.State == Queued && !j.RunAt.Before(ThrottledUntil) }

// WaitingFor returns why j waits at the given time, or "" if it does not wait. `workers` is the number of live workers.
func (j *Job) WaitingFor(now time.Time, workers int) WaitingReason {
	switch {
	case !j.State.Waiting():
		return ""
	case j.State == Created:
		return WaitingScheduled
	case j.Paused():
		return WaitingPaused
	case j.Throttled():
		return WaitingClientLimit
	case j.RunAt.After(now):
		return WaitingBackoff
	case workers == 0:
		return WaitingNoWorkers
	default:
		return WaitingQueue
	}
}

// EstimatedCompletion returns when a RUNNING or CREATED job will probably end: its start plus its duration times `scale`. The start of a
// CREATED job is RunAt. For other states, EstimatedCompletion returns nil.
func (j *Job) EstimatedCompletion(scale float64) *time.Time {
	if j.Definition == nil {
		return nil
	}
	duration := time.Duration(float64(j.Definition.DurationMS) * scale * float64(time.Millisecond))
	var end time.Time
	switch {
	case j.State == Running && j.StartedAt != nil:
		end = j.StartedAt.Add(duration)
	case j.State == Created:
		end = j.RunAt.Add(duration)
	default:
		return nil
	}
	return &end
}

// CanRetry reports whether /retry would queue the job again (API contract, section 11).
func (j *Job) CanRetry() bool { return j.RefusalOfRetry() == nil }

// RefusalOfRetry returns why a job cannot be retried, or nil if it can. A job can be retried if its failure is retryable and it has
// attempts left (job management patterns, retry API).
func (j *Job) RefusalOfRetry() error {
	switch err := j.RefusalOfAnyRetry(); {
	case err != nil:
		return err
	case j.Failure == nil || !j.Failure.Retryable:
		return &Error{Code: CodeConflict, State: j.State, Reason: "NOT_RETRYABLE",
			Detail: "The job's failure is not retryable: another attempt would fail in the same way. Submit a new job after fixing the cause."}
	case j.Attempt >= j.MaxAttempts:
		return &Error{Code: CodeConflict, State: j.State, Reason: "ATTEMPTS_EXHAUSTED",
			Detail: fmt.Sprintf("The job has used all of its %d attempts.", j.MaxAttempts)}
	}
	return nil
}

// RefusalOfAnyRetry returns why even an operator cannot retry a job, or nil.
func (j *Job) RefusalOfAnyRetry() error {
	if j.State != Failed {
		return Errorf(CodeConflict, "The job is %s; only a FAILED job can be retried.", j.State)
	}
	return nil
}

// RefusalOfDelete returns why an unfinished job cannot be deleted.
func RefusalOfDelete(s State) *Error {
	return Errorf(CodeConflict, "The job is %s; only a job that is SUCCEEDED, FAILED or CANCELED can be deleted.", s)
}

// ErrCountsInBatch is returned if a job is deleted before its batch is complete, because the batch's outcome needs the job.
var ErrCountsInBatch = Errorf(CodeConflict, "The job belongs to a batch that is not complete. "+
	"Delete it after the batch completes, or cancel the batch first.")

// CurrentAttempt returns the job's current attempt as an Attempt.
func (j *Job) CurrentAttempt() Attempt {
	return Attempt{
		Number: j.Attempt, State: j.State, Outcome: j.Outcome,
		StartedAt: j.StartedAt, FinishedAt: j.FinishedAt, Failure: j.Failure,
	}
}

// Attempt is one execution of a job. An attempt with a final state never changes.
type Attempt struct {
	Number     int
	State      State
	Outcome    Outcome
	StartedAt  *time.Time // nil if the attempt was canceled before it started
	FinishedAt *time.Time
	Failure    *Failure
}

// Report is the report of one finished attempt (API contract, section 8, get job report).
type Report struct {
	Origin
	Attempt
	Duration time.Duration // whole milliseconds
	Events   []Event       // events from seq 1 to the end of the attempt
}

// Result is the body produced by a successful job.
type Result struct {
	MediaType string
	Body      []byte
	SHA256    [32]byte
}

// StoredResult is a result with its expiry.
type StoredResult struct {
	Result
	ExpiresAt time.Time
}

// Query selects jobs of a client. A field with the zero value matches every job.
type Query struct {
	State         State
	Type          Type
	WorkKind      Kind
	BatchID       ID
	ScheduleID    ID
	CorrelationID string
	CreatedAfter  *time.Time // inclusive
	CreatedBefore *time.Time // exclusive
	After         ID         // the page begins after this job; the list runs from new to old
	Limit         int
}

// Page is a part of a list of jobs. A page may be short although more pages follow, because one call reads a limited number of rows.
type Page struct {
	Jobs []*Job
	Next ID // position of the next page; zero at the end
}

// Submission is an accepted request for a job, ready to be stored.
type Submission struct {
	Job            Job
	IdempotencyKey string   // "" if there is none; scoped to the client
	RequestHash    [32]byte // hash of the canonical request without the idempotency key
	// Committed, if not nil, is called after the commit. It must not block. Within a process, the calls are made in the order of the jobs'
	// created_at. There is no call if an earlier request created the job, or if the outcome of the commit is unknown.
	Committed func(Receipt)
}

// Receipt is the result of a durable submission.
type Receipt struct {
	JobID     ID
	State     State
	CreatedAt time.Time
	Replayed  bool // an earlier request with the same key created the job
}

// Canceling is a cancel of an unfinished job.
type Canceling struct {
	Change Change
	Before *Job // the job before the cancel; only identity, batch, state, start, definition, callback and trace are set
}

// Change is the result of a cancel or a retry, with the current state of the job.
type Change struct {
	JobID     ID
	State     State
	Attempt   int
	UpdatedAt time.Time
	RunAt     time.Time
	Dispatch  int  // part of the id of the job's task in Redis; set only by a cancel
	Changed   bool // false if the request changed nothing, for example because it was repeated
}
