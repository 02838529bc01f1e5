package jobs

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// newTracingWorld is a world whose log names spans.
func newTracingWorld(t testing.TB) *worldJobs {
	w := newWorldJobs(t)
	w.Logger = slog.New(apptest.TracingHandler{Handler: slog.NewJSONHandler(w.Log, nil)})
	w.completer = batches.NewCompleter(w.Store, w.Queue, w.Metrics, w.Logger)
	w.worker = w.newWorker()
	return w
}

// process hands a task to the worker as the queue does: in a span that goes on from where the task says.
func (w *worldJobs) process(t job.Task) {
	w.T.Helper()
	ctx, span := telemetry.Continue(context.Background(), w.Tracer(), t.TraceParent, telemetry.SpanProcess)
	defer span.End()
	require.NoError(w.T, apptest.Trouble(w.worker.Handle(ctx, t)))
}

// within has an operation of storage make a span of its own.
func (w *worldJobs) within(operation string) {
	w.Store.Hook(operation, apptest.Hook{Before: func(ctx context.Context) error {
		_, span := telemetry.Start(ctx, operation)
		span.End()
		return nil
	}})
}

// A job that is submitted, runs, fails, is retried and canceled: each step has its span, below which storage is asked, with a link
// to where the job came from; and each transition has one line, which names the trace.
func TestTraceOfAJobsLife(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newTracingWorld(t)
		parents := map[string]string{
			"InsertJob": "submit job", "Claim": "assign job", "Finish": "report job", "Retry": "retry job", "Cancel": "cancel job",
		}
		for operation := range parents {
			w.within(operation)
		}
		w.runner = apptest.Fixed(nil, apptest.Failure{Reason: job.DependencyFailed})
		w.start()
		s := w.service(10)
		var id job.ID
		w.Traced(func(ctx context.Context) {
			receipt := apptest.Must(s.Submit(ctx, newRequest(deferred(time.Second), withKey("k"))))(t)
			id = receipt.JobID
		})
		task := w.Queue.Sent()[0]
		apptest.Pass(time.Second)
		w.process(task)
		retry := w.Traced(func(ctx context.Context) { require.NoError(t, second(s.Retry(ctx, apptest.ClientA, id))) })
		w.Traced(func(ctx context.Context) {
			require.NoError(t, second(s.Cancel(telemetry.WithRequest(ctx, "request-2"), apptest.ClientA, id)))
		})

		requests := w.SpansNamed("request")
		for operation, parent := range parents {
			w.RequireBelow(w.Span(operation), w.Span(parent))
		}
		attributes := func(name, state string, attempt int64) {
			t.Helper()
			all := apptest.Attributes(w.Span(name))
			require.Equal(t, []any{id.String(), apptest.ClientA.String(), "SUCCESS_FAST", attempt, state},
				[]any{all["forgerun.job_id"], all["forgerun.client_id"], all["forgerun.work_kind"], all["forgerun.attempt"],
					all["forgerun.state"]}, name)
			require.Equal(t, codes.Unset, w.Span(name).Status.Code, name)
		}
		attributes("submit job", "CREATED", 1)
		attributes("assign job", "ASSIGNED", 1)
		attributes("run job", "FAILED", 1)
		attributes("report job", "FAILED", 1)
		attributes("retry job", "QUEUED", 2)
		attributes("cancel job", "CANCELED", 2)
		require.Equal(t, "request-2", apptest.Attributes(w.Span("cancel job"))["forgerun.request_id"])
		require.NotEmpty(t, apptest.Attributes(w.Span("assign job"))["forgerun.worker_id"])
		for name, parent := range map[string]tracetest.SpanStub{
			"submit job": requests[0], "assign job": w.Span("process job"), "run job": w.Span("process job"), "report job": w.Span("process job"),
			"retry job": requests[1], "cancel job": requests[2],
		} {
			w.RequireBelow(w.Span(name), parent)
		}
		from := func(name string) string {
			require.Len(t, w.Span(name).Links, 1)
			return apptest.TraceparentOf(tracetest.SpanStub{SpanContext: w.Span(name).Links[0].SpanContext})
		}
		require.Equal(t, apptest.TraceparentOf(w.Span("submit job")), task.TraceParent)
		require.Equal(t, apptest.TraceparentOf(w.Span("retry job")), w.Queue.Sent()[1].TraceParent)
		require.Equal(t, retry, from("cancel job"), "whatever comes after a retry belongs to its request")
		w.linesOfAJobsLife(t, requests)
	})
}

func (w *worldJobs) linesOfAJobsLife(t *testing.T, requests tracetest.SpanStubs) {
	t.Helper()
	var steps [][4]any
	for _, line := range w.Log.Lines(t, map[string]any{"msg": "job transition"}) {
		trace := 0
		for i, request := range requests {
			if line["trace_id"] == request.SpanContext.TraceID().String() {
				trace = i + 1
			}
		}
		steps = append(steps, [4]any{line["action"], line["current_state"], line["next_state"], trace})
		request := "request-1"
		if line["action"] == "cancel" {
			request = "request-2" // it has a request of its own
		}
		require.Equal(t, []any{request, apptest.ClientA.String(), "SUCCESS_FAST"},
			[]any{line["request_id"], line["client_id"], line["work_kind"]})
		require.Contains(t, line, "job_id")
		require.Contains(t, line, "attempt")
	}
	require.Equal(t, [][4]any{
		{"submit", "", "CREATED", 1}, {"schedule", "CREATED", "QUEUED", 1},
		{"assign", "QUEUED", "ASSIGNED", 1}, {"run", "ASSIGNED", "RUNNING", 1}, {"finish", "RUNNING", "FAILED", 1},
		{"retry", "FAILED", "QUEUED", 2}, {"cancel", "QUEUED", "CANCELED", 3},
	}, steps)
}
