package jobs

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

func TestCancel(t *testing.T) {
	w := newWorld(t)
	queued, running := w.submit(w.Service, calling("https://receiver.example")).JobID, w.submit(w.Service).JobID
	w.run(running, 1)
	w.Queue.Notifications()
	w.Queue.Delivered()
	for i, id := range []job.ID{queued, running} {
		for _, changed := range []bool{true, false} { // a repetition changes nothing
			change := apptest.Must(w.Cancel(t.Context(), apptest.ClientA, id))(t)
			require.Equal(t, []any{changed, job.Canceled}, []any{change.Changed, change.State})
		}
		task := job.Task{JobID: id, Attempt: 1}
		require.Equal(t, []job.Notification{apptest.End(task)}, w.Queue.Notifications())
		w.Logged(task, "cancel", []string{"QUEUED", "RUNNING"}[i], "CANCELED")
		require.Equal(t, float64(i+1), w.Metric(w.World.Metrics.Canceled.WithLabelValues("SUCCESS_FAST")))
		n, _ := w.Executions(job.Canceled)
		require.EqualValues(t, i, n, "only a running job has an execution time")
	}
	require.Equal(t, []job.ID{running}, w.Queue.Signals, "the worker gets a signal")
	require.Equal(t, []job.ID{queued}, w.Queue.Delivered(), "it has a callback")
}

func TestRetry(t *testing.T) {
	w := newWorld(t)
	id := w.failed(w.Service, calling("https://receiver.example"))
	w.Queue.Notifications()
	w.Queue.Delivered()
	sent := len(w.Queue.Sent())
	change := apptest.Must(w.Retry(t.Context(), apptest.ClientA, id))(t)
	require.Equal(t, []any{true, job.Queued, 2}, []any{change.Changed, change.State, change.Attempt})
	j := w.stored(id)
	require.LessOrEqual(t, change.RunAt.Sub(j.UpdatedAt), apptest.Backoff.Ceiling(1))
	tasks := []job.Task{{JobID: id, Attempt: 2, RunAt: change.RunAt, ClientID: apptest.ClientA, WorkKind: job.SuccessFast,
		Reason: job.DependencyFailed}}
	require.Equal(t, tasks, w.Queue.Sent()[sent:])
	require.Equal(t, []job.Notification{apptest.Event(tasks[0])}, w.Queue.Notifications())
	require.Equal(t, []job.ID{id}, w.Queue.Delivered(), "it has a callback")
	require.Equal(t, 1.0, w.Metric(w.World.Metrics.Retried.WithLabelValues("client")))
	w.Logged(tasks[0], "retry", "FAILED", "QUEUED")

	change = apptest.Must(w.Retry(t.Context(), apptest.ClientA, id))(t)
	require.Equal(t, []any{false, job.Queued, 2}, []any{change.Changed, change.State, change.Attempt}, "it is queued already")
	require.Len(t, w.Queue.Sent(), sent+1)
	require.Empty(t, w.Queue.Notifications())

	// A retry needs room like a new job.
	failed := w.failed(w.Service)
	w.limit(w.Service, oneClient(1, 1))
	require.Equal(t, job.CodeQueueFull, job.CodeOf(second(w.Retry(t.Context(), apptest.ClientA, failed))))
	w.Service.Admission = nil
	now := apptest.Must(w.RetryNow(t.Context(), apptest.ClientA, failed))(t)
	require.False(t, now.RunAt.After(now.UpdatedAt), "without the backoff")
}

// Promise: contract 11
func TestRetryThatIsRefused(t *testing.T) {
	w := newWorld(t)
	last := w.failed(w.Service, func(r *job.Request) { r.Retry = &job.RetryPolicy{MaxAttempts: 1} })
	lasting := w.submit(w.Service).JobID
	w.fail(lasting, 1, job.FailedImmediately)
	sent := len(w.Queue.Sent())
	w.Queue.Notifications()
	for id, want := range map[job.ID][]string{
		last: {"attempt", "ATTEMPTS_EXHAUSTED"}, lasting: {"not retryable", "NOT_RETRYABLE"},
	} {
		_, err := w.Retry(t.Context(), apptest.ClientA, id)
		refusal, _ := errors.AsType[*job.Error](err)
		require.NotNil(t, refusal)
		require.Equal(t, []any{job.CodeConflict, job.Failed, want[1]}, []any{refusal.Code, refusal.State, refusal.Reason})
		require.ErrorContains(t, err, want[0])
	}
	require.Len(t, w.Queue.Sent(), sent)
	require.Empty(t, w.Queue.Notifications())
	require.Zero(t, w.Sum("job_retries_total"))
	for _, id := range []job.ID{last, lasting} {
		require.True(t, apptest.Must(w.RetryAnyway(t.Context(), apptest.ClientA, id))(t).Changed, "operators can retry it")
	}
}

