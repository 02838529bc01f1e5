package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/maintenance"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// process hands a task to the worker as the queue does: in a span that goes on
// from where the task says.
func (w *world) process(t job.Task) error {
	ctx, span := telemetry.Continue(context.Background(), w.Tracer(), t.TraceParent, telemetry.SpanProcess)
	defer span.End()
	return w.worker.Handle(ctx, t)
}

func TestSpansOfAJobFromItsSubmissionToItsEnd(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		s := w.service(10)
		w.Traced(func(ctx context.Context) {
			_, err := s.Submit(ctx, apptest.Request())
			require.NoError(t, err)
		})
		task := w.Queue.Sent()[0]
		require.NoError(t, w.process(task))
		id := task.JobID.String()

		submit := w.Span("submit job")
		w.RequireBelow(submit, w.Span("request"))
		require.Equal(t, map[string]any{
			"forgerun.job_id": id, "forgerun.client_id": apptest.ClientA.String(), "forgerun.request_id": "request-1",
			"forgerun.work_kind": "SUCCESS_FAST", "forgerun.attempt": int64(1), "forgerun.state": "QUEUED",
		}, apptest.Attributes(submit))
		require.Equal(t, apptest.TraceparentOf(submit), task.TraceParent)

		process := w.Span("process job")
		for name, state := range map[string]string{"assign job": "ASSIGNED", "run job": "SUCCEEDED", "report job": "SUCCEEDED"} {
			span := w.Span(name)
			w.RequireBelow(span, process)
			want := map[string]any{
				"forgerun.job_id": id, "forgerun.client_id": apptest.ClientA.String(), "forgerun.request_id": "request-1",
				"forgerun.work_kind": "SUCCESS_FAST", "forgerun.attempt": int64(1), "forgerun.state": state,
			}
			if name == "assign job" {
				want["forgerun.worker_id"] = w.identityNow().String()
			}
			require.Equal(t, want, apptest.Attributes(span), name)
			require.Equal(t, codes.Unset, span.Status.Code, name)
		}
		require.Len(t, w.Names(), 6)
	})
}

// Storage is asked within the spans: its own come below them.
func TestSpansReachStorage(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		within := func(operation string) {
			w.Store.Hook(operation, apptest.Hook{Before: func(ctx context.Context) error {
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
		w.runner = apptest.Fixed(nil, apptest.Failure{Reason: job.DependencyFailed})
		s := w.service(10)
		w.Traced(func(ctx context.Context) {
			receipt, err := s.Submit(ctx, apptest.Request())
			require.NoError(t, err)
			require.NoError(t, w.process(w.Queue.Sent()[0]))
			_, err = s.Retry(ctx, apptest.ClientA, receipt.JobID)
			require.NoError(t, err)
			_, err = s.Cancel(ctx, apptest.ClientA, receipt.JobID)
			require.NoError(t, err)
		})
		for operation, parent := range parents {
			w.RequireBelow(w.Span(operation), w.Span(parent))
		}
	})
}

func TestWhatIsNotTracedHasNoSpans(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		s := w.service(10)
		_, err := s.Submit(context.Background(), apptest.Request(func(r *job.Request) { r.TraceParent = "of the client" }))
		require.NoError(t, err)
		task := w.Queue.Sent()[0]
		require.Equal(t, "of the client", task.TraceParent)
		require.NoError(t, w.process(task))
		_, err = s.Cancel(context.Background(), apptest.ClientA, task.JobID)
		require.NoError(t, err)
		w.Add(apptest.HeldByTheDead(job.Running))
		w.lead()
		apptest.Pass(2 * maintenance.RescuerInterval)
		require.Empty(t, w.Names())
	})
}

