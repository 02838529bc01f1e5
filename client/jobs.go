package client

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"net/http"
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
	ItemID      string    `json:"item_id,omitempty"` // of a batch item only
	Type        string    `json:"type"`
	WorkKind    string    `json:"work_kind,omitempty"`   // KindSuccessFast, ...; "": one is drawn
	ExecutionAt time.Time `json:"execution_at,omitzero"` // Deferred only, and required there
	Callback    string    `json:"callback,omitempty"`
	Params      any       `json:"params,omitempty"` // what becomes a JSON object; of KindCustom, CustomParams
	AutoRetry   bool      `json:"auto_retry,omitempty"`
	// Retry says how often the job is tried, and when; nil: as the service is set. With it the service retries by itself.
	Retry         *RetryPolicy `json:"retry,omitempty"`
	Event         *Emission    `json:"event,omitempty"` // EmitEvent only
	CorrelationID string       `json:"correlation_id,omitempty"`
}

// RetryPolicy is what a request says about the attempts of its job; what it leaves out is as the service is set.
type RetryPolicy struct {
	MaxAttempts int      `json:"max_attempts,omitempty"` // the first one included; at most 1 + FORGERUN_MAX_RETRIES of the service
	Backoff     *Backoff `json:"backoff,omitempty"`
	Codes       []string `json:"codes,omitempty"` // of failures that the service retries by itself; none: all that are retryable
}

// Backoff is how long a job waits between attempts; see ExponentialBackoff, ConstantBackoff and ListedBackoff.
type Backoff struct {
	Strategy string   `json:"strategy"`
	Base     string   `json:"base,omitempty"`
	Max      string   `json:"max,omitempty"`
	Delay    string   `json:"delay,omitempty"`
	Delays   []string `json:"delays,omitempty"`
}

// ExponentialBackoff doubles the wait each time, from base to most, with full jitter.
func ExponentialBackoff(base, most time.Duration) *Backoff {
	return &Backoff{Strategy: "EXPONENTIAL", Base: base.String(), Max: most.String()}
}

// ConstantBackoff waits for as long each time, without jitter.
func ConstantBackoff(delay time.Duration) *Backoff {
	return &Backoff{Strategy: "CONSTANT", Delay: delay.String()}
}

// ListedBackoff has one wait after the other, and the last one from then on, without jitter.
func ListedBackoff(delays ...time.Duration) *Backoff {
	b := &Backoff{Strategy: "LIST"}
	for _, d := range delays {
		b.Delays = append(b.Delays, d.String())
	}
	return b
}