// A job is submitted, fails, is retried and canceled. Each step has a span with a link to the submission. Each transition has one log
// line with the trace id.
func TestTraceOfAJobsLife(t *testing.T) {
	w := newWorld(t)
	w.Service.Log = slog.New(tracingHandler{Handler: slog.NewJSONHandler(w.World.Log, nil)})
	var id job.ID
	w.Traced(func(ctx context.Context) { id = apptest.Must(w.Submit(ctx, newRequest(withKey("k"))))(t).JobID })
	w.enqueued(id)
	w.fail(id, 1, job.DependencyFailed)
	retry := w.Traced(func(ctx context.Context) { require.NoError(t, second(w.Retry(ctx, apptest.ClientA, id))) })
	w.Traced(func(ctx context.Context) {
		require.NoError(t, second(w.Cancel(telemetry.WithRequest(ctx, "request-2"), apptest.ClientA, id)))
	})

	requests := w.SpansNamed("request")
	for i, step := range []struct {
		name, state string
		attempt     int64
	}{{"submit job", "QUEUED", 1}, {"retry job", "QUEUED", 2}, {"cancel job", "CANCELED", 2}} {
		span := w.Span(step.name)
		w.requireBelow(span, requests[i])
		all := apptest.Attributes(span)
		require.Equal(t, []any{id.String(), apptest.ClientA.String(), "SUCCESS_FAST", step.attempt, step.state},
			[]any{all["forgerun.job_id"], all["forgerun.client_id"], all["forgerun.work_kind"], all["forgerun.attempt"], all["forgerun.state"]})
		require.Equal(t, codes.Unset, span.Status.Code, step.name)
	}
	require.Equal(t, "request-2", apptest.Attributes(w.Span("cancel job"))["forgerun.request_id"])
	require.Equal(t, traceparentOf(w.Span("submit job")), w.Queue.Sent()[0].TraceParent)
	require.Equal(t, traceparentOf(w.Span("retry job")), w.Queue.Sent()[1].TraceParent)
	require.Len(t, w.Span("cancel job").Links, 1)
	require.Equal(t, retry, traceparentOf(tracetest.SpanStub{SpanContext: w.Span("cancel job").Links[0].SpanContext}),
		"whatever comes after a retry belongs to its request")

	var steps [][3]any
	for _, line := range w.World.Log.Lines(t, map[string]any{"msg": "job transition"}) {
		trace := 0
		for i, request := range requests {
			if line["trace_id"] == request.SpanContext.TraceID().String() {
				trace = i + 1
			}
		}
		steps = append(steps, [3]any{line["action"], line["next_state"], trace})
	}
	require.Equal(t, [][3]any{{"submit", "CREATED", 1}, {"submit", "QUEUED", 1}, {"retry", "QUEUED", 2}, {"cancel", "CANCELED", 3}}, steps)
}

// tracingHandler adds the span of the context to each line, like the program's logger.
type tracingHandler struct{ slog.Handler }

func (h tracingHandler) Handle(ctx context.Context, r slog.Record) error {
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		r.AddAttrs(slog.String("trace_id", s.TraceID().String()), slog.String("span_id", s.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (w *world) requireBelow(child, parent tracetest.SpanStub) {
	w.T.Helper()
	require.Equal(w.T, parent.SpanContext.TraceID(), child.SpanContext.TraceID())
	require.Equal(w.T, parent.SpanContext.SpanID(), child.Parent.SpanID())
}

func traceparentOf(s tracetest.SpanStub) string {
	return telemetry.Traceparent(trace.ContextWithSpanContext(context.Background(), s.SpanContext))
}
