package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// traced runs f as of a request that is traced, and gives its traceparent.
func (w *testWorld) traced(f func(ctx context.Context)) (traceparent string) {
	ctx, span := w.tracer().Start(context.Background(), "request", trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	f(ctx)
	return telemetry.Traceparent(ctx)
}

// traceparent is of a request that has ended.
func (w *testWorld) traceparent() string { return w.traced(func(context.Context) {}) }

// process hands a task to the worker as the queue does: in a span that goes on
// from where the task says.
func (w *world) process(t job.Task) error {
	ctx, span := telemetry.Continue(context.Background(), w.tracer(), t.TraceParent, telemetry.SpanProcess)
	defer span.End()
	return w.worker.Handle(ctx, t)
}

// span gives the only span of a name that has ended.
func (w *testWorld) span(name string) tracetest.SpanStub {
	w.t.Helper()
	named := w.spansNamed(name)
	require.Len(w.t, named, 1, name)
	return named[0]
}

func (w *testWorld) spansNamed(name string) (named []tracetest.SpanStub) {
	for _, s := range w.spans.GetSpans() {
		if s.Name == name {
			named = append(named, s)
		}
	}
	return named
}

// names gives the names of all spans that have ended.
func (w *testWorld) names() (names []string) {
	for _, s := range w.spans.GetSpans() {
		names = append(names, s.Name)
	}
	return names
}

func (w *testWorld) requireBelow(child, parent tracetest.SpanStub) {
	w.t.Helper()
	require.Equal(w.t, parent.SpanContext.TraceID(), child.SpanContext.TraceID())
	require.Equal(w.t, parent.SpanContext.SpanID(), child.Parent.SpanID())
}

// traceparentOf is what goes on from a span.
func traceparentOf(s tracetest.SpanStub) string {
	return telemetry.Traceparent(trace.ContextWithSpanContext(context.Background(), s.SpanContext))
}

// attributes of a span, by their names.
func attributes(s tracetest.SpanStub) map[string]any {
	all := map[string]any{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

func TestSpansOfAJobFromItsSubmissionToItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		s := w.service(10)
		w.traced(func(ctx context.Context) {
			_, err := s.Submit(ctx, request())
			require.NoError(t, err)
		})
		task := w.queue.sent()[0]
		require.NoError(t, w.process(task))
		id := task.JobID.String()

		submit := w.span("submit job")
		w.requireBelow(submit, w.span("request"))
		require.Equal(t, map[string]any{
			"forgerun.job_id": id, "forgerun.client_id": clientA.String(), "forgerun.request_id": "request-1",
			"forgerun.work_kind": "SUCCESS_FAST", "forgerun.attempt": int64(1), "forgerun.state": "QUEUED",
		}, attributes(submit))
		require.Equal(t, traceparentOf(submit), task.TraceParent)

		process := w.span("process job")
		for name, state := range map[string]string{"assign job": "ASSIGNED", "run job": "SUCCEEDED", "report job": "SUCCEEDED"} {
			span := w.span(name)
			w.requireBelow(span, process)
			want := map[string]any{
				"forgerun.job_id": id, "forgerun.client_id": clientA.String(), "forgerun.request_id": "request-1",
				"forgerun.work_kind": "SUCCESS_FAST", "forgerun.attempt": int64(1), "forgerun.state": state,
			}
			if name == "assign job" {
				want["forgerun.worker_id"] = w.identityNow().String()
			}
			require.Equal(t, want, attributes(span), name)
			require.Equal(t, codes.Unset, span.Status.Code, name)
		}
		require.Len(t, w.names(), 6)
	})
}

// Storage is asked within the spans: its own come below them.
func TestSpansReachStorage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		within := func(operation string) {
			w.store.hook(operation, hook{before: func(ctx context.Context) error {
				_, span := telemetry.Start(ctx, operation)
				span.End()
				return nil
			}})
		}
		parents := map[string]string{
			"InsertJob": "submit job", "Claim": "assign job", "Finish": "report job", "Retry": "retry job", "Cancel": "cancel job",
		}
		for operation := range parents {
			within(operation)
		}
		w.runner = fixed(nil, failure{job.DependencyFailed})
		s := w.service(10)
		w.traced(func(ctx context.Context) {
			receipt, err := s.Submit(ctx, request())
			require.NoError(t, err)
			require.NoError(t, w.process(w.queue.sent()[0]))
			_, err = s.Retry(ctx, clientA, receipt.JobID)
			require.NoError(t, err)
			_, err = s.Cancel(ctx, clientA, receipt.JobID)
			require.NoError(t, err)
		})
		for operation, parent := range parents {
			w.requireBelow(w.span(operation), w.span(parent))
		}
	})
}

func TestWhatIsNotTracedHasNoSpans(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		s := w.service(10)
		_, err := s.Submit(context.Background(), request(func(r *job.Request) { r.TraceParent = "of the client" }))
		require.NoError(t, err)
		task := w.queue.sent()[0]
		require.Equal(t, "of the client", task.TraceParent)
		require.NoError(t, w.process(task))
		_, err = s.Cancel(context.Background(), clientA, task.JobID)
		require.NoError(t, err)
		w.add(heldByTheDead(job.Running))
		w.lead()
		pass(2 * rescuerInterval)
		require.Empty(t, w.names())
	})
}