// Emission is an event of the client's own.
type Emission struct {
	Name string          `json:"name"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Accepted is the answer to a submitted job.
type Accepted struct {
	JobID     string    `json:"job_id"`
	State     string    `json:"state"`
	CreatedAt time.Time `json:"created_at"`
	// Warnings say what of the request was accepted and changes nothing, such as
	// params that the work kind ignores.
	Warnings []Violation `json:"warnings"`
	Job      *Job        `json:"-"` // if it ended while the request waited (PreferWait); Status is 200 then, and else 202
	Meta     `json:"-"`
}

// Submit submits a job: when it returns without an error the job is stored,
// and runs whatever happens to the service. A request whose answer is lost is
// sent again with the same idempotency key, so that there is one job.
func (c *Client) Submit(ctx context.Context, request JobRequest, options ...Option) (*Accepted, error) {
	r := post(options, "jobs").with(request).keyed()
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusOK {
		return decoded[Accepted](r, a)
	}
	job, err := c.readJob(ctx, r, a)
	if err != nil {
		return nil, err
	}
	return &Accepted{JobID: job.JobID, State: job.State, CreatedAt: job.CreatedAt, Warnings: job.Warnings, Job: job, Meta: job.Meta}, nil
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
	CanRetry      bool      `json:"can_retry"` // Retry would be accepted: attempts are left, and Failure is retryable
	BatchID       string    `json:"batch_id"`
	CorrelationID string    `json:"correlation_id"`
	ScheduleID    string    `json:"schedule_id"`   // "" unless it is a run of a schedule
	ScheduledFor  time.Time `json:"scheduled_for"` // the due time that it stands for; zero if it was triggered
	ItemID        string    `json:"item_id"`       // in a batch's list

	AutoRetry           bool              `json:"auto_retry"`
	Retry               *RetryPolicy      `json:"retry"` // what its request said; nil: nothing
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
	Warnings            []Violation       `json:"warnings"` // in the answer to its submission only

	// RetryAfter of Meta says when to look again while the job is not final, and
	// of a failure that may pass when to resubmit.
	Meta `json:"-"`
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

// Waiting says why a job waits: SCHEDULED, BACKOFF, PAUSED, CLIENT_LIMIT, NO_WORKERS or QUEUE, and
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

// Job reads a job. With IfNoneMatch the error is ErrNotModified while it is
// unchanged; with PreferWait the answer comes with the next change of state.
func (c *Client) Job(ctx context.Context, id string, options ...Option) (*Job, error) {
	r := get(options, "jobs", id).of(id)
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return c.readJob(ctx, r, a)
}

// readJob reads an answer that shows a job. An outcome document, which the
// service sends if the caller's Accept asks for it, is converted. Its content
// type does not say which it is: that of a job that has not failed is application/json.
func (c *Client) readJob(ctx context.Context, r *request, a *answer) (*Job, error) {
	job := &Job{}
	if mediaType(a.header.Get("Content-Type")) != problemType {
		if err := r.decode(a, job); err != nil {
			return nil, err
		}
	}
	if job.State == "" {
		o := &Outcome{}
		if err := r.decode(a, o); err != nil {
			return nil, err
		}
		if o.JobStatus != "" {
			job = jobOf(o)
			job.JobID = cmp.Or(job.JobID, r.id) // the member may be absent
			c.received(ctx, o)
		}
	}
	if err := r.checkID(a, job.JobID); err != nil {
		return nil, err
	}
	if string(job.Params) == "null" {
		job.Params = nil
	}
	job.fill(a)
	c.received(ctx, job.Failure)
	return job, nil
}

// jobOf converts an outcome document to the job that it is about.
func jobOf(o *Outcome) *Job {
	j := &Job{
		JobID: o.JobID, State: o.JobStatus, Attempt: o.Attempt, CorrelationID: o.CorrelationID,
		CreatedAt: o.SubmittedAt, FinishedAt: o.CompletedAt,
	}
	switch o.JobStatus {
	case StatusCompleted:
		j.State, j.Outcome = Succeeded, "SUCCESS"
	case StatusCancelled:
		j.State, j.Outcome, j.CanceledAt = Canceled, "CANCELED", o.CompletedAt
	case StatusFailed, StatusTimedOut:
		j.State, j.Outcome, j.Failure = Failed, "FAILED", o
	}
	return j
}

// JobFilter selects jobs; zero members do not filter.
type JobFilter struct {
	State, Type, WorkKind, BatchID string
	ScheduleID                     string
	CorrelationID                  string    // exactly this one
	CreatedAfter                   time.Time // inclusive
	CreatedBefore                  time.Time // exclusive
	PageSize                       int       // of one request, up to 100; 0: the service's default
}

// Jobs lists the client's jobs, newest first, page by page as they are read.
// An error is the last thing it yields.
func (c *Client) Jobs(ctx context.Context, filter JobFilter) iter.Seq2[Job, error] {
	r := get(nil, "jobs").page(filter.PageSize, filter.CreatedAfter, filter.CreatedBefore).where("state", filter.State, "type", filter.Type,
		"work_kind", filter.WorkKind, "batch_id", filter.BatchID, "schedule_id", filter.ScheduleID, "correlation_id", filter.CorrelationID)
	return list[Job](ctx, c, r, false)
}

// Changed is a job's state after Cancel or Retry.
type Changed struct {
	JobID     string    `json:"job_id"`
	State     string    `json:"state"`
	UpdatedAt time.Time `json:"updated_at"`
	Changed   bool      `json:"changed"` // false: the job was left as it is
	Attempt   int       `json:"attempt"` // of Retry only
	Meta      `json:"-"`
}

// Cancel ends a job that is not final. A final one stays as it is, which the
// state shows. Safe to repeat, and repeated when an answer is lost.
func (c *Client) Cancel(ctx context.Context, id string, options ...Option) (*Changed, error) {
	return fetch[Changed](ctx, c, post(options, "jobs", id, "cancel").of(id))
}

// Retry queues the next attempt of a FAILED job. A job in any other state is left as it is. A FAILED job that has no attempts
// left, or whose failure is not retryable, is a Problem with status 409; its extensions state and reason say why.
//
// A request whose answer is lost is sent again with the same idempotency key, so
// that there is one attempt. With a key of your own, see IdempotencyKey, that holds
// after a crash of your program too.
func (c *Client) Retry(ctx context.Context, id string, options ...Option) (*Changed, error) {
	return fetch[Changed](ctx, c, post(options, "jobs", id, "retry").of(id).keyed())
}

// Delete removes a final job with all that belongs to it. Safe to repeat.
func (c *Client) Delete(ctx context.Context, id string, options ...Option) error {
	return c.remove(ctx, options, "jobs", id)
}
