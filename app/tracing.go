package app

import (
	"context"
	"errors"
	"net/http"

	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// BeginSpan starts the span of a client's use case; EndSpan ends it.
func BeginSpan(ctx context.Context, name string, client job.ID) (context.Context, trace.Span) {
	ctx, span := telemetry.Start(ctx, name)
	DescribeKey(span, client, "")
	return ctx, span
}

// Describe adds the job and the attempt to a span.
func Describe(span trace.Span, j *job.Job, attempt int) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		telemetry.JobID.String(j.ID.String()), telemetry.ClientID.String(j.ClientID.String()), telemetry.RequestID.String(j.RequestID),
		telemetry.WorkKind.String(string(j.WorkKind)), telemetry.Attempt.Int(attempt))
	if !j.BatchID.IsZero() {
		span.SetAttributes(telemetry.BatchID.String(j.BatchID.String()))
	}
}

// DescribeKey adds the client to a span. It also adds the key, unless keyID is "".
func DescribeKey(span trace.Span, client job.ID, keyID string) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(telemetry.ClientID.String(client.String()))
	if keyID != "" {
		span.SetAttributes(telemetry.KeyID.String(keyID))
	}
}

// EndSpan ends a span, and adds the job's id and state if they are not empty. Errors of the client do not mark the span as failed.
func EndSpan(span trace.Span, id job.ID, state job.State, err error) {
	if !span.IsRecording() {
		return
	}
	if !id.IsZero() {
		span.SetAttributes(telemetry.JobID.String(id.String()))
	}
	if state != "" {
		span.SetAttributes(telemetry.State.String(string(state)))
	}
	if err != nil && !errors.Is(err, job.ErrStale) { // ErrStale is never sent to a client, so it has no code
		code := job.CodeOf(err)
		span.SetAttributes(telemetry.ErrorCode.String(string(code)))
		if code.Spec().Status < http.StatusInternalServerError {
			err = nil
		}
	}
	telemetry.End(span, err)
}

// Enqueue enqueues t, with the span of ctx as the parent of its trace.
func Enqueue(ctx context.Context, q Queue, t job.Task) { q.Enqueue(TracedTask(ctx, t)) }

// TracedTask sets the task's TraceParent to the span of ctx, if there is one.
func TracedTask(ctx context.Context, t job.Task) job.Task {
	if here := telemetry.Traceparent(ctx); here != "" {
		t.TraceParent = here
	}
	return t
}