func TestSpansOfWork(t *testing.T) {
	tests := map[string]struct {
		runner runnerFunc
		during func(w *world, task job.Task)
		want   map[string]any // beside those of every job
		failed string         // what the span's status says
		report bool
	}{
		"fails by the catalogue": {
			runner: fixed(nil, failure{job.FailedAfterProgress}), report: true,
			want: map[string]any{"forgerun.state": "FAILED", "forgerun.error_code": "RFA_INTERNAL"},
		},
		"takes too long": {
			runner: takes(2 * testLimit), report: true,
			want: map[string]any{"forgerun.state": "FAILED", "forgerun.error_code": "RFA_EXEC_TIMEOUT"},
		},
		"crashes": {
			runner: func(context.Context, job.Definition, int) (*job.Result, error) { panic("a secret") }, report: true,
			want:   map[string]any{"forgerun.state": "FAILED", "forgerun.error_code": "RFA_INTERNAL"},
			failed: job.WorkPanicked.Spec().Detail,
		},
		"has no result": {
			runner: fixed(nil, nil), report: true,
			want:   map[string]any{"forgerun.state": "FAILED", "forgerun.error_code": "RFA_INTERNAL"},
			failed: job.OutputInvalid.Spec().Detail,
		},
		"is canceled": {
			runner: takes(time.Minute), during: (*world).cancel,
			want: map[string]any{"forgerun.state": "CANCELED"},
		},
		"is taken away": {
			runner: takes(time.Minute), during: func(w *world, _ job.Task) { w.store.expire() },
			want: map[string]any{}, failed: errLeaseLost.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.runner = test.runner
				w.start()
				from := w.traceparent()
				task := w.add(func(r *row) { r.TraceParent = from })
				done := make(chan error, 1)
				go func() { done <- w.process(task) }()
				pass(time.Second)
				if test.during != nil {
					test.during(w, task)
				}
				require.NoError(t, <-done)

				run := w.span("run job")
				w.requireBelow(run, w.span("process job"))
				all := attributes(run)
				for _, key := range []string{"forgerun.job_id", "forgerun.client_id", "forgerun.request_id", "forgerun.work_kind", "forgerun.attempt"} {
					require.Contains(t, all, key)
					delete(all, key)
				}
				require.Equal(t, test.want, all)
				require.Equal(t, test.failed, run.Status.Description)
				require.Equal(t, test.failed != "", run.Status.Code == codes.Error)
				require.Equal(t, test.want["forgerun.state"] == "CANCELED", len(run.Events) == 1 && run.Events[0].Name == "canceled")
				if !test.report {
					require.Empty(t, w.spansNamed("report job"))
					return
				}
				report := w.span("report job")
				require.Equal(t, "FAILED", attributes(report)["forgerun.state"])
				require.Equal(t, codes.Unset, report.Status.Code, "the failure was reported well")
			})
		})
	}
}

func TestSpansOfClaims(t *testing.T) {
	tests := map[string]struct {
		change func(w *world, task *job.Task)
		failed bool
		code   any
	}{
		"of a spent task":   {change: func(w *world, task *job.Task) { w.cancel(*task) }},
		"of an unknown job": {change: func(_ *world, task *job.Task) { task.JobID = newID() }},
		"that storage refuses": {change: func(w *world, _ *job.Task) {
			w.store.hook("Claim", hook{before: func(context.Context) error { w.worker.refuse(); return errStorage }})
		}, failed: true, code: "RFA_STORAGE_UNAVAILABLE"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.start()
				from := w.traceparent()
				task := w.add(func(r *row) { r.TraceParent = from })
				test.change(w, &task)
				require.Equal(t, test.failed, w.process(task) != nil)
				assign := w.span("assign job")
				require.Equal(t, test.failed, assign.Status.Code == codes.Error)
				all := attributes(assign)
				require.Equal(t, []any{task.JobID.String(), int64(1), test.code, nil},
					[]any{all["forgerun.job_id"], all["forgerun.attempt"], all["forgerun.error_code"], all["forgerun.state"]})
				require.Empty(t, w.spansNamed("run job"))
			})
		})
	}
}

func TestALostClaimShowsInTheReport(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		from := w.traceparent()
		task := w.add(func(r *row) { r.TraceParent = from })
		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
			w.store.change(task.JobID, func(r *row) { r.fence++ })
			return nil, failure{job.DependencyFailed}
		}
		require.NoError(t, w.process(task))
		report := w.span("report job")
		require.Equal(t, codes.Error, report.Status.Code)
		require.Equal(t, job.ErrStale.Error(), report.Status.Description)
	})
}

func TestAnEarlyTaskGoesOnFromItsClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		from := w.traceparent()
		task := w.add(func(r *row) { r.TraceParent, r.RunAt = from, time.Now().Add(time.Minute) })
		require.NoError(t, w.process(task))
		require.Equal(t, traceparentOf(w.span("assign job")), w.queue.sent()[0].TraceParent)
	})
}

func TestAnAutomaticRetryGoesOnFromTheReport(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = fixed(nil, failure{job.DependencyFailed})
		w.start()
		from := w.traceparent()
		task := w.add(func(r *row) { r.AutoRetry, r.TraceParent = true, from })
		require.NoError(t, w.process(task))
		require.Equal(t, traceparentOf(w.span("report job")), w.queue.sent()[0].TraceParent)

		require.NoError(t, w.process(w.queue.sent()[0]), "too early, but that is not the point")
		require.Equal(t, w.span("request").SpanContext.TraceID(), w.spansNamed("process job")[1].SpanContext.TraceID())
	})
}
