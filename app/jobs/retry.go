package jobs

import (
	"context"
	"log/slog"
	"math/rand/v2"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// Retry queues the next attempt of a FAILED job after its backoff (API contract, section 11). It does not change jobs in other states. It
// returns a conflict if the failure is not retryable or no attempts are left. Like a submission, the retry needs free capacity.
func (s *Service) Retry(ctx context.Context, client, id job.ID) (job.Change, error) {
	return s.retry(ctx, client, id, retryOptions{})
}

// RetryAnyway is like Retry, for operators: it ignores whether the failure is retryable and how many attempts are left.
func (s *Service) RetryAnyway(ctx context.Context, client, id job.ID) (job.Change, error) {
	return s.retry(ctx, client, id, retryOptions{anyway: true})
}

// RetryNow is like Retry, but without the backoff. A test bed uses it.
func (s *Service) RetryNow(ctx context.Context, client, id job.ID) (job.Change, error) {
	return s.retry(ctx, client, id, retryOptions{now: true})
}

type retryOptions struct {
	anyway bool
	now    bool
}

func (s *Service) retry(ctx context.Context, client, id job.ID, o retryOptions) (change job.Change, err error) {
	request := telemetry.Traceparent(ctx)
	ctx, span := app.BeginSpan(ctx, telemetry.SpanRetry, client)
	defer func() { app.EndSpan(span, id, change.State, err) }()
	j, err := s.Store.Job(ctx, client, id)
	if err != nil {
		return job.Change{}, err
	}
	describe(ctx, span, j, j.Attempt)
	telemetry.Link(span, j.TraceParent)
	if j.State != job.Failed {
		return job.Change{JobID: id, State: j.State, Attempt: j.Attempt, UpdatedAt: j.UpdatedAt, RunAt: j.RunAt}, nil
	}
	refusal, retry := (*job.Job).RefusalOfRetry, s.Store.Retry
	if o.anyway {
		refusal, retry = (*job.Job).RefusalOfAnyRetry, s.Store.RetryAnyway
	}
	if err := refusal(j); err != nil {
		return job.Change{}, err
	}
	room, err := s.Admission.reserve(ctx, client, oneQueued)
	if err != nil {
		return job.Change{}, err
	}
	wait := j.RetryWait(s.cfg.Clock(), s.cfg.Backoff, rand.Float64())
	if o.now {
		wait = 0
	}
	change, err = retry(job.WithLease(ctx, room.leased()), client, id, j.Attempt, wait, request)
	room.end(ctx, err == nil && change.Changed, err)
	if err != nil || !change.Changed {
		return change, err
	}
	describe(ctx, span, j, change.Attempt)
	app.AfterCommit(ctx, func() { s.finishRetry(ctx, j, change) })
	return change, nil
}

// j is the job before the retry.
func (s *Service) finishRetry(ctx context.Context, j *job.Job, change job.Change) {
	s.Metrics.Retried.WithLabelValues("client").Inc()
	s.Metrics.Entered(job.Queued, j.WorkKind)
	app.LogTransition(ctx, s.Log, "retry", j, job.Failed, job.Queued, slog.Int("attempt", change.Attempt))
	app.Publish(s.Queue, j, app.NotificationOf(j))
	task := job.Task{
		JobID: j.ID, Attempt: change.Attempt, RunAt: change.RunAt, TraceParent: j.TraceParent, ClientID: j.ClientID, WorkKind: j.WorkKind,
	}
	if j.Failure != nil {
		task.Reason = j.Failure.Reason
	}
	s.Queue.Enqueue(app.TracedTask(ctx, task))
}
