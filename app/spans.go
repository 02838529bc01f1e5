package app

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// beginSpan begins the span of a client's use case; endSpan ends it.
func beginSpan(ctx context.Context, name string, client job.ID) (context.Context, trace.Span) {
	ctx, span := telemetry.Start(ctx, name)
	describeKey(span, client, "")
	return ctx, span
}

// describe tells which attempt of which job a span is about.
func describe(span trace.Span, j *job.Job, attempt int) {
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

// describeKey tells which client, and which key of it if one is given, a span is
// about.
func describeKey(span trace.Span, client job.ID, keyID string) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(telemetry.ClientID.String(client.String()))
	if keyID != "" {
		span.SetAttributes(telemetry.KeyID.String(keyID))
	}
}

// endSpan ends a span with the job that it was about and the state that the job
// has now, as far as they are known. It is failed by what is wrong here; what is
// wrong with a request is a normal outcome.
func endSpan(span trace.Span, id job.ID, state job.State, err error) {
	if !span.IsRecording() {
		return
	}
	if !id.IsZero() {
		span.SetAttributes(telemetry.JobID.String(id.String()))
	}
	if state != "" {
		span.SetAttributes(telemetry.State.String(string(state)))
	}
	if err != nil && !errors.Is(err, job.ErrStale) { // which has no code: it is told to nobody outside
		code := job.CodeOf(err)
		span.SetAttributes(telemetry.ErrorCode.String(string(code)))
		if code.Spec().Status < http.StatusInternalServerError {
			err = nil
		}
	}
	telemetry.End(span, err)
}

// endBatch ends the span of a batch's submission.
func endBatch(span trace.Span, requestID string, b *job.Batch, err error) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(telemetry.RequestID.String(requestID))
	if b != nil {
		span.SetAttributes(telemetry.BatchID.String(b.ID.String()))
	}
	endSpan(span, job.ID{}, "", err)
}

// endAssign ends the span of a claim. That a task turned out to be spent is no
// error.
func endAssign(span trace.Span, t job.Task, worker job.ID, c *job.Claim, err error) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(telemetry.Attempt.Int(t.Attempt))
	if c == nil {
		endSpan(span, t.JobID, "", err)
		return
	}
	span.SetAttributes(telemetry.WorkerID.String(worker.String()))
	describe(span, &c.Job, c.Attempt)
	endSpan(span, t.JobID, job.Assigned, nil)
}

// endRun ends the span of a job's work. What the work came to is a normal
// outcome, a failure too, unless it crashed. A job that was stopped has none: a
// canceled one ended well, one that was taken away did not.
func endRun(span trace.Span, f job.Finish, stopped error) {
	if !span.IsRecording() {
		return
	}
	state, err := f.State, error(nil)
	switch {
	case f.Failure != nil:
		span.SetAttributes(telemetry.ErrorCode.String(string(f.Failure.Code)))
		if crashed(f.Failure.Reason) {
			err = errors.New(f.Failure.Detail)
		}
	case state != "":
	case errors.Is(stopped, errCanceled):
		state = job.Canceled
		span.AddEvent("canceled")
	default:
		err = stopped
	}
	if state != "" {
		span.SetAttributes(telemetry.State.String(string(state)))
	}
	telemetry.End(span, err)
}

func crashed(r job.Reason) bool {
	return r == job.DefinitionInvalid || r == job.OutputInvalid || r == job.WorkPanicked
}

// describeParcel tells which delivery a span is about. Of a callback's URL it
// tells the host alone: the others may hold secrets.
func describeParcel(span trace.Span, p job.ClaimedDelivery) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		telemetry.DeliveryID.String(p.Delivery.ID.String()), telemetry.ClientID.String(p.ClientID.String()),
		telemetry.EventName.String(p.EventName), telemetry.Attempt.Int(p.Attempts+1), semconv.HTTPRequestMethodPost)
	if !p.JobID.IsZero() {
		span.SetAttributes(telemetry.JobID.String(p.JobID.String()))
	}
	if !p.WebhookID.IsZero() {
		span.SetAttributes(telemetry.WebhookID.String(p.WebhookID.String()))
	} else if u, err := url.Parse(p.URL); err == nil {
		span.SetAttributes(semconv.ServerAddress(u.Hostname()))
	}
}

// describeSent tells what became of an attempt to deliver.
func describeSent(span trace.Span, a job.DeliveryAttempt) {
	if !span.IsRecording() {
		return
	}
	if a.Status != 0 {
		span.SetAttributes(semconv.HTTPResponseStatusCode(a.Status))
	}
	if a.Error != "" {
		span.SetAttributes(semconv.ErrorTypeKey.String(string(a.Error)))
		span.SetStatus(codes.Error, a.Error.Text())
	}
}

// enqueue hands a task over, to be gone on with from the span of ctx; without
// one, from where the task says.
func enqueue(ctx context.Context, q Queue, t job.Task) {
	if here := telemetry.Traceparent(ctx); here != "" {
		t.TraceParent = here
	}
	q.Enqueue(t)
}

// enqueueSoon is enqueue for a task that is due soon. The others are the relay's,
// which knows how many of them the queue has room for.
func enqueueSoon(ctx context.Context, q Queue, t job.Task) {
	if time.Until(t.RunAt) <= directHorizon {
		enqueue(ctx, q, t)
	}
}
