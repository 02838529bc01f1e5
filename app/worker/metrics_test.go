package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/maintenance"
	"github.com/forgerun/forgerun/job"
)

func TestTheUsualFailureOfAKindIsThereFromTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	codes := map[string]string{}
	families, err := w.Registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "jobs_failed_total" {
				codes[m.GetLabel()[1].GetValue()] = m.GetLabel()[0].GetValue()
			}
		}
	}
	require.Equal(t, "RFA_EXEC_TIMEOUT", codes["RUNS_OVER_TIMEOUT"])
	require.Equal(t, "RFA_DEPENDENCY_TIMEOUT", codes["RETRY_ON_FAIL"])
	require.Equal(t, "RFA_EXEC_WORKER_UNAVAILABLE", codes["SUCCESS_FAST"])
	require.Len(t, codes, len(job.Kinds()))
}

// With metrics off everything works on, uncounted.
func TestMetricsCanBeOff(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Metrics = app.NewMetrics(nil)
		w.completer = batches.NewCompleter(w.Store, w.Queue, w.Metrics, w.Logger)
		w.worker = w.newWorker()
		w.start()
		w.lead()
		task := w.Add()
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)
		apptest.Pass(time.Minute)
		require.NotZero(t, w.Store.Count("Backlog"))
	})
}

func TestEndsOfAttemptsAreCounted(t *testing.T) {
	tests := map[string]struct {
		runner  apptest.RunnerFunc
		attempt int
		want    map[string]float64
	}{
		"success": {runner: apptest.Takes(2 * time.Second), attempt: 1, want: map[string]float64{"jobs_succeeded_total": 1}},
		"failure": {
			runner: apptest.Fixed(nil, apptest.Failure{Reason: job.DependencyFailed}), attempt: 1,
			want: map[string]float64{"jobs_failed_total": 1, "job_retries_total": 1, "jobs_queued_total": 1},
		},
		"success of a retry": {
			runner: apptest.Takes(2 * time.Second), attempt: 2,
			want: map[string]float64{"jobs_succeeded_total": 1, "job_retry_outcomes_total": 1},
		},
		"failure of the last retry": {
			runner: apptest.Fixed(nil, apptest.Failure{Reason: job.DependencyFailed}), attempt: 4,
			want: map[string]float64{"jobs_failed_total": 1, "job_retry_outcomes_total": 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
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
		})
	}
}

func TestLatenessIsMeasured(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		early, late := w.AddDeferred(time.Second), w.AddDeferred(-time.Minute)
		w.Add() // which is not scheduled
		apptest.Pass(time.Second)
		w.start()
		apptest.Pass(250 * time.Millisecond)
		require.NoError(t, w.handle(early), "before the scheduler")
		require.InDelta(t, 0.25, w.Sum("job_schedule_lateness_seconds"), 1e-6)
		require.Equal(t, 1.0, w.Sum("jobs_queued_total"))

		w.lead()
		apptest.Pass(maintenance.SchedulerInterval)
		require.Equal(t, job.Queued, w.Store.RowOf(late.JobID).State)
		require.InDelta(t, 0.25+61.45, w.Sum("job_schedule_lateness_seconds"), 1e-6)
		require.Equal(t, 2.0, w.Sum("jobs_queued_total"))
	})
}

func TestExpiredLeasesAreCounted(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for range 3 {
			w.Add(apptest.HeldByTheDead(job.Assigned))
		}
		w.Add(apptest.HeldByTheDead(job.Running))
		w.lead()
		apptest.Pass(2 * maintenance.RescuerInterval)
		require.Equal(t, 3.0, w.Metric(w.Metrics.LeasesExpired.WithLabelValues("ASSIGNED")))
		require.Equal(t, 1.0, w.Metric(w.Metrics.LeasesExpired.WithLabelValues("RUNNING")))
	})
}

func TestSlotsAreShown(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Concurrency = 7 })
		require.Equal(t, 7.0, w.Sum("worker_slots"))
	})
}

func TestHistogramsNameTraces(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		from := w.Traceparent()
		w.runner = apptest.Takes(time.Second)
		require.NoError(t, w.process(w.Add(func(r *apptest.Row) { r.TraceParent = from })))
		id := []string{w.Span("request").SpanContext.TraceID().String()}
		for _, name := range []string{"job_queue_wait_seconds", "job_execution_seconds"} {
			require.Equal(t, id, w.Exemplars(name), name)
		}
	})
}
