package job

import (
	"context"
	"errors"
	"time"
)

// Task says that a job's attempt may be due: "look at job J, attempt N".
// It decides nothing. Dispatch counts how often the attempt returned to QUEUED:
// each time it gets a task with an id of its own.
type Task struct {
	JobID    ID
	Attempt  int
	Dispatch int
	RunAt    time.Time // not before this; zero: at once
	// TraceParent is the span to go on from, as in W3C Trace Context; "" for a
	// job that is not traced.
	TraceParent string

	// For those who look at the queue; a handler gets none of it.
	ClientID ID
	WorkKind Kind
	Reason   Reason // why the attempt before failed; "" for a first attempt
}

// What became of a task that was handled, where nil does not say it all. Any other error says that the infrastructure failed, and
// the task is handled again.

// TaskFailed is of a task whose work was done and failed, and that is recorded: the queue counts it as failed.
type TaskFailed struct {
	Text string
	// Again is after how long it is handled again, by the machine's clock; 0: never, and it is kept for a while with the text.
	Again time.Duration
}

func (e *TaskFailed) Error() string { return e.Text }

// TaskEarly is of a task whose time comes after Wait, by the machine's clock: it is handled again then, and is not counted now.
type TaskEarly struct{ Wait time.Duration }

func (e *TaskEarly) Error() string { return "the task's time has not come" }

// ErrTaskStale is of a task with which there is nothing to do any more: it is forgotten.
var ErrTaskStale = errors.New("there is nothing to do for the task any more")

// DeliveryTask says that a delivery may be due: "look at delivery D". It decides nothing.
type DeliveryTask struct {
	ID       ID
	ClientID ID
	Endpoint ID
	At       time.Time // not before this; zero: at once
}

// ClaimID names one claim of one attempt. Every write of the holder carries it;
// the fence rises with each claim, so an old holder's writes change nothing.
type ClaimID struct {
	JobID   ID
	Attempt int
	Fence   int64
}

// Claim is a job that a worker holds.
type Claim struct {
	ClaimID
	Job        Job
	QueuedAt   time.Time // when it entered QUEUED; Job.UpdatedAt is when it left it
	WasCreated bool      // the claim came before the scheduler, and passed QUEUED on its way
}

// NotClaimed says why a claim got no row.
type NotClaimed struct {
	// StillWaiting: the attempt waits, but not yet for this long (an early
	// task or a skewed clock). Otherwise the task is stale and is dropped.
	StillWaiting bool
	Wait         time.Duration
	// Throttled: its client holds as many jobs as one may. The task is dropped; there
	// will be another one.
	Throttled bool
	// Paused: its kind or client is, and it was put aside. The task is dropped; there will be another one.
	Paused bool
	// Stopped: everything is paused, or this worker is drained.
	Stopped bool
	// WorkerDead: the claiming worker's own lease has ended.
	WorkerDead bool
	// Unknown: there is no such job.
	Unknown bool
}

// Held is a job that storage says a worker holds.
type Held struct {
	ClaimID
	ClientID      ID
	RequestID     string
	CorrelationID string
	TraceParent   string
	State         State
	WorkKind      Kind
	MaxAttempts   int
	AutoRetry     bool
	Retry         *RetryPolicy // nil: as the service is set
	LeaseExpiries int          // how often a holder's lease ended before the job ran
}

// Finish is the end of an attempt: SUCCEEDED with a result, or FAILED with a
// failure.
type Finish struct {
	ClaimID
	State   State
	Failure *Failure
	Result  *Result
	// RetryWait, when not nil, queues the next attempt in the same commit
	// (auto_retry), to run after that time.
	RetryWait *time.Duration
	// Exhausted adds job.retries_exhausted: the last attempt failed.
	Exhausted bool
	// Emit adds event.emitted before the final event.
	Emit *Emission
	// EndedAt is when the work ended by the clock of a test bed, which may have jumped since; nil: now. Other clocks
	// take no notice of it.
	EndedAt *time.Time
}

