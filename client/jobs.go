package client

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"time"
)

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

// Kind is what jobs of a work kind do.
type Kind struct {
	Name string `json:"work_kind"`
	Does string `json:"does"`
}

// Submit submits a job: when it returns without an error the job is stored, and runs whatever happens to the service. A request whose
// answer is lost is sent again with the same idempotency key, so that there is one job.
func (c *Client) Submit(ctx context.Context, request JobRequest, options ...Option) (*Accepted, error) {
	r := post(options, "jobs").with(request).keyed()
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusOK {
		accepted := &Accepted{}
		if err := r.decode(a, accepted); err != nil {
			return nil, err
		}
		return accepted, nil
	}
	job, err := c.readJob(ctx, r, a)
	if err != nil {
		return nil, err
	}
	return &Accepted{JobID: job.JobID, State: job.State, CreatedAt: job.CreatedAt, Warnings: job.Warnings, Job: job, Meta: job.Meta}, nil
}

// Final reports whether the job has ended. A state that is not known has not.
func (j *Job) Final() bool { return j.State == Succeeded || j.State == Failed || j.State == Canceled }

// Job reads a job. With IfNoneMatch the error is ErrNotModified while it is unchanged; with PreferWait the answer comes with the next
// change of state.
func (c *Client) Job(ctx context.Context, id string, options ...Option) (*Job, error) {
	r := get(options, "jobs", id).of(id)
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return c.readJob(ctx, r, a)
}

// readJob reads an answer that shows a job. An outcome document, which the service sends if the caller's Accept asks for it, is
// converted. Its content type does not say which it is: that of a job that has not failed is application/json.
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

// Jobs lists the client's jobs, newest first, page by page as they are read. An error is the last thing it yields.
func (c *Client) Jobs(ctx context.Context, filter JobFilter) iter.Seq2[Job, error] {
	r := get(nil, "jobs").page(filter.PageSize, filter.CreatedAfter, filter.CreatedBefore).where("state", filter.State, "type", filter.Type,
		"work_kind", filter.WorkKind, "batch_id", filter.BatchID, "schedule_id", filter.ScheduleID, "correlation_id", filter.CorrelationID)
	return list[Job](ctx, c, r, false)
}
