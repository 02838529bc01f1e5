package job

import (
	"context"
	"errors"
	"time"
)

// Task tells a worker to check whether an attempt of a job is due. The database decides whether the attempt may start. Dispatch counts
// how often the attempt was queued again, for example after a pause. Dispatch is part of the task's id, so a task that was queued again
// has a new id.
type Task struct {
	JobID    ID
	Attempt  int
	Dispatch int
	RunAt    time.Time // earliest time of the attempt; zero means immediately
	// TraceParent is the parent span, as in W3C Trace Context; "" for an untraced job.
	TraceParent string

	// Tools that list the queue's tasks show ClientID, WorkKind and Reason. Handlers do not get these three fields.
	ClientID ID
	WorkKind Kind
	Reason   Reason // failure of the previous attempt; "" for a first attempt
}

// Handlers of tasks return TaskFailed, TaskEarly or ErrTaskStale. Any other error means that the infrastructure failed. The queue then
// repeats the task.

// TaskFailed reports a failed attempt or delivery. The failure is already stored. The queue counts the task as failed.
type TaskFailed struct {
	Text string
	// Again is the wait in real time before the queue repeats the task. If Again is 0, the queue archives the task with Text.
	Again time.Duration
}

func (e *TaskFailed) Error() string { return e.Text }

// TaskEarly reports a task that is not due yet. The queue repeats the task after Wait, in real time. This is not a failure.
type TaskEarly struct{ Wait time.Duration }

func (e *TaskEarly) Error() string { return "the task is not due yet" }

// ErrTaskStale reports that there is nothing to do for a task. The queue drops the task.
var ErrTaskStale = errors.New("the task has nothing left to do")

// DeliveryTask tells a deliverer to check whether a delivery is due. The database decides whether it is sent.
type DeliveryTask struct {
	ID       ID
	ClientID ID
	Endpoint ID
	At       time.Time // earliest time of the delivery; zero means immediately
}

// ClaimID identifies one claim of an attempt. The worker sends it with every write. Fence increases with each claim, so writes with an
// older fence have no effect.
type ClaimID struct {
	JobID   ID
	Attempt int
	Fence   int64
}

// Claim is a job that a worker has claimed and not finished.
type Claim struct {
	ClaimID
	Job        Job
	QueuedAt   time.Time // when the job entered QUEUED
	WasCreated bool      // the job was CREATED, so the claim also stored the job's change to QUEUED
}

// NotClaimed is the reason why a claim got no job. If no member is set, the task is stale and is dropped.
type NotClaimed struct {
	// StillWaiting is set if the attempt is not due yet, because of an early task or a skewed clock.
	StillWaiting bool
	Wait         time.Duration
	// Throttled is set if the client is at its limit of ASSIGNED and RUNNING jobs. The task is dropped. The job gets a new task when it may
	// run.
	Throttled bool
	// Paused is set if the job's kind or client is paused. The task is dropped. The job gets a new task when it may run.
	Paused bool
	// Stopped is set if everything is paused, or an operator has drained this worker.
	Stopped bool
	// WorkerDead is set if the worker's lease has ended.
	WorkerDead bool
	// Unknown is set if the job does not exist.
	Unknown bool
}

// Held is the state of a claimed, unfinished job in the database.
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
	Retry         *RetryPolicy // nil: the service's setting
	LeaseExpiries int          // number of workers that claimed the job and lost their lease before they started it
}

// Finish is the end of an attempt: SUCCEEDED with a result, or FAILED with a failure.
type Finish struct {
	ClaimID
	State   State
	Failure *Failure
	Result  *Result
	// If RetryWait is not nil, the commit that ends the attempt also queues the next attempt (auto_retry). The next attempt runs after this
	// wait.
	RetryWait *time.Duration
	// Exhausted is set if the last allowed attempt failed. The store then adds the event job.retries_exhausted.
	Exhausted bool
	// If Emit is set, the store adds the event event.emitted before the final event.
	Emit *Emission
	// EndedAt is the end of the work by a test bed's clock; nil means now. The clock may jump between the end of the work and the write to
	// the store. Without a test bed, EndedAt is ignored.
	EndedAt *time.Time
}

