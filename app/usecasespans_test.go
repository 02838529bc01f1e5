package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/forgerun/forgerun/job"
)

func TestSpansOfARetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		old := w.traceparent()
		task := w.add(failedJob, func(r *row) { r.TraceParent = old })
		request := w.traced(func(ctx context.Context) {
			_, err := w.service(10).Retry(ctx, clientA, task.JobID)
			require.NoError(t, err)
		})
		span := w.span("retry job")
		require.Equal(t, request, traceparentOf(w.spansNamed("request")[1]))
		w.requireBelow(span, w.spansNamed("request")[1])
		require.Len(t, span.Links, 1)
		require.Equal(t, old, traceparentOf(tracetest.SpanStub{SpanContext: span.Links[0].SpanContext}))
		require.Equal(t, "QUEUED", attributes(span)["forgerun.state"])
		require.Equal(t, int64(2), attributes(span)["forgerun.attempt"])
		require.Equal(t, request, w.store.job(task.JobID).TraceParent, "whatever comes later belongs to this request")
		require.Equal(t, traceparentOf(span), w.queue.sent()[0].TraceParent)
	})
}

func TestAnUntracedRetryStaysWithTheFirstTrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		old := w.traceparent()
		task := w.add(failedJob, func(r *row) { r.TraceParent = old })
		_, err := w.service(10).Retry(context.Background(), clientA, task.JobID)
		require.NoError(t, err)
		require.Equal(t, old, w.store.job(task.JobID).TraceParent)
		require.Equal(t, old, w.queue.sent()[0].TraceParent)
		require.Empty(t, w.spansNamed("retry job"))
	})
}

func TestSpansOfACancel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		old := w.traceparent()
		task := w.add(func(r *row) { r.TraceParent = old })
		for range 2 { // the second time it was canceled before
			w.traced(func(ctx context.Context) {
				_, err := w.service(10).Cancel(ctx, clientA, task.JobID)
				require.NoError(t, err)
			})
		}
		spans := w.spansNamed("cancel job")
		require.Len(t, spans, 2)
		require.Len(t, spans[0].Links, 1)
		require.Equal(t, old, traceparentOf(tracetest.SpanStub{SpanContext: spans[0].Links[0].SpanContext}))
		require.Equal(t, "SUCCESS_FAST", attributes(spans[0])["forgerun.work_kind"])
		require.Empty(t, spans[1].Links)
		for i, span := range spans {
			w.requireBelow(span, w.spansNamed("request")[1+i])
			require.Equal(t, "CANCELED", attributes(span)["forgerun.state"])
			require.Equal(t, task.JobID.String(), attributes(span)["forgerun.job_id"])
		}
	})
}

func TestSpansOfABatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		var b *job.Batch
		w.traced(func(ctx context.Context) {
			var err error
			b, _, err = w.service(10).SubmitBatch(ctx, batchRequest(requests(2)...))
			require.NoError(t, err)
		})
		span := w.span("submit batch")
		w.requireBelow(span, w.span("request"))
		require.Equal(t, b.ID.String(), attributes(span)["forgerun.batch_id"])
		require.Equal(t, clientA.String(), attributes(span)["forgerun.client_id"])
		for _, task := range w.queue.sent() {
			require.Equal(t, traceparentOf(span), task.TraceParent)
		}
		require.Len(t, w.queue.sent(), 2)
	})
}

// What is wrong with a request is no error of the server.
func TestSpansOfWhatIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		w.traced(func(ctx context.Context) {
			_, err := s.Submit(ctx, request(func(r *job.Request) { r.WorkKind = "NONE" }))
			require.Error(t, err)
			_, err = s.Cancel(ctx, clientA, newID())
			require.Error(t, err)
			w.store.hook("Job", hook{before: fails(1, errStorage)})
			_, err = s.Retry(ctx, clientA, newID())
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
			span := w.span(name)
			require.Equal(t, want.code, attributes(span)["forgerun.error_code"], name)
			require.Equal(t, want.status, span.Status.Code, name)
			require.Equal(t, clientA.String(), attributes(span)["forgerun.client_id"], name)
		}
	})
}

func TestAReplayNamesTheFirstJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		first, err := s.Submit(context.Background(), request(withKey("k")))
		require.NoError(t, err)
		w.traced(func(ctx context.Context) { _, err = s.Submit(ctx, request(withKey("k"))) })
		require.NoError(t, err)
		require.Equal(t, first.JobID.String(), attributes(w.span("submit job"))["forgerun.job_id"])
	})
}

func TestSpansOfARescue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		from := w.traceparent()
		traced := func(r *row) { r.TraceParent = from }
		assigned := w.add(heldByTheDead(job.Assigned, traced))
		running := w.add(heldByTheDead(job.Running, traced))
		retried := w.add(heldByTheDead(job.Running, traced, func(r *row) { r.AutoRetry = true }))
		w.add(heldByTheDead(job.Assigned)) // untraced
		w.lead()
		pass(2 * rescuerInterval)

		tasks := map[job.ID]string{}
		for _, task := range w.queue.sent() {
			tasks[task.JobID] = task.TraceParent
		}
		spans := map[string]tracetest.SpanStub{}
		for _, span := range w.spansNamed("rescue job") {
			w.requireBelow(span, w.span("request"))
			require.Equal(t, codes.Unset, span.Status.Code)
			require.Equal(t, int64(1), attributes(span)["forgerun.attempt"])
			spans[attributes(span)["forgerun.job_id"].(string)] = span
		}
		require.Len(t, spans, 3)
		for task, state := range map[job.Task]string{assigned: "QUEUED", running: "FAILED", retried: "QUEUED"} {
			span := spans[task.JobID.String()]
			require.Equal(t, state, attributes(span)["forgerun.state"])
			if state == "QUEUED" {
				require.Equal(t, traceparentOf(span), tasks[task.JobID])
			}
		}
	})
}

func TestSpansOfARescueThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		from := w.traceparent()
		w.add(heldByTheDead(job.Running, func(r *row) { r.TraceParent = from }))
		w.store.hook("Finish", hook{before: fails(1, errStorage)})
		w.lead()
		pass(2*rescuerInterval + time.Millisecond)
		spans := w.spansNamed("rescue job")
		require.Len(t, spans, 2)
		require.Equal(t, codes.Error, spans[0].Status.Code)
		require.Equal(t, codes.Unset, spans[1].Status.Code)
	})
}