func TestSpansOfWork(t *testing.T) {
	tests := map[string]struct {
		runner apptest.RunnerFunc
		during func(w *world, task job.Task)
		want   map[string]any // beside those of every job
		failed string         // what the span's status says
		report bool
	}{
		"fails by the catalogue": {
			runner: apptest.Fixed(nil, apptest.Failure{Reason: job.FailedAfterProgress}), report: true,
			want: map[string]any{"forgerun.state": "FAILED", "forgerun.error_code": "RFA_INTERNAL"},
		},
		"takes too long": {
			runner: apptest.Takes(2 * apptest.Limit), report: true,
			want: map[string]any{"forgerun.state": "FAILED", "forgerun.error_code": "RFA_EXEC_TIMEOUT"},
		},
		"crashes": {
			runner: func(context.Context, job.Definition, int) (*job.Result, error) { panic("a secret") }, report: true,
			want:   map[string]any{"forgerun.state": "FAILED", "forgerun.error_code": "RFA_INTERNAL"},
			failed: job.WorkPanicked.Spec().Detail,
		},
		"has no result": {
			runner: apptest.Fixed(nil, nil), report: true,
			want:   map[string]any{"forgerun.state": "FAILED", "forgerun.error_code": "RFA_INTERNAL"},
			failed: job.OutputInvalid.Spec().Detail,
		},
		"is canceled": {
			runner: apptest.Takes(time.Minute), during: (*world).cancel,
			want: map[string]any{"forgerun.state": "CANCELED"},
		},
		"is taken away": {
			runner: apptest.Takes(time.Minute), during: func(w *world, _ job.Task) { w.Store.Expire() },
			want: map[string]any{}, failed: errLeaseLost.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.runner = test.runner
				w.start()
				from := w.Traceparent()
				task := w.Add(func(r *apptest.Row) { r.TraceParent = from })
				done := make(chan error, 1)
				go func() { done <- w.process(task) }()
				apptest.Pass(time.Second)
				if test.during != nil {
					test.during(w, task)
				}
				require.NoError(t, <-done)

				run := w.Span("run job")
				w.RequireBelow(run, w.Span("process job"))
				all := apptest.Attributes(run)
				for _, key := range []string{"forgerun.job_id", "forgerun.client_id", "forgerun.request_id", "forgerun.work_kind", "forgerun.attempt"} {
					require.Contains(t, all, key)
					delete(all, key)
				}
				require.Equal(t, test.want, all)
				require.Equal(t, test.failed, run.Status.Description)
				require.Equal(t, test.failed != "", run.Status.Code == codes.Error)
				require.Equal(t, test.want["forgerun.state"] == "CANCELED", len(run.Events) == 1 && run.Events[0].Name == "canceled")
				if !test.report {
					require.Empty(t, w.SpansNamed("report job"))
					return
				}
				report := w.Span("report job")
				require.Equal(t, "FAILED", apptest.Attributes(report)["forgerun.state"])
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
		"of an unknown job": {change: func(_ *world, task *job.Task) { task.JobID = app.NewID() }},
		"that storage refuses": {change: func(w *world, _ *job.Task) {
			w.Store.Hook("Claim", apptest.Hook{Before: func(context.Context) error { w.worker.refuse(); return apptest.ErrStorage }})
		}, failed: true, code: "RFA_STORAGE_UNAVAILABLE"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.start()
				from := w.Traceparent()
				task := w.Add(func(r *apptest.Row) { r.TraceParent = from })
				test.change(w, &task)
				require.Equal(t, test.failed, w.process(task) != nil)
				assign := w.Span("assign job")
				require.Equal(t, test.failed, assign.Status.Code == codes.Error)
				all := apptest.Attributes(assign)
				require.Equal(t, []any{task.JobID.String(), int64(1), test.code, nil},
					[]any{all["forgerun.job_id"], all["forgerun.attempt"], all["forgerun.error_code"], all["forgerun.state"]})
				require.Empty(t, w.SpansNamed("run job"))
			})
		})
	}
}

func TestALostClaimShowsInTheReport(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		from := w.Traceparent()
		task := w.Add(func(r *apptest.Row) { r.TraceParent = from })
		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
			w.Store.Change(task.JobID, func(r *apptest.Row) { r.Fence++ })
			return nil, apptest.Failure{Reason: job.DependencyFailed}
		}
		require.NoError(t, w.process(task))
		report := w.Span("report job")
		require.Equal(t, codes.Error, report.Status.Code)
		require.Equal(t, job.ErrStale.Error(), report.Status.Description)
	})
}

func TestAnEarlyTaskGoesOnFromItsClaim(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		from := w.Traceparent()
		task := w.Add(func(r *apptest.Row) { r.TraceParent, r.RunAt = from, time.Now().Add(time.Minute) })
		require.NoError(t, w.process(task))
		require.Equal(t, apptest.TraceparentOf(w.Span("assign job")), w.Queue.Sent()[0].TraceParent)
	})
}

func TestAnAutomaticRetryGoesOnFromTheReport(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Fixed(nil, apptest.Failure{Reason: job.DependencyFailed})
		w.start()
		from := w.Traceparent()
		task := w.Add(func(r *apptest.Row) { r.AutoRetry, r.TraceParent = true, from })
		require.NoError(t, w.process(task))
		require.Equal(t, apptest.TraceparentOf(w.Span("report job")), w.Queue.Sent()[0].TraceParent)

		require.NoError(t, w.process(w.Queue.Sent()[0]), "too early, but that is not the point")
		require.Equal(t, w.Span("request").SpanContext.TraceID(), w.SpansNamed("process job")[1].SpanContext.TraceID())
	})
}
