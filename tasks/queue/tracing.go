package queue

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// TraceHeader is an optional header of a task. It contains the task's parent span in the format of W3C Trace Context.
const TraceHeader = "traceparent"

// MaxTraceparent limits the header's length, because other programs can write any value to Redis. MaxTraceparent is twice the length that
// the current version of W3C Trace Context has.
const MaxTraceparent = 110

// trace starts the span of a task, and returns the traceparent for the worker. The function `end` ends the span. The span does not show a
// conflict with an existing task as an error.
func (q *Queue) trace(ctx context.Context, h hint) (traceparent string, end func(error)) {
	within, span := telemetry.Continue(ctx, q.redis.Tracer, h.traceparent, telemetry.SpanEnqueue, trace.WithSpanKind(trace.SpanKindProducer))
	traceparent = h.traceparent
	if span.IsRecording() {
		span.SetAttributes(TaskAttributes(h.of, semconv.MessagingOperationTypeSend)...)
		traceparent = telemetry.Traceparent(within)
	}
	return traceparent, func(err error) {
		if errors.Is(err, asynq.ErrTaskIDConflict) {
			err = nil
		}
		telemetry.End(span, err)
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