// Finished is what the store returns for a Finish.
type Finished struct {
	ClaimID
	ClientID ID
	BatchID  ID    // zero if there is none
	State    State // SUCCEEDED, FAILED, or QUEUED after an automatic retry
	WorkKind Kind
	Duration time.Duration
	Next     *Task // task of the automatic retry
	// Resumed are tasks of other jobs of the client. These jobs were throttled, and may run now.
	Resumed []Task
}

// Progress is the progress of a running job.
type Progress struct {
	Percentage     int    `json:"percentage"`
	Phase          string `json:"phase"`
	StepsCompleted int    `json:"steps_completed"`
	StepsTotal     int    `json:"steps_total"`
	ItemsProcessed int    `json:"items_processed"`
	ItemsTotal     int    `json:"items_total"`
	UpdatedAt      Time   `json:"updated_at"`
}

// AttemptClock is the clock of an attempt.
type AttemptClock interface {
	Now() time.Time
	// WaitUntil waits for t. If ctx or the attempt ends first, it returns an error.
	WaitUntil(ctx context.Context, t time.Time) error
	// Start returns the time at which the attempt began.
	Start() time.Time
}

// Observer receives progress and events of running work. Every field may be nil.
type Observer struct {
	Clock    AttemptClock // nil: this machine's clock, and the attempt begins now
	Progress func(Progress)
	// Emit records an event. The parameter `before` is the number of events that the attempt has already emitted. An error ends the work.
	Emit func(before int, e Emission) error
}

// QueueCursor is a position in the order of waiting jobs.
type QueueCursor struct {
	RunAt time.Time
	JobID ID
}

// Cursor returns the position of a task's job.
func (t Task) Cursor() QueueCursor { return QueueCursor{RunAt: t.RunAt, JobID: t.JobID} }

// Load counts unfinished jobs.
type Load struct {
	Active int
	Queued int // included in Active
}

// Plus returns l plus other, or l minus other if `sign` is -1.
func (l Load) Plus(other Load, sign int) Load {
	return Load{Active: l.Active + sign*other.Active, Queued: l.Queued + sign*other.Queued}
}

// Min returns the minimum of each number.
func (l Load) Min(other Load) Load {
	return Load{Active: min(l.Active, other.Active), Queued: min(l.Queued, other.Queued)}
}

// Max returns the maximum of each number.
func (l Load) Max(other Load) Load {
	return Load{Active: max(l.Active, other.Active), Queued: max(l.Queued, other.Queued)}
}

// Within reports whether neither number of l is above the same number of `other`.
func (l Load) Within(other Load) bool { return l.Active <= other.Active && l.Queued <= other.Queued }

// Fail ends the attempt as FAILED. If the job has auto_retry and the failure is retryable, the commit that stores the failure also queues
// the next attempt. The next attempt runs after the backoff. The parameter `random`, from 0 to 1, determines the jitter.
func (h Held) Fail(reason Reason, b Backoff, random float64) Finish {
	b = h.Retry.backoff(b)
	return h.end(NewFailure(reason, h.Attempt, b), b.Wait(h.Attempt, random))
}

func (h Held) end(failure *Failure, wait time.Duration) Finish {
	f := Finish{ClaimID: h.ClaimID, State: Failed, Failure: failure, Exhausted: h.Attempt >= h.MaxAttempts}
	if h.AutoRetry && failure.Retryable && !f.Exhausted && h.Retry.retries(failure.Code) {
		f.RetryWait = &wait
	}
	return f
}

// Notification returns the notification of the attempt's end.
func (f Finished) Notification() Notification {
	return Notification{ClientID: f.ClientID, JobID: f.JobID, Attempt: f.Attempt, Ended: true}
}

// Backlog counts the unfinished work and the workers of the whole system at one moment (API contract, section 16).
type Backlog struct {
	// Jobs is the number of unfinished jobs in each state. Counting stops at a limit.
	Jobs map[State]int
	// OldestDue is how long the oldest waiting job has been due, or 0 if no job waits.
	OldestDue time.Duration

	Workers int // workers with a valid lease
	Slots   int // number of jobs that these workers can run at the same time

	Deliveries       int           // number of pending deliveries, up to a limit
	OldestDelivery   time.Duration // how long the oldest waiting delivery has been due; 0 if none is due
	DisabledWebhooks int           // number of webhooks that the server disabled, up to a limit
}
