package job

import (
	"encoding/json"
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

	Callback      string
	CorrelationID string
	TraceParent   string
	Language      string
	RequestID     string
}

// ResultInfo describes a stored result body.
type ResultInfo struct {
	MediaType string
	Size      int
	SHA256    [32]byte
	ExpiresAt time.Time
}

// CanRetry reports whether /retry would queue the job again (section 11).
func (j *Job) CanRetry() bool { return j.State == Failed && j.Attempt < j.MaxAttempts }

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
	JobID ID
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

// Client is an initiator of jobs.
type Client struct {
	ID        ID
	CreatedAt time.Time
}

// Submission is an accepted request for a job, ready to be stored.
type Submission struct {
	Job            Job
	IdempotencyKey string   // "" for none; scoped to the client
	RequestHash    [32]byte // of the canonical request without the key
}

// Receipt is the durable answer to a submission.
type Receipt struct {
	JobID     ID
	State     State
	CreatedAt time.Time
	Replayed  bool // an earlier request with the same key made the job
}

// Change is the answer to a cancel or a retry: the job as it is now.
type Change struct {
	JobID     ID
	State     State
	Attempt   int
	UpdatedAt time.Time
	RunAt     time.Time
	Changed   bool // false: repeated or pointless, nothing was written
}
