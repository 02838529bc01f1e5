package queue

import (
	"context"

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
// A writer to Redis can write longer ones.
const MaxTraceparent = 110

// trace begins a span for each task that has one to go on from, and has the worker go on from the new one. What it returns ends
// them: that the queue has the task already is an answer and no failure of the span, and so is that it has no room.
func (q *Queue) trace(ctx context.Context, ts []job.Task) (end func(error)) {
	spans := make([]trace.Span, len(ts))
	for i := range ts {
		within, span := telemetry.Continue(ctx, q.redis.Tracer, ts[i].TraceParent, telemetry.SpanEnqueue,
			trace.WithSpanKind(trace.SpanKindProducer))
		if span.IsRecording() {
			span.SetAttributes(TaskAttributes(ts[i], semconv.MessagingOperationTypeSend)...)
			ts[i].TraceParent = telemetry.Traceparent(within)
		}
		spans[i] = span
	}
	return func(err error) {
		for _, span := range spans {
			telemetry.End(span, err)
		}
	}
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
