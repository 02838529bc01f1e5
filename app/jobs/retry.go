package jobs

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// Retry queues the next attempt of a FAILED job after its backoff (section 11). A job in any other state is left as it is. A
// FAILED job whose failure is not retryable, or that has no attempts left, is a conflict. The queued job counts against the limits
// like a new one.
func (s *Service) Retry(ctx context.Context, client, id job.ID) (change job.Change, err error) {
	return s.retry(ctx, client, id, (*job.Job).RefusalOfRetry, s.deps.Jobs.Retry)
}

// RetryAnyway is Retry for operators: it ignores whether the failure is retryable and how many attempts are left.
func (s *Service) RetryAnyway(ctx context.Context, client, id job.ID) (change job.Change, err error) {
	return s.retry(ctx, client, id, (*job.Job).RefusalOfAnyRetry, s.deps.Jobs.RetryAnyway)
}

// RetryNow is Retry without the backoff, for a test bed.
func (s *Service) RetryNow(ctx context.Context, client, id job.ID) (change job.Change, err error) {
	now := func(ctx context.Context, client, id job.ID, attempt int, _ time.Duration, traceparent string) (job.Change, error) {
		return s.deps.Jobs.Retry(ctx, client, id, attempt, 0, traceparent)
	}
	return s.retry(ctx, client, id, (*job.Job).RefusalOfRetry, now)
}

// retrying queues the next attempt of a job.
type retrying func(ctx context.Context, client, id job.ID, attempt int, wait time.Duration, traceparent string) (job.Change, error)

func (s *Service) retry(
	ctx context.Context, client, id job.ID, refusal func(*job.Job) error, retry retrying,
) (change job.Change, err error) {
	request := telemetry.Traceparent(ctx)
	ctx, span := app.BeginSpan(ctx, telemetry.SpanRetry, client)
	defer func() { app.EndSpan(span, id, change.State, err) }()
	j, err := s.deps.Jobs.Job(ctx, client, id)
	if err != nil {
		return job.Change{}, err
	}
	describe(ctx, span, j, j.Attempt)
	telemetry.Link(span, j.TraceParent)
	if j.State != job.Failed {
		return job.Change{JobID: id, State: j.State, Attempt: j.Attempt, UpdatedAt: j.UpdatedAt, RunAt: j.RunAt}, nil
	}
	if err := refusal(j); err != nil {
		return job.Change{}, err
	}
	room, err := s.deps.Capacity.reserve(ctx, client, loadOf(nil))
	if err != nil {
		return job.Change{}, err
	}
	wait := j.RetryWait(s.cfg.Clock(), s.cfg.Backoff, rand.Float64())
	change, err = retry(job.WithLease(ctx, room.leased()), client, id, j.Attempt, wait, request)
	room.end(ctx, err == nil && change.Changed, err)
	if err != nil || !change.Changed {
		return change, err
	}
	describe(ctx, span, j, change.Attempt)
	app.AfterCommit(ctx, func() { s.retried(ctx, j, change) })
	return change, nil
}

// retried says what was committed to the metrics, the log, the watchers and the
// queue.
func (s *Service) retried(ctx context.Context, j *job.Job, change job.Change) {
	s.deps.Metrics.Retried.WithLabelValues("client").Inc()
	s.deps.Metrics.Entered(job.Queued, j.WorkKind)
	app.LogTransition(ctx, s.deps.Log, "retry", j, job.Failed, job.Queued, slog.Int("attempt", change.Attempt))
	app.Publish(s.deps.Queue, j, app.NotificationOf(j))
	s.deps.Queue.Enqueue(app.TracedTask(ctx, job.Task{
		JobID: j.ID, Attempt: change.Attempt, RunAt: change.RunAt, TraceParent: j.TraceParent,
		ClientID: j.ClientID, WorkKind: j.WorkKind, Reason: reasonOf(j.Failure),
	}))
}
