package queue

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// TraceHeader is the header of a task with the span to go on from, as in W3C
// Trace Context. A task without one is as good as any other: one of an older
// version has none, nor has one of a job that is not traced.
const TraceHeader = "traceparent"

// MaxTraceparent is twice what the present version of W3C Trace Context needs.
// Whoever can write to Redis can write longer ones.
const MaxTraceparent = 110

// traced enqueues a task within a span, if the task has one to go on from, and
// has the worker go on from the new one. That the queue has the task already is
// an answer and no failure of the span, and so is that it has no room.
func (q *Queue) traced(ctx context.Context, t job.Task, enqueue func(context.Context, *asynq.Task) error) error {
	if q.redis.Tracer == nil {
		return enqueue(ctx, q.newTask(t)) // whoever takes the task may trace it
	}
	ctx, span := telemetry.Continue(ctx, q.redis.Tracer, t.TraceParent, telemetry.SpanEnqueue, trace.WithSpanKind(trace.SpanKindProducer))
	if span.IsRecording() {
		span.SetAttributes(TaskAttributes(t, semconv.MessagingOperationTypeSend)...)
		t.TraceParent = telemetry.Traceparent(ctx)
	}
	err := enqueue(ctx, q.newTask(t))
	failure := err
	if errors.Is(err, asynq.ErrTaskIDConflict) || errors.Is(err, errNoRoom) {
		failure = nil
	}
	telemetry.End(span, failure)
	return err
}

// newTask makes the asynq task. Its name is the same for whoever enqueues it, and
// so is what the payload says; only the header may differ. asynq refuses a task whose header is
// no UTF-8.
func (q *Queue) newTask(t job.Task) *asynq.Task {
	payload := payloadOf(t, q.readers.readNames(redisconn.Jobs))
	if t.TraceParent == "" || len(t.TraceParent) > MaxTraceparent || !utf8.ValidString(t.TraceParent) {
		return asynq.NewTask(JobTask, payload)
	}
	return asynq.NewTaskWithHeaders(JobTask, payload, map[string]string{TraceHeader: t.TraceParent})
}

// TaskAttributes describe a task by OpenTelemetry's conventions for messages.
func TaskAttributes(t job.Task, operation attribute.KeyValue) []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.MessagingSystemKey.String("asynq"),
		semconv.MessagingDestinationName(redisconn.Jobs),
		semconv.MessagingMessageID(TaskName(t)),
		semconv.MessagingOperationName(operation.Value.AsString()),
		operation,
		telemetry.JobID.String(t.JobID.String()),
		telemetry.Attempt.Int(t.Attempt),
	}
}
