package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// process hands a task to the worker as the queue does: in a span that goes on
// from where the task says.
func (w *world) process(t job.Task) error {
	ctx, span := telemetry.Continue(context.Background(), w.Tracer(), t.TraceParent, telemetry.SpanProcess)
	defer span.End()
	return apptest.Trouble(w.worker.Handle(ctx, t))
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
		"of a used task":    {change: func(w *world, task *job.Task) { w.cancel(*task) }},
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

// That a task came early fails no span.
func TestSpanOfAnEarlyTask(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		from := w.Traceparent()
		task := w.Add(func(r *apptest.Row) { r.TraceParent, r.RunAt = from, time.Now().Add(time.Minute) })
		var early *job.TaskEarly
		require.ErrorAs(t, w.process(task), &early)
		require.Equal(t, codes.Unset, w.Span("assign job").Status.Code)
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

		var early *job.TaskEarly
		require.ErrorAs(t, w.process(w.Queue.Sent()[0]), &early, "that is not the point")
		require.Equal(t, w.Span("request").SpanContext.TraceID(), w.SpansNamed("process job")[1].SpanContext.TraceID())
	})
}
