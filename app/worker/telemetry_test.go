package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
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
		run(t, name, test.runner, func(t *testing.T, w *world) {
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
		early := w.AddDeferred(time.Second)
		w.Add() // which is not scheduled
		apptest.Pass(time.Second)
		w.start()
		apptest.Pass(250 * time.Millisecond)
		require.NoError(t, w.handle(early), "before the scheduler")
		require.Equal(t, []job.State{job.Created, job.Queued, job.Assigned, job.Running, job.Succeeded}, w.Store.RowOf(early.JobID).History)
		require.InDelta(t, 0.25, w.Sum("job_schedule_lateness_seconds"), 1e-6)
		require.Equal(t, 1.0, w.Sum("jobs_queued_total"), "a claim that comes before the scheduler passes QUEUED, and that counts")
	})
}

// process hands a task to the worker as the queue does: in a span that goes on
// from where the task says.
func (w *world) process(t job.Task) error {
	ctx, span := telemetry.Continue(context.Background(), w.Tracer(), t.TraceParent, telemetry.SpanProcess)
	defer span.End()
	return apptest.Trouble(w.worker.Handle(ctx, t))
}
