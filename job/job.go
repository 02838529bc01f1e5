// Package job is the domain of ForgeRun: states and the one transition table,
// the work-kind catalogue as data, definitions made from a seed, attempts and
// backoff, events, failures, outcome documents, and the errors that every
// other package speaks in.
//
// It imports the standard library alone, reads no clock and draws no
// randomness: time and random numbers come in as arguments. Nothing that
// knows a database, a queue or HTTP will ever live here.
package job

import (
	"encoding/json"
	"fmt"
	"time"
)

// Job is one unit of work and everything that is known of it now. Times are
// UTC with microseconds; pointers are nil for what has not happened.
type Job struct {
	ID       ID
	ClientID ID
	Type     Type
	WorkKind Kind
	// Definition is the stored definition, nil when it is missing or cannot be
	// read: such a job fails, it never runs on defaults.
	Definition *Definition
	Params     json.RawMessage // the client's own parameters, kept as sent

	State       State
	Outcome     Outcome // "" until final
	Attempt     int     // from 1
	MaxAttempts int
	AutoRetry   bool
	EventSeq    int // seq of the latest event

	CreatedAt   time.Time
	UpdatedAt   time.Time
	ExecutionAt *time.Time // DEFERRED only
	RunAt       time.Time  // not before this
	StartedAt   *time.Time // of the current attempt
	FinishedAt  *time.Time // of the current attempt

	Failure *Failure // FAILED only
	Result  *ResultInfo

	// What the use case adds to what is stored.
	Progress *Progress     // RUNNING only; nil if it is not known
	Waiting  WaitingReason // "" unless the job waits

	Lease ID // of headroom, for a job that is about to be stored; zero for none

	BatchID       ID         // zero for none
	ScheduleID    ID         // zero for none
	ScheduledFor  *time.Time // the due time of its schedule that it stands for; nil of one that was triggered
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
	Removed   bool // the body is not stored any more
}

// Expired reports whether the body cannot be had any more.
func (r *ResultInfo) Expired(now time.Time) bool { return r.Removed || !now.Before(r.ExpiresAt) }

// WaitingReason says what a job that has not been claimed waits for.
type WaitingReason string

// The reasons to wait.
const (
	WaitingScheduled   WaitingReason = "SCHEDULED"    // for its execution_at
	WaitingBackoff     WaitingReason = "BACKOFF"      // for the end of the wait between attempts
	WaitingPaused      WaitingReason = "PAUSED"       // for an operator, who has stopped its kind, its client or everything
	WaitingClientLimit WaitingReason = "CLIENT_LIMIT" // for the end of another job of its client
	WaitingNoWorkers   WaitingReason = "NO_WORKERS"   // no worker is alive
	WaitingQueue       WaitingReason = "QUEUE"        // for a free worker
)

// Text says the reason in a sentence.
func (r WaitingReason) Text() string {
	switch r {
	case WaitingScheduled:
		return "Its execution_at has not come."
	case WaitingBackoff:
		return "An attempt failed, and the wait before the next one is not over."
	case WaitingPaused:
		return "The operator has paused its work kind, its client or the whole service."
	case WaitingClientLimit:
		return "Its client runs as many jobs as it may at once."
	case WaitingNoWorkers:
		return "It may run now, but no worker is alive."
	case WaitingQueue:
		return "It may run now, and waits for a free worker."
	}
	return ""
}

// ThrottledUntil is the RunAt of QUEUED jobs whose client runs as many as one may at
// once: a time that does not come. They get their old one back when there is room.
var ThrottledUntil = time.Date(2200, time.January, 1, 0, 0, 0, 0, time.UTC)

// Throttled reports whether j waits until its client runs fewer jobs.
func (j *Job) Throttled() bool { return j.State == Queued && !j.RunAt.Before(ThrottledUntil) }

// WaitingFor gives the reason for which j waits at the given moment, and ""
// when it does not. workers is the number of live workers.
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

// EstimatedCompletion is when the job may be expected to end, if no more than
// its own duration stands between: nil unless it runs or waits for its time.
// scale multiplies the duration.
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

// CanRetry reports whether /retry would queue the job again (section 11).
func (j *Job) CanRetry() bool { return j.RefusalOfRetry() == nil }

