package app

import (
	"context"
	"errors"
	"net/http"

	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// BeginSpan begins the span of a client's use case; EndSpan ends it.
func BeginSpan(ctx context.Context, name string, client job.ID) (context.Context, trace.Span) {
	ctx, span := telemetry.Start(ctx, name)
	DescribeKey(span, client, "")
	return ctx, span
}

// Describe says which attempt of which job a span is about.
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

// DescribeKey says which client, and which key of it if one is given, a span is
// about.
func DescribeKey(span trace.Span, client job.ID, keyID string) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(telemetry.ClientID.String(client.String()))
	if keyID != "" {
		span.SetAttributes(telemetry.KeyID.String(keyID))
	}
}

// EndSpan ends a span with the job that it was about and the state that the job
// has now, as far as they are known. It is failed by what is wrong here; what is
// wrong with a request is a normal outcome.
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
	if err != nil && !errors.Is(err, job.ErrStale) { // which has no code: it is not shown outside
		code := job.CodeOf(err)
		span.SetAttributes(telemetry.ErrorCode.String(string(code)))
		if code.Spec().Status < http.StatusInternalServerError {
			err = nil
		}
	}
	telemetry.End(span, err)
}

// Enqueue hands a task over, to be gone on with from the span of ctx; without
// one, from where the task says.
func Enqueue(ctx context.Context, q Queue, t job.Task) { q.Enqueue(TracedTask(ctx, t)) }

// TracedTask is the task, to be gone on with from the span of ctx; without one,
// from where the task says.
func TracedTask(ctx context.Context, t job.Task) job.Task {
	if here := telemetry.Traceparent(ctx); here != "" {
		t.TraceParent = here
	}
	return t
}
