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

func TestEndsOfAttemptsAreCounted(t *testing.T) {
	fails := apptest.Fixed(nil, apptest.Failure{Reason: job.DependencyFailed})
	for name, test := range map[string]struct {
		runner  apptest.RunnerFunc
		attempt int
		want    map[string]float64
	}{
		"success": {apptest.Takes(2 * time.Second), 1, map[string]float64{"jobs_succeeded_total": 1}},
		"failure": {fails, 1, map[string]float64{"jobs_failed_total": 1, "job_retries_total": 1, "jobs_queued_total": 1}},
		"success of a retry": {apptest.Takes(2 * time.Second), 2,
			map[string]float64{"jobs_succeeded_total": 1, "job_retry_outcomes_total": 1}},
		"failure of the last retry": {fails, 4, map[string]float64{"jobs_failed_total": 1, "job_retry_outcomes_total": 1}},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.runner = test.runner
			w.start()
			task := w.Add(func(r *apptest.Row) { r.AutoRetry, r.Attempt = true, test.attempt })
			require.NoError(t, w.handle(task))
			for _, metric := range []string{
				"jobs_succeeded_total", "jobs_failed_total", "jobs_canceled_total", "jobs_queued_total", "job_retries_total",
				"job_retry_outcomes_total",
			} {
				require.Equal(t, test.want[metric], w.Sum(metric), metric)
			}
			outcome := w.Store.RowOf(task.JobID).Ends[0].State
			n, _ := w.Executions(outcome)
			require.Equal(t, uint64(1), n)
			if test.attempt > 1 {
				require.Equal(t, 1.0, w.Metric(w.Metrics.RetryOutcomes.WithLabelValues(string(outcome))))
			}
		})
	}
}

// A job's times in each of its steps, with the trace that they are of.
func TestTimesOfAJobAreCounted(t *testing.T) {
	working(t, apptest.Takes(4*time.Second), func(t *testing.T, w *world) {
		w.Store.Hook("Start", apptest.Hook{Before: apptest.Slow(2 * time.Second)})
		from := w.Traceparent()
		task := w.Add(func(r *apptest.Row) { r.TraceParent = from })
		apptest.Pass(3 * time.Second)
		require.NoError(t, w.process(task))
		for name, want := range map[string]float64{
			"job_queued_seconds": 3, "job_assigned_seconds": 2, "job_queue_wait_seconds": 3, "job_execution_seconds": 4,
		} {
			require.Equal(t, want, w.Sum(name), name)
		}
		trace := []string{w.Span("request").SpanContext.TraceID().String()}
		require.Equal(t, [][]string{trace, trace}, [][]string{w.Exemplars("job_queue_wait_seconds"), w.Exemplars("job_execution_seconds")})
		require.Equal(t, 4.0, w.Sum("worker_slots"))
	})
}

func TestLatenessIsMeasured(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		early, late := w.AddDeferred(time.Second), w.AddDeferred(-time.Minute)
		w.Add() // which is not scheduled
		apptest.Pass(time.Second)
		w.start()
		apptest.Pass(250 * time.Millisecond)
		require.NoError(t, w.handle(early), "before the scheduler")
		require.Equal(t, []job.State{job.Created, job.Queued, job.Assigned, job.Running, job.Succeeded}, w.Store.RowOf(early.JobID).History)
		require.InDelta(t, 0.25, w.Sum("job_schedule_lateness_seconds"), 1e-6)
		require.Equal(t, 1.0, w.Sum("jobs_queued_total"), "a claim that comes before the scheduler passes QUEUED, and that counts")

		w.lead()
		apptest.Pass(maintenance.SchedulerInterval)
		require.Equal(t, job.Queued, w.Store.RowOf(late.JobID).State)
		require.InDelta(t, 0.25+61.45, w.Sum("job_schedule_lateness_seconds"), 1e-6)
		require.Equal(t, 2.0, w.Sum("jobs_queued_total"))
	})
}

// process hands a task to the worker as the queue does: in a span that goes on
// from where the task says.
func (w *world) process(t job.Task) error {
	ctx, span := telemetry.Continue(context.Background(), w.Tracer(), t.TraceParent, telemetry.SpanProcess)
	defer span.End()
	return apptest.Trouble(w.worker.Handle(ctx, t))
}