// RefusalOfRetry says why a final job cannot be retried; nil if it can be. Only a
// failure that another attempt may mend is worth one (job management patterns,
// retry API).
func (j *Job) RefusalOfRetry() error {
	switch err := j.RefusalOfAnyRetry(); {
	case err != nil:
		return err
	case j.Failure == nil || !j.Failure.Retryable:
		return &Error{Code: CodeConflict, State: j.State, Reason: "NOT_RETRYABLE",
			Detail: "The job's failure is not retryable: another attempt would end in the same way. Submit a new job if the cause is mended."}
	case j.Attempt >= j.MaxAttempts:
		return &Error{Code: CodeConflict, State: j.State, Reason: "ATTEMPTS_EXHAUSTED",
			Detail: fmt.Sprintf("The job has used all of its %d attempts.", j.MaxAttempts)}
	}
	return nil
}

// RefusalOfAnyRetry returns why a job cannot be retried even by an operator who overrides RefusalOfRetry; nil if it can be.
func (j *Job) RefusalOfAnyRetry() error {
	if j.State != Failed {
		return Errorf(CodeConflict, "The job is %s; only a FAILED job can be retried.", j.State)
	}
	return nil
}

// RefusalOfDelete says why a job that is not final cannot be deleted.
func RefusalOfDelete(s State) *Error {
	return Errorf(CodeConflict, "The job is %s; only a job that is SUCCEEDED, FAILED or CANCELED can be deleted.", s)
}

// ErrCountsInBatch says why a final job of an open batch cannot be deleted.
var ErrCountsInBatch = Errorf(CodeConflict, "The job belongs to a batch that is not complete. "+
	"Delete it once the batch is, or cancel the batch first.")

// CurrentAttempt gives the job's current attempt as an Attempt.
func (j *Job) CurrentAttempt() Attempt {
	return Attempt{
		Number: j.Attempt, State: j.State, Outcome: j.Outcome,
		StartedAt: j.StartedAt, FinishedAt: j.FinishedAt, Failure: j.Failure,
	}
}

// Attempt is one execution of a job. Once its state is final it never changes.
type Attempt struct {
	Number     int
	State      State
	Outcome    Outcome
	StartedAt  *time.Time // nil when it was canceled before it ran
	FinishedAt *time.Time
	Failure    *Failure
}

// Report is the account of one finished attempt (section 8, get job report).
type Report struct {
	Origin
	Attempt
	Duration time.Duration // whole milliseconds
	Events   []Event       // from seq 1 to the attempt's end
}

// Result is the body that a successful job produced.
type Result struct {
	MediaType string
	Body      []byte
	SHA256    [32]byte
}

// StoredResult is a result with the time until which it can be had.
type StoredResult struct {
	Result
	ExpiresAt time.Time
}

// Query chooses jobs of a client. Zero fields choose all.
type Query struct {
	State         State
	Type          Type
	WorkKind      Kind
	BatchID       ID
	ScheduleID    ID
	CorrelationID string
	CreatedAfter  *time.Time // at this moment or later
	CreatedBefore *time.Time // before this moment
	After         ID         // go on after this job; the list runs from new to old
	Limit         int
}

// Page is a part of a list of jobs. It may be short before the end: what a
// filter costs is bounded.
type Page struct {
	Jobs []*Job
	Next ID // where to go on; zero at the end
}

// Submission is an accepted request for a job, ready to be stored.
type Submission struct {
	Job            Job
	IdempotencyKey string   // "" for none; scoped to the client
	RequestHash    [32]byte // of the canonical request without the key
	// Committed, unless nil, is called once the job is durable, in the order of
	// created_at of all jobs of the process; it must not block. It is not called for
	// a replay, nor for a commit whose outcome is unknown.
	Committed func(Receipt)
}

// Receipt is the durable answer to a submission.
type Receipt struct {
	JobID     ID
	State     State
	CreatedAt time.Time
	Replayed  bool // an earlier request with the same key made the job
}

// Canceling is the cancel of a job that was not final.
type Canceling struct {
	Change Change
	Before *Job // its identity, batch, state, start, definition, callback and trace, not more
}

// Change is the answer to a cancel or a retry: the job as it is now.
type Change struct {
	JobID     ID
	State     State
	Attempt   int
	UpdatedAt time.Time
	RunAt     time.Time
	Dispatch  int  // of a canceled job: that of its task
	Changed   bool // false: repeated or pointless, nothing was written
}