// Finished is what a Finish did.
type Finished struct {
	ClaimID
	ClientID ID
	BatchID  ID    // zero for none
	State    State // SUCCEEDED, FAILED, or QUEUED after an automatic retry
	WorkKind Kind
	Duration time.Duration // of the attempt
	Next     *Task         // the automatic retry's task
	// Resumed are the tasks of throttled jobs for which this and others' ends made room.
	Resumed []Task
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

// AttemptClock is the time that an attempt lives by.
type AttemptClock interface {
	Now() time.Time
	// WaitUntil returns when t has come, or with an error when the attempt is to end before: of ctx, or of its own.
	WaitUntil(ctx context.Context, t time.Time) error
	// Start is when the attempt began.
	Start() time.Time
}

// Observer receives events while work is done. Each function may be nil.
type Observer struct {
	Clock    AttemptClock // nil: this machine's, from the call on
	Progress func(Progress)
	// Emit records an event; before is how many the attempt has emitted. An error
	// ends the work.
	Emit func(before int, e Emission) error
}

// QueueCursor is a position in the order of waiting jobs.
type QueueCursor struct {
	RunAt time.Time
	JobID ID
}

// Cursor is the position of a task's job.
func (t Task) Cursor() QueueCursor { return QueueCursor{RunAt: t.RunAt, JobID: t.JobID} }

// Load is how much there is to do.
type Load struct {
	Active int // jobs that are not final
	Queued int // of these, jobs in QUEUED
}

// Plus adds another load, or with sign -1 takes it away.
func (l Load) Plus(other Load, sign int) Load {
	return Load{Active: l.Active + sign*other.Active, Queued: l.Queued + sign*other.Queued}
}

// Min returns the smaller number of each.
func (l Load) Min(other Load) Load {
	return Load{Active: min(l.Active, other.Active), Queued: min(l.Queued, other.Queued)}
}

// Max returns the greater number of each.
func (l Load) Max(other Load) Load {
	return Load{Active: max(l.Active, other.Active), Queued: max(l.Queued, other.Queued)}
}

// Within reports whether neither number exceeds the other's.
func (l Load) Within(other Load) bool { return l.Active <= other.Active && l.Queued <= other.Queued }

// Fail ends the held attempt as FAILED. With auto_retry a retryable failure
// queues the next attempt in the same commit, after the backoff; random, from 0
// to 1, is its jitter.
func (h Held) Fail(reason Reason, b Backoff, random float64) Finish {
	b = h.Retry.backoff(b)
	return h.end(NewFailure(reason, h.Attempt, b), b.Wait(h.Attempt, random))
}

// end ends the held attempt with a failure; wait is that before an automatic retry.
func (h Held) end(failure *Failure, wait time.Duration) Finish {
	f := Finish{ClaimID: h.ClaimID, State: Failed, Failure: failure, Exhausted: h.Attempt >= h.MaxAttempts}
	if h.AutoRetry && failure.Retryable && !f.Exhausted && h.Retry.retries(failure.Code) {
		f.RetryWait = &wait
	}
	return f
}

// Notification says that the attempt has ended, with whatever was committed
// with its end.
func (f Finished) Notification() Notification {
	return Notification{ClientID: f.ClientID, JobID: f.JobID, Attempt: f.Attempt, Ended: true}
}

// Backlog is what there is to do in the whole system and who is there to do it,
// counted at one moment (section 16).
type Backlog struct {
	// Jobs by state, those that are not final. No state is counted beyond the
	// limit that the count was given.
	Jobs map[State]int
	// OldestDue is for how long the job that waits longest could have run: its
	// time has come and no worker has taken it. 0 if none waits.
	OldestDue time.Duration

	Workers int // whose lease has not ended
	Slots   int // jobs that these can hold at once

	Deliveries       int           // pending, up to the limit
	OldestDelivery   time.Duration // for how long the longest waiting one has been due; 0 if none is
	DisabledWebhooks int           // disabled by the server, up to the limit
}