// How the spans of an attempt end, "" for well and "-" for not at all. That of a whole life is in app/jobs.
func TestSpansOfWork(t *testing.T) {
	type during func(w *world, task *job.Task)
	nothing := func(*world, *job.Task) {}
	fails := apptest.Fixed(nil, apptest.Failure{Reason: job.FailedAfterProgress})
	for name, test := range map[string]struct {
		runner              apptest.RunnerFunc
		before, during      during
		state, code         any // of the work
		assign, run, report string
	}{
		"fails by the catalogue": {fails, nothing, nothing, "FAILED", "RFA_INTERNAL", "", "", ""},
		"takes too long":         {apptest.Takes(2 * apptest.Limit), nothing, nothing, "FAILED", "RFA_EXEC_TIMEOUT", "", "", ""},
		"crashes": {func(context.Context, job.Definition, int) (*job.Result, error) { panic("a secret") }, nothing, nothing,
			"FAILED", "RFA_INTERNAL", "", job.WorkPanicked.Spec().Detail, ""},
		"is canceled": {apptest.Takes(time.Minute), nothing, func(w *world, task *job.Task) { w.cancel(*task) }, "CANCELED", nil, "", "", "-"},
		"is taken away": {apptest.Takes(time.Minute), nothing, func(w *world, _ *job.Task) { w.Store.Expire() }, nil, nil,
			"", errLeaseLost.Error(), "-"},
		"cannot write its end": {apptest.Takes(2 * time.Second), nothing, func(w *world, task *job.Task) {
			w.Store.Change(task.JobID, func(r *apptest.Row) { r.Fence++ })
		}, "SUCCEEDED", nil, "", "", job.ErrStale.Error()},
		"is unknown":  {nil, func(_ *world, task *job.Task) { task.JobID = app.NewID() }, nothing, nil, nil, "", "-", "-"},
		"comes early": {nil, func(w *world, task *job.Task) { w.Store.Change(task.JobID, later) }, nothing, nil, nil, "", "-", "-"},
		"is not known": {nil, func(w *world, _ *job.Task) { w.Store.Hook("Claim", refusing(w)) }, nothing, nil, nil,
			apptest.ErrStorage.Detail, "-", "-"},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.runner = test.runner
			w.start()
			from := w.Traceparent()
			task := w.Add(func(r *apptest.Row) { r.TraceParent = from })
			test.before(w, &task)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = w.process(task) // the spans tell how it ended
			}()
			apptest.Pass(time.Second)
			test.during(w, &task)
			<-done
			for name, want := range map[string]string{"assign job": test.assign, "run job": test.run, "report job": test.report} {
				if want == "-" {
					require.Empty(t, w.SpansNamed(name))
					continue
				}
				span := w.Span(name)
				w.RequireBelow(span, w.Span("process job"))
				require.Equal(t, want != "", span.Status.Code == codes.Error, name)
				require.Contains(t, span.Status.Description, want, name)
				all := apptest.Attributes(span)
				require.Equal(t, []any{task.JobID.String(), int64(1)}, []any{all["forgerun.job_id"], all["forgerun.attempt"]}, name)
				if name == "run job" {
					require.Equal(t, []any{test.state, test.code}, []any{all["forgerun.state"], all["forgerun.error_code"]})
				}
			}
		})
	}
}

func later(r *apptest.Row) { r.RunAt = time.Now().Add(time.Minute) }

// refusing fails, and has the worker give up.
func refusing(w *world) apptest.Hook {
	return apptest.Hook{Before: func(context.Context) error {
		w.worker.refuse()
		return apptest.ErrStorage
	}}
}

func TestAnAutomaticRetryGoesOnFromTheReport(t *testing.T) {
	working(t, apptest.Fixed(nil, apptest.Failure{Reason: job.DependencyFailed}), func(t *testing.T, w *world) {
		from := w.Traceparent()
		require.NoError(t, w.process(w.Add(func(r *apptest.Row) { r.AutoRetry, r.TraceParent = true, from })))
		require.Equal(t, apptest.TraceparentOf(w.Span("report job")), w.Queue.Sent()[0].TraceParent)
	})
}
