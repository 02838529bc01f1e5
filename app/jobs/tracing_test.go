package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/maintenance"
	"github.com/forgerun/forgerun/job"
)

func TestSpansOfARetry(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		old := w.Traceparent()
		task := w.Add(apptest.FailedJob, func(r *apptest.Row) { r.TraceParent = old })
		request := w.Traced(func(ctx context.Context) {
			_, err := w.service(10).Retry(ctx, apptest.ClientA, task.JobID)
			require.NoError(t, err)
		})
		span := w.Span("retry job")
		require.Equal(t, request, apptest.TraceparentOf(w.SpansNamed("request")[1]))
		w.RequireBelow(span, w.SpansNamed("request")[1])
		require.Len(t, span.Links, 1)
		require.Equal(t, old, apptest.TraceparentOf(tracetest.SpanStub{SpanContext: span.Links[0].SpanContext}))
		require.Equal(t, "QUEUED", apptest.Attributes(span)["forgerun.state"])
		require.Equal(t, int64(2), apptest.Attributes(span)["forgerun.attempt"])
		require.Equal(t, request, w.Store.RowOf(task.JobID).TraceParent, "whatever comes later belongs to this request")
		require.Equal(t, apptest.TraceparentOf(span), w.Queue.Sent()[0].TraceParent)
	})
}

func TestAnUntracedRetryStaysWithTheFirstTrace(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		old := w.Traceparent()
		task := w.Add(apptest.FailedJob, func(r *apptest.Row) { r.TraceParent = old })
		_, err := w.service(10).Retry(context.Background(), apptest.ClientA, task.JobID)
		require.NoError(t, err)
		require.Equal(t, old, w.Store.RowOf(task.JobID).TraceParent)
		require.Equal(t, old, w.Queue.Sent()[0].TraceParent)
		require.Empty(t, w.SpansNamed("retry job"))
	})
}

func TestSpansOfACancel(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		old := w.Traceparent()
		task := w.Add(func(r *apptest.Row) { r.TraceParent = old })
		for range 2 { // the second time it was canceled before
			w.Traced(func(ctx context.Context) {
				_, err := w.service(10).Cancel(ctx, apptest.ClientA, task.JobID)
				require.NoError(t, err)
			})
		}
		spans := w.SpansNamed("cancel job")
		require.Len(t, spans, 2)
		require.Len(t, spans[0].Links, 1)
		require.Equal(t, old, apptest.TraceparentOf(tracetest.SpanStub{SpanContext: spans[0].Links[0].SpanContext}))
		require.Equal(t, "SUCCESS_FAST", apptest.Attributes(spans[0])["forgerun.work_kind"])
		require.Empty(t, spans[1].Links)
		for i, span := range spans {
			w.RequireBelow(span, w.SpansNamed("request")[1+i])
			require.Equal(t, "CANCELED", apptest.Attributes(span)["forgerun.state"])
			require.Equal(t, task.JobID.String(), apptest.Attributes(span)["forgerun.job_id"])
		}
	})
}

func TestSpansOfABatch(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		var b *job.Batch
		w.Traced(func(ctx context.Context) {
			var err error
			b, _, err = w.service(10).SubmitBatch(ctx, newBatchRequest(newRequests(2)...))
			require.NoError(t, err)
		})
		span := w.Span("submit batch")
		w.RequireBelow(span, w.Span("request"))
		require.Equal(t, b.ID.String(), apptest.Attributes(span)["forgerun.batch_id"])
		require.Equal(t, apptest.ClientA.String(), apptest.Attributes(span)["forgerun.client_id"])
		for _, task := range w.Queue.Sent() {
			require.Equal(t, apptest.TraceparentOf(span), task.TraceParent)
		}
		require.Len(t, w.Queue.Sent(), 2)
	})
}

// What is wrong with a request is no error of the server.
func TestSpansOfWhatIsRefused(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		w.Traced(func(ctx context.Context) {
			_, err := s.Submit(ctx, newRequest(func(r *job.Request) { r.WorkKind = "NONE" }))
			require.Error(t, err)
			_, err = s.Cancel(ctx, apptest.ClientA, app.NewID())
			require.Error(t, err)
			w.Store.Hook("Job", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
			_, err = s.Retry(ctx, apptest.ClientA, app.NewID())
			require.Error(t, err)
		})
		for name, want := range map[string]struct {
			code   string
			status codes.Code
		}{
			"submit job": {"RFA_JOB_VALIDATION_FAILED", codes.Unset},
			"cancel job": {"RFA_JOB_NOT_FOUND", codes.Unset},
			"retry job":  {"RFA_STORAGE_UNAVAILABLE", codes.Error},
		} {
			span := w.Span(name)
			require.Equal(t, want.code, apptest.Attributes(span)["forgerun.error_code"], name)
			require.Equal(t, want.status, span.Status.Code, name)
			require.Equal(t, apptest.ClientA.String(), apptest.Attributes(span)["forgerun.client_id"], name)
		}
	})
}

func TestAReplayNamesTheFirstJob(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		first, err := s.Submit(context.Background(), newRequest(withKey("k")))
		require.NoError(t, err)
		w.Traced(func(ctx context.Context) { _, err = s.Submit(ctx, newRequest(withKey("k"))) })
		require.NoError(t, err)
		require.Equal(t, first.JobID.String(), apptest.Attributes(w.Span("submit job"))["forgerun.job_id"])
	})
}

func TestSpansOfARescue(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		from := w.Traceparent()
		traced := func(r *apptest.Row) { r.TraceParent = from }
		assigned := w.Add(apptest.HeldByTheDead(job.Assigned, traced))
		running := w.Add(apptest.HeldByTheDead(job.Running, traced))
		retried := w.Add(apptest.HeldByTheDead(job.Running, traced, func(r *apptest.Row) { r.AutoRetry = true }))
		w.Add(apptest.HeldByTheDead(job.Assigned)) // untraced
		w.lead()
		apptest.Pass(2 * maintenance.RescuerInterval)

		tasks := map[job.ID]string{}
		for _, task := range w.Queue.Sent() {
			tasks[task.JobID] = task.TraceParent
		}
		spans := map[string]tracetest.SpanStub{}
		for _, span := range w.SpansNamed("rescue job") {
			w.RequireBelow(span, w.Span("request"))
			require.Equal(t, codes.Unset, span.Status.Code)
			require.Equal(t, int64(1), apptest.Attributes(span)["forgerun.attempt"])
			spans[apptest.Attributes(span)["forgerun.job_id"].(string)] = span
		}
		require.Len(t, spans, 3)
		for task, state := range map[job.Task]string{assigned: "QUEUED", running: "FAILED", retried: "QUEUED"} {
			span := spans[task.JobID.String()]
			require.Equal(t, state, apptest.Attributes(span)["forgerun.state"])
			if state == "QUEUED" {
				require.Equal(t, apptest.TraceparentOf(span), tasks[task.JobID])
			}
		}
	})
}

func TestSpansOfARescueThatFails(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		from := w.Traceparent()
		w.Add(apptest.HeldByTheDead(job.Running, func(r *apptest.Row) { r.TraceParent = from }))
		w.Store.Hook("Finish", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		w.lead()
		apptest.Pass(2*maintenance.RescuerInterval + time.Millisecond)
		spans := w.SpansNamed("rescue job")
		require.Len(t, spans, 2)
		require.Equal(t, codes.Error, spans[0].Status.Code)
		require.Equal(t, codes.Unset, spans[1].Status.Code)
	})
}
