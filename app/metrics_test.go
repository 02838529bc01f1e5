package app

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestAllMetricsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	NewMetrics(registry)
	families, err := registry.Gather()
	require.NoError(t, err)
	series := map[string]int{}
	for _, f := range families {
		series[f.GetName()] = len(f.GetMetric())
		for _, m := range f.GetMetric() {
			require.Zero(t, m.GetCounter().GetValue()+m.GetGauge().GetValue()+m.GetHistogram().GetSampleSum())
		}
	}
	kinds, tasks := len(job.Kinds()), len(maintenanceTasks)
	require.Equal(t, map[string]int{
		"jobs_submitted_total": kinds, "jobs_queued_total": kinds, "jobs_running_total": kinds, "jobs_succeeded_total": kinds,
		"jobs_failed_total": kinds, "jobs_canceled_total": kinds, "job_queue_wait_seconds": kinds, "job_execution_seconds": 3 * kinds,
		"job_schedule_lateness_seconds": 1, "job_retries_total": 2, "job_retry_outcomes_total": 3,
		"idempotency_hits_total": 1, "batches_completed_total": 4, "watchers": 2, "watcher_pokes_total": 3,
		"worker_slots": 1, "worker_slots_used": 1, "worker_leases_lost_total": 1, "fenced_writes_total": 2, "tasks_dropped_total": 2,
		"maintenance_leader": 1, "maintenance_jobs_total": 6, "maintenance_deliveries_total": 3, "maintenance_errors_total": tasks,
		"maintenance_round_seconds": tasks, "maintenance_last_success_timestamp_seconds": tasks,
		"leases_expired_total": 2, "dispatch_epochs_total": 1, "dispatch_window_closed": 1, "outcomes_published_total": 1,
		"job_queue_depth": 1, "jobs_current": 4, "job_oldest_due_seconds": 1, "dispatch_epoch": 1, "workers_alive": 1, "workers_slots": 1,
		"webhook_deliveries_pending": 1, "webhook_oldest_pending_seconds": 1, "webhooks_disabled_current": 1, "census_timestamp_seconds": 1,
		"webhook_deliveries_total": 3 * (len(job.SubscribableEvents) + 1), "webhook_failures_total": 5 * (len(job.SendErrors) - 2),
		"webhook_send_seconds": 1, "webhook_latency_seconds": 1, "webhook_pumps": 1, "webhook_sends_in_flight": 1, "webhook_disabled_total": 2,
	}, series)
}

func TestTheUsualFailureOfAKindIsThereFromTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	codes := map[string]string{}
	families, err := w.registry.Gather()
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
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.metrics = NewMetrics(nil)
		w.settler = NewSettler(w.store, w.queue, w.metrics, w.logger)
		w.worker = w.newWorker()
		w.start()
		w.lead()
		task := w.add()
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)
		pass(time.Minute)
		require.NotZero(t, w.store.count("Census"))
	})
}

// executions gives what job_execution_seconds has observed for an outcome: how often,
// and the sum.
func (w *world) executions(outcome job.State) (n uint64, sum float64) {
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "job_execution_seconds" && m.GetLabel()[0].GetValue() == string(outcome) {
				n += m.GetHistogram().GetSampleCount()
				sum += m.GetHistogram().GetSampleSum()
			}
		}
	}
	return n, sum
}

func TestEndsOfAttemptsAreCounted(t *testing.T) {
	tests := map[string]struct {
		runner  runnerFunc
		attempt int
		want    map[string]float64
	}{
		"success": {runner: takes(2 * time.Second), attempt: 1, want: map[string]float64{"jobs_succeeded_total": 1}},
		"failure": {
			runner: fixed(nil, failure{job.DependencyFailed}), attempt: 1,
			want: map[string]float64{"jobs_failed_total": 1, "job_retries_total": 1, "jobs_queued_total": 1},
		},
		"success of a retry": {
			runner: takes(2 * time.Second), attempt: 2,
			want: map[string]float64{"jobs_succeeded_total": 1, "job_retry_outcomes_total": 1},
		},
		"failure of the last retry": {
			runner: fixed(nil, failure{job.DependencyFailed}), attempt: 4,
			want: map[string]float64{"jobs_failed_total": 1, "job_retry_outcomes_total": 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.runner = test.runner
				w.start()
				task := w.add(func(r *row) { r.AutoRetry, r.Attempt = true, test.attempt })
				require.NoError(t, w.handle(task))
				for _, metric := range []string{
					"jobs_succeeded_total", "jobs_failed_total", "jobs_canceled_total", "jobs_queued_total", "job_retries_total", "job_retry_outcomes_total",
				} {
					require.Equal(t, test.want[metric], w.sum(metric), metric)
				}
				outcome := w.store.job(task.JobID).ends[0].State
				n, _ := w.executions(outcome)
				require.Equal(t, uint64(1), n)
				if test.attempt > 1 {
					require.Equal(t, 1.0, w.metric(w.metrics.retryOutcomes.WithLabelValues(string(outcome))))
				}
			})
		})
	}
}

func TestCancelsAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.service(10)
		began := time.Now()
		running := w.add(func(r *row) { r.State, r.StartedAt = job.Running, &began })
		retried := w.add(func(r *row) { r.Attempt = 2 })
		pass(3 * time.Second)
		for range 2 { // the second time nothing is canceled
			for _, task := range []job.Task{running, retried} {
				_, err := s.Cancel(context.Background(), clientA, task.JobID)
				require.NoError(t, err)
			}
		}
		n, sum := w.executions(job.Canceled)
		require.Equal(t, []any{uint64(1), 3.0}, []any{n, sum}, "only one of them ran")
		require.Equal(t, 2.0, w.metric(w.metrics.canceled.WithLabelValues("SUCCESS_FAST")))
		require.Equal(t, 1.0, w.metric(w.metrics.retryOutcomes.WithLabelValues("CANCELED")))
	})
}

func TestLatenessIsMeasured(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		early, late := w.addDeferred(time.Second), w.addDeferred(-time.Minute)
		w.add() // which is not scheduled
		pass(time.Second)
		w.start()
		pass(250 * time.Millisecond)
		require.NoError(t, w.handle(early), "before the scheduler")
		require.InDelta(t, 0.25, w.sum("job_schedule_lateness_seconds"), 1e-6)
		require.Equal(t, 1.0, w.sum("jobs_queued_total"))

		w.lead()
		pass(schedulerInterval)
		require.Equal(t, job.Queued, w.store.job(late.JobID).State)
		require.InDelta(t, 0.25+61.45, w.sum("job_schedule_lateness_seconds"), 1e-6)
		require.Equal(t, 2.0, w.sum("jobs_queued_total"))
	})
}

func TestExpiredLeasesAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for range 3 {
			w.add(heldByTheDead(job.Assigned))
		}
		w.add(heldByTheDead(job.Running))
		w.lead()
		pass(2 * rescuerInterval)
		require.Equal(t, 3.0, w.metric(w.metrics.leasesExpired.WithLabelValues("ASSIGNED")))
		require.Equal(t, 1.0, w.metric(w.metrics.leasesExpired.WithLabelValues("RUNNING")))
	})
}

func TestSlotsAreShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, func(c *WorkerConfig) { c.Concurrency = 7 })
		require.Equal(t, 7.0, w.sum("worker_slots"))
	})
}

// Names of events come from storage: one that this version does not know must
// not make a series.
func TestLabelsOfDeliveriesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.series()
	for status, code := range map[int]string{0: "none", 100: "none", 204: "2xx", 302: "3xx", 410: "4xx", 503: "5xx", 600: "none", -1: "none"} {
		require.Equal(t, code, codeLabel(status))
		for _, event := range append([]string{"job.from_the_future", "", "x\n\xff"}, job.SubscribableEvents...) {
			for _, class := range job.SendErrors[:len(job.SendErrors)-2] {
				w.metrics.delivered(job.Parcel{Delivery: job.Delivery{EventName: event}}, job.DeliveryResult{
					State: job.DeliveryFailed, Sent: job.Sent{Attempt: job.DeliveryAttempt{Status: status, Error: class}},
				})
			}
		}
	}
	require.Equal(t, before, w.series())
	require.NotZero(t, w.metric(w.metrics.deliveries.WithLabelValues("other", "failed")))
}

func (w *world) series() (n int) {
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return n
}

// fixed is work that takes no time.
func fixed(result *job.Result, err error) runnerFunc {
	return func(context.Context, job.Definition, int) (*job.Result, error) { return result, err }
}

// exemplars gives the traces that a histogram names.
func (w *world) exemplars(name string) (traces []string) {
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, b := range m.GetHistogram().GetBucket() {
				if e := b.GetExemplar(); f.GetName() == name && e != nil {
					traces = append(traces, e.GetLabel()[0].GetValue())
				}
			}
		}
	}
	return traces
}

func TestHistogramsNameTraces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, answers(200, time.Second))
		w.worker = w.newWorker()
		w.start()
		from := w.traceparent()
		w.runner = takes(time.Second)
		require.NoError(t, w.process(w.add(func(r *row) { r.TraceParent = from })))
		w.store.deliver(clientA, endpointA, withTrace(from))
		w.hint(clientA)
		pass(2 * time.Second)
		id := []string{w.span("request").SpanContext.TraceID().String()}
		for _, name := range []string{"job_queue_wait_seconds", "job_execution_seconds", "webhook_send_seconds", "webhook_latency_seconds"} {
			require.Equal(t, id, w.exemplars(name), name)
		}
	})
}
