package jobs

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// Every transition has one line, and each line of a traced job names the trace.
func TestLinesOfATracedJob(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newTracingWorld(t)
		w.start()
		s := w.service(10)
		w.runner = apptest.Fixed(nil, apptest.Failure{Reason: job.DependencyFailed})
		w.Traced(func(ctx context.Context) {
			_, err := s.Submit(ctx, newRequest(func(r *job.Request) { r.AutoRetry = true }, deferred(time.Second)))
			require.NoError(t, err)
			task := w.Queue.Sent()[0]
			apptest.Pass(time.Second)
			require.NoError(t, w.process(task))
			_, err = s.Cancel(telemetry.WithRequest(ctx, "request-2"), apptest.ClientA, task.JobID)
			require.NoError(t, err)
		})
		trace := w.Span("request").SpanContext.TraceID().String()
		lines := w.Log.Lines(t, map[string]any{"msg": "job transition", "trace_id": trace})
		steps := make([][3]any, len(lines))
		for i, line := range lines {
			steps[i] = [3]any{line["action"], line["current_state"], line["next_state"]}
			request := "request-1"
			if line["action"] == "cancel" {
				request = "request-2" // it has a request of its own
			}
			require.Equal(t, []any{request, apptest.ClientA.String(), "SUCCESS_FAST"},
				[]any{line["request_id"], line["client_id"], line["work_kind"]})
			require.Contains(t, line, "job_id")
			require.Contains(t, line, "attempt")
		}
		require.Equal(t, [][3]any{
			{"submit", "", "CREATED"}, {"schedule", "CREATED", "QUEUED"}, {"assign", "QUEUED", "ASSIGNED"}, {"run", "ASSIGNED", "RUNNING"},
			{"finish", "RUNNING", "FAILED"}, {"auto_retry", "FAILED", "QUEUED"}, {"cancel", "QUEUED", "CANCELED"},
		}, steps)
		require.Equal(t, "request-2", apptest.Attributes(w.Span("cancel job"))["forgerun.request_id"])
		require.Equal(t, w.Span("report job").SpanContext.SpanID().String(), lines[4]["span_id"])
		require.Len(t, w.Log.Lines(t, map[string]any{"msg": "job transition"}), len(lines))
	})
}

func TestLinesOfARescue(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newTracingWorld(t)
		from := w.Traceparent()
		traced := func(r *apptest.Row) { r.TraceParent = from }
		w.Add(apptest.HeldByTheDead(job.Assigned, traced))
		w.Add(apptest.HeldByTheDead(job.Running, traced, func(r *apptest.Row) { r.AutoRetry = true }))
		w.lead()
		apptest.Pass(2 * maintenance.RescuerInterval)
		trace := w.Span("request").SpanContext.TraceID().String()
		for action, states := range map[string][2]string{
			"requeue": {"ASSIGNED", "QUEUED"}, "fail": {"RUNNING", "FAILED"}, "auto_retry": {"FAILED", "QUEUED"},
		} {
			lines := w.Log.Lines(t, map[string]any{"msg": "job transition", "action": action, "trace_id": trace})
			require.Len(t, lines, 1, action)
			require.Equal(t, []any{"request-1", apptest.ClientA.String(), "SUCCESS_FAST", states[0], states[1]},
				[]any{lines[0]["request_id"], lines[0]["client_id"], lines[0]["work_kind"], lines[0]["current_state"], lines[0]["next_state"]}, action)
			require.Contains(t, lines[0], "job_id")
			if action == "fail" {
				require.Equal(t, "RFA_EXEC_WORKER_UNAVAILABLE", lines[0]["error_code"])
				require.Equal(t, job.WorkerLost.Spec().Detail, lines[0]["error_message"])
			}
		}
	})
}

// Whatever fails says what it was about, and what went wrong.
func TestLinesOfTrouble(t *testing.T) {
	tests := map[string]struct {
		operation string
		run       func(w *worldJobs)
		want      []string // fields, beside those of all
	}{
		"cannot claim a job":         {"Claim", func(w *worldJobs) { w.start(); _ = w.handle(w.Add()) }, []string{"job_id", "attempt"}},
		"cannot register the worker": {"Register", func(w *worldJobs) { w.start() }, nil},
		"heartbeat failed":           {"Renew", func(w *worldJobs) { w.start(); apptest.Pass(apptest.Heartbeat) }, []string{"worker_id"}},
		"cannot fail a job of a lost worker": {"Finish", func(w *worldJobs) {
			w.Add(apptest.HeldByTheDead(job.Running))
			w.lead()
			apptest.Pass(maintenance.RescuerInterval)
		}, []string{"request_id", "client_id", "job_id"}},
		"cannot requeue jobs of a lost worker": {"Release", func(w *worldJobs) {
			w.Add(apptest.HeldByTheDead(job.Assigned))
			w.lead()
			apptest.Pass(maintenance.RescuerInterval)
		}, []string{"jobs"}},
		"maintenance failed": {"QueueDue", func(w *worldJobs) { w.lead(); apptest.Pass(maintenance.SchedulerInterval) },
			[]string{"task"}},
		"leader election failed": {"Lead", func(w *worldJobs) { w.lead() }, nil},
		"storage trouble while a job is held": {"Finish", func(w *worldJobs) { w.start(); _ = w.handle(w.Add()) },
			[]string{"request_id", "client_id", "job_id", "attempt"}},
		"cannot complete batches": {"CompleteBatches", func(w *worldJobs) {
			w.Background(w.completer.Run)
			w.completer.Touch(app.NewID())
			apptest.Pass(batches.RestInterval)
		}, nil},
		"cannot look for missed events": {"EventSeqs", func(w *worldJobs) { w.watching(); apptest.Pass(time.Minute) }, nil},
		"cannot count jobs": {"Load", func(w *worldJobs) {
			w.Background(NewCapacity(oneClient(1, 1), w.Store, w.Logger).Run)
		}, nil},
		"cannot count workers": {"LiveWorkers", func(w *worldJobs) {
			w.Background(NewCapacity(oneClient(1, 1), w.Store, w.Logger).Run)
		}, nil},
		"cannot resign as leader; the lease will run out": {"Resign", func(w *worldJobs) { _, stop := w.lead(); stop() }, nil},
	}
	for message, test := range tests {
		t.Run(message, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorldJobs(t)
				w.Store.Hook(test.operation, apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
				test.run(w)
				lines := w.Log.Lines(t, map[string]any{"msg": message})
				require.NotEmpty(t, lines)
				require.Equal(t, "RFA_STORAGE_UNAVAILABLE", lines[0]["error_code"])
				require.Equal(t, apptest.ErrStorage.Error(), lines[0]["error_message"])
				for _, field := range append(test.want, "action") {
					require.NotEmpty(t, lines[0][field], field)
				}
			})
		})
	}
}

// watching has a client watch, so that the hub has something to sweep.
func (w *worldJobs) watching() {
	w.listener.up.Store(false)
	_, stop := w.hub.Watch(apptest.ClientA, w.Add().JobID)
	w.T.Cleanup(stop)
	w.Background(w.hub.Run)
}
