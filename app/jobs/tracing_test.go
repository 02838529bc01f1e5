package jobs

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/maintenance"
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

// A batch has one span, from which its jobs go on. What is wrong with a request is no error of the server; a replay names the first job.
func TestSpansOfBatchesAndOfWhatIsNotDone(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		var b *job.Batch
		w.Traced(func(ctx context.Context) {
			var err error
			b, _, err = s.SubmitBatch(ctx, newBatchRequest(newRequests(2)...))
			require.NoError(t, err)
		})
		batch := w.Span("submit batch")
		w.RequireBelow(batch, w.Span("request"))
		all := apptest.Attributes(batch)
		require.Equal(t, []any{b.ID.String(), apptest.ClientA.String()}, []any{all["forgerun.batch_id"], all["forgerun.client_id"]})
		for _, task := range w.Queue.Sent() {
			require.Equal(t, apptest.TraceparentOf(batch), task.TraceParent)
		}

		first := w.submit(s, withKey("k"))
		w.Traced(func(ctx context.Context) {
			require.NoError(t, second(s.Submit(ctx, newRequest(withKey("k")))))
			require.Error(t, second(s.Submit(ctx, newRequest(ofKind("NONE")))))
			require.Error(t, second(s.Cancel(ctx, apptest.ClientA, app.NewID())))
			w.Store.Hook("Job", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
			require.Error(t, second(s.Retry(ctx, apptest.ClientA, app.NewID())))
		})
		submits := w.SpansNamed("submit job")
		require.Equal(t, first.JobID.String(), apptest.Attributes(submits[0])["forgerun.job_id"])
		for i, want := range []struct {
			code   string
			status codes.Code
		}{{"RFA_JOB_VALIDATION_FAILED", codes.Unset}, {"RFA_JOB_NOT_FOUND", codes.Unset}, {"RFA_STORAGE_UNAVAILABLE", codes.Error}} {
			span := []tracetest.SpanStub{submits[1], w.Span("cancel job"), w.Span("retry job")}[i]
			require.Equal(t, want.code, apptest.Attributes(span)["forgerun.error_code"])
			require.Equal(t, want.status, span.Status.Code)
			require.Equal(t, apptest.ClientA.String(), apptest.Attributes(span)["forgerun.client_id"])
		}
	})
}

// A rescue goes on from the trace of the job, in spans and in lines.
func TestTraceOfARescue(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newTracingWorld(t)
		from := w.Traceparent()
		traced := func(r *apptest.Row) { r.TraceParent = from }
		assigned := w.Add(apptest.HeldByTheDead(job.Assigned, traced))
		retried := w.Add(apptest.HeldByTheDead(job.Running, traced, func(r *apptest.Row) { r.AutoRetry = true }))
		w.Store.Hook("Finish", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		w.lead()
		apptest.Pass(2*maintenance.RescuerInterval + time.Millisecond)

		spans := map[string][]tracetest.SpanStub{}
		for _, span := range w.SpansNamed("rescue job") {
			w.RequireBelow(span, w.Span("request"))
			require.Equal(t, int64(1), apptest.Attributes(span)["forgerun.attempt"])
			id := apptest.Attributes(span)["forgerun.job_id"].(string)
			spans[id] = append(spans[id], span)
		}
		require.Equal(t, codes.Error, spans[retried.JobID.String()][0].Status.Code, "storage failed")
		for _, task := range w.Queue.Sent() {
			of := spans[task.JobID.String()]
			last := of[len(of)-1]
			require.Equal(t, codes.Unset, last.Status.Code)
			require.Equal(t, "QUEUED", apptest.Attributes(last)["forgerun.state"])
			require.Equal(t, apptest.TraceparentOf(last), task.TraceParent)
		}
		require.Equal(t, []int{1, 2, 2}, []int{len(spans[assigned.JobID.String()]), len(spans[retried.JobID.String()]), len(w.Queue.Sent())})

		trace := w.Span("request").SpanContext.TraceID().String()
		for action, states := range map[string][2]string{
			"requeue": {"ASSIGNED", "QUEUED"}, "fail": {"RUNNING", "FAILED"}, "auto_retry": {"FAILED", "QUEUED"},
		} {
			lines := w.Log.Lines(t, map[string]any{"msg": "job transition", "action": action, "trace_id": trace, "request_id": "request-1",
				"client_id": apptest.ClientA.String(), "work_kind": "SUCCESS_FAST", "current_state": states[0], "next_state": states[1]})
			require.Len(t, lines, 1, action)
			if action == "fail" {
				require.Equal(t, "RFA_EXEC_WORKER_UNAVAILABLE", lines[0]["error_code"])
				require.Equal(t, job.WorkerLost.Spec().Detail, lines[0]["error_message"])
			}
		}
	})
}
