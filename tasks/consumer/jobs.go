package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// NewJobs makes a consumer of job tasks. The consumer passes each task to `handle`, and the id of each canceled job to `canceled`, which
// must return quickly.
//
// `handle` returns nil once the task is done; asynq then forgets the task. For a failed, early or stale task, `handle` returns
// job.TaskFailed, job.TaskEarly or job.ErrTaskStale. Any other error means that the infrastructure failed; the task is run again after 1 to
// 10 seconds. The context of `handle` ends after queue.Config.MaxTaskTime, or if Redis is down for half a minute. asynq then passes the
// task to another consumer, even if the first call of `handle` has not returned. If the task has a parent span, the context has a child
// span. The TraceParent of the task is always empty, because handlers find the span in the context.
func NewJobs(r *redisconn.Redis, cfg Config, handle func(ctx context.Context, t job.Task) error, canceled func(job.ID)) *Consumer {
	onTime := func(ctx context.Context, t job.Task) error {
		// asynq stores whole seconds. A task that is more than a second early was started by hand. Such a task is passed to `handle` immediately:
		// the claim in Postgres checks whether the job is due.
		if left := t.RunAt.Sub(cfg.Clock.Now()); left > 0 && left < time.Second {
			return &job.TaskEarly{Wait: cfg.Clock.Wait(left)}
		}
		return handle(ctx, t)
	}
	c := newConsumer(r, cfg, redisconn.Jobs, traced(r.Tracer, handler(r, queue.JobTask, r.Metrics.Handled, queue.ParseTask, onTime)))
	c.canceled = canceled
	return c
}

// traced calls `handle` with a context that has a span, if the task's header names a recorded parent.
func traced(tracer trace.Tracer, handle asynq.HandlerFunc) asynq.HandlerFunc {
	if tracer == nil {
		return handle
	}
	return func(ctx context.Context, t *asynq.Task) (err error) {
		traceparent := t.Headers()[queue.TraceHeader]
		if traceparent == "" || len(traceparent) > queue.MaxTraceparent {
			return handle(ctx, t)
		}
		spanned, span := telemetry.Continue(ctx, tracer, traceparent, telemetry.SpanProcess, trace.WithSpanKind(trace.SpanKindConsumer))
		if !span.IsRecording() {
			return handle(ctx, t)
		}
		defer func() { // even if the handler panics
			if result, _ := resultOf(err); result == redisconn.ResultFailed || errors.Is(err, queue.ErrBadPayload) {
				telemetry.End(span, err)
				return
			}
			telemetry.End(span, nil)
		}()
		if task, err := queue.ParseTask(t.Payload()); err == nil {
			span.SetAttributes(queue.TaskAttributes(task, semconv.MessagingOperationTypeProcess)...)
		}
		return handle(spanned, t)
	}
}
