package tasks

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
)

// traceHeader is the header of a task with the span to go on from, as in W3C
// Trace Context. A task without one is as good as any other: one of an older
// version has none, nor has one of a job that is not traced.
const traceHeader = "traceparent"

// maxTraceparent is twice what the present version of W3C Trace Context needs.
// Whoever can write to Redis can write longer ones.
const maxTraceparent = 110

// traced enqueues a task within a span, if the task has one to go on from, and
// has the worker go on from the new one. That the queue has the task already is
// an answer and no failure of the span.
func (q *Queue) traced(ctx context.Context, t job.Task, enqueue func(context.Context, *asynq.Task) error) error {
	if q.redis.tracer == nil {
		return enqueue(ctx, newTaskOf(t)) // whoever takes the task may trace it
	}
	ctx, span := telemetry.Continue(ctx, q.redis.tracer, t.TraceParent, telemetry.SpanEnqueue, trace.WithSpanKind(trace.SpanKindProducer))
	if span.IsRecording() {
		span.SetAttributes(attributes(t, semconv.MessagingOperationTypeSend)...)
		t.TraceParent = telemetry.Traceparent(ctx)
	}
	err := enqueue(ctx, newTaskOf(t))
	failure := err
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		failure = nil
	}
	telemetry.End(span, failure)
	return err
}

// newTaskOf makes the asynq task. Name and payload are the same for whoever
// enqueues it; only the header may differ. asynq refuses a task whose header is
// no UTF-8.
func newTaskOf(t job.Task) *asynq.Task {
	payload := []byte(taskName(t))
	if t.TraceParent == "" || len(t.TraceParent) > maxTraceparent || !utf8.ValidString(t.TraceParent) {
		return asynq.NewTask(taskType, payload)
	}
	return asynq.NewTaskWithHeaders(taskType, payload, map[string]string{traceHeader: t.TraceParent})
}

// processed handles each task within a span, if its header has one to go on
// from and this process records it. What else a header says changes nothing.
func processed(tracer trace.Tracer, handle asynq.HandlerFunc) asynq.HandlerFunc {
	if tracer == nil {
		return handle
	}
	return func(ctx context.Context, t *asynq.Task) (err error) {
		traceparent := t.Headers()[traceHeader]
		if traceparent == "" || len(traceparent) > maxTraceparent {
			return handle(ctx, t)
		}
		traced, span := telemetry.Continue(ctx, tracer, traceparent, telemetry.SpanProcess, trace.WithSpanKind(trace.SpanKindConsumer))
		if !span.IsRecording() {
			return handle(ctx, t)
		}
		defer func() { telemetry.End(span, err) }() // when the handler panics, too
		if task, err := parseTask(string(t.Payload())); err == nil {
			span.SetAttributes(attributes(task, semconv.MessagingOperationTypeProcess)...)
		}
		return handle(traced, t)
	}
}

// attributes describe a task by OpenTelemetry's conventions for messages.
func attributes(t job.Task, operation attribute.KeyValue) []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.MessagingSystemKey.String("asynq"),
		semconv.MessagingDestinationName(queueJobs),
		semconv.MessagingMessageID(taskName(t)),
		semconv.MessagingOperationName(operation.Value.AsString()),
		operation,
		telemetry.JobID.String(t.JobID.String()),
		telemetry.Attempt.Int(t.Attempt),
	}
}
