package app

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/job"
)

// tracingHandler writes the span of the context that a line is written with, as
// the program's logger does.
type tracingHandler struct{ slog.Handler }

func (h tracingHandler) Handle(ctx context.Context, r slog.Record) error {
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		r.AddAttrs(slog.String("trace_id", s.TraceID().String()), slog.String("span_id", s.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// newTracingWorld is a world whose log names spans.
func newTracingWorld(t testing.TB) *world {
	w := newWorld(t)
	w.logger = slog.New(tracingHandler{slog.NewJSONHandler(w.log, nil)})
	w.settler = NewBatchCompleter(w.store, w.queue, w.metrics, w.logger)
	w.worker = w.newWorker()
	return w
}

// Every transition has one line, and each line of a traced job names the trace.
func TestLinesOfATracedJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTracingWorld(t)
		w.start()
		s := w.service(10)
		w.runner = fixed(nil, failure{job.DependencyFailed})
		w.traced(func(ctx context.Context) {
			_, err := s.Submit(ctx, request(func(r *job.Request) { r.AutoRetry = true }, deferred(time.Second)))
			require.NoError(t, err)
			task := w.queue.sent()[0]
			pass(time.Second)
			require.NoError(t, w.process(task))
			_, err = s.Cancel(ctx, clientA, task.JobID)
			require.NoError(t, err)
		})
		trace := w.span("request").SpanContext.TraceID().String()
		lines := w.log.lines(t, map[string]any{"msg": "job transition", "trace_id": trace})
		steps := make([][3]any, len(lines))
		for i, line := range lines {
			steps[i] = [3]any{line["action"], line["current_state"], line["next_state"]}
			require.Equal(t, []any{"request-1", clientA.String(), "SUCCESS_FAST"}, []any{line["request_id"], line["client_id"], line["work_kind"]})
			require.Contains(t, line, "job_id")
			require.Contains(t, line, "attempt")
		}
		require.Equal(t, [][3]any{
			{"submit", "", "CREATED"}, {"schedule", "CREATED", "QUEUED"}, {"assign", "QUEUED", "ASSIGNED"}, {"run", "ASSIGNED", "RUNNING"},
			{"finish", "RUNNING", "FAILED"}, {"auto_retry", "FAILED", "QUEUED"}, {"cancel", "QUEUED", "CANCELED"},
		}, steps)
		require.Equal(t, w.span("report job").SpanContext.SpanID().String(), lines[4]["span_id"])
		require.Len(t, w.log.lines(t, map[string]any{"msg": "job transition"}), len(lines))
	})
}

func TestLinesOfARescue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTracingWorld(t)
		from := w.traceparent()
		traced := func(r *row) { r.TraceParent = from }
		w.add(heldByTheDead(job.Assigned, traced))
		w.add(heldByTheDead(job.Running, traced, func(r *row) { r.AutoRetry = true }))
		w.lead()
		pass(2 * rescuerInterval)
		trace := w.span("request").SpanContext.TraceID().String()
		for action, states := range map[string][2]string{
			"requeue": {"ASSIGNED", "QUEUED"}, "fail": {"RUNNING", "FAILED"}, "auto_retry": {"FAILED", "QUEUED"},
		} {
			lines := w.log.lines(t, map[string]any{"msg": "job transition", "action": action, "trace_id": trace})
			require.Len(t, lines, 1, action)
			require.Equal(t, []any{"request-1", clientA.String(), "SUCCESS_FAST", states[0], states[1]},
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
		run       func(w *world)
		want      []string // fields, beside those of all
	}{
		"cannot claim a job":                              {"Claim", func(w *world) { w.start(); _ = w.handle(w.add()) }, []string{"job_id", "attempt"}},
		"cannot register the worker":                      {"Register", func(w *world) { w.start() }, nil},
		"heartbeat failed":                                {"Renew", func(w *world) { w.start(); pass(testHeartbeat) }, []string{"worker_id"}},
		"cannot fail a job of a lost worker":              {"Finish", func(w *world) { w.add(heldByTheDead(job.Running)); w.lead(); pass(rescuerInterval) }, []string{"request_id", "client_id", "job_id"}},
		"cannot requeue jobs of a lost worker":            {"Release", func(w *world) { w.add(heldByTheDead(job.Assigned)); w.lead(); pass(rescuerInterval) }, []string{"jobs"}},
		"maintenance failed":                              {"QueueDue", func(w *world) { w.lead(); pass(schedulerInterval) }, []string{"task"}},
		"leader election failed":                          {"Lead", func(w *world) { w.lead() }, nil},
		"storage trouble while a job is held":             {"Finish", func(w *world) { w.start(); _ = w.handle(w.add()) }, []string{"request_id", "client_id", "job_id", "attempt"}},
		"cannot settle batches":                           {"CompleteBatches", func(w *world) { w.background(w.settler.Run); w.settler.Touch(newID()); pass(settleRest) }, nil},
		"cannot look for missed news":                     {"EventSeqs", func(w *world) { w.watching(); pass(time.Minute) }, nil},
		"cannot count jobs":                               {"Load", func(w *world) { w.background(NewCapacity(1, 1, w.store, w.logger).Run) }, nil},
		"cannot count workers":                            {"LiveWorkers", func(w *world) { w.background(NewCapacity(1, 1, w.store, w.logger).Run) }, nil},
		"cannot resign as leader; the lease will run out": {"Resign", func(w *world) { _, stop := w.lead(); stop() }, nil},
	}
	for message, test := range tests {
		t.Run(message, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.store.hook(test.operation, hook{before: fails(1, errStorage)})
				test.run(w)
				lines := w.log.lines(t, map[string]any{"msg": message})
				require.NotEmpty(t, lines)
				require.Equal(t, "RFA_STORAGE_UNAVAILABLE", lines[0]["error_code"])
				require.Equal(t, errStorage.Error(), lines[0]["error_message"])
				for _, field := range append(test.want, "action") {
					require.NotEmpty(t, lines[0][field], field)
				}
			})
		})
	}
}

// watching has a client watch, so that the hub has something to sweep.
func (w *world) watching() {
	w.listener.connected = false
	_, stop := w.hub.Watch(clientA, w.add().JobID)
	w.t.Cleanup(stop)
	w.background(w.hub.Run)
}
