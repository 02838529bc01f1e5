package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

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
		w.metrics = NewMetrics(telemetry.Off)
		w.settler = NewBatchCompleter(w.store, w.queue, w.metrics, w.logger)
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
func (w *testWorld) executions(outcome job.State) (n uint64, sum float64) {
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

// fixed is work that takes no time.
func fixed(result *job.Result, err error) runnerFunc {
	return func(context.Context, job.Definition, int) (*job.Result, error) { return result, err }
}

// exemplars gives the traces that a histogram names.
func (w *testWorld) exemplars(name string) (traces []string) {
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
		w := newWorld(t)
		w.start()
		from := w.traceparent()
		w.runner = takes(time.Second)
		require.NoError(t, w.process(w.add(func(r *row) { r.TraceParent = from })))
		endpoint := w.subscribe(clientA).ID
		w.store.deliver(clientA, endpoint, func(r *parcelRow) { r.traceparent = from })
		sender := NewDeliveryWorker(CourierConfig{Concurrency: 1, Timeout: 15 * time.Second, Tracer: w.tracer()}, w.store, slowSender{}, w.queue, w.metrics, w.logger)
		require.NoError(t, sender.Handle(context.Background(), clientA))
		pass(2 * time.Second)
		sender.Stop(context.Background())
		id := []string{w.span("request").SpanContext.TraceID().String()}
		for _, name := range []string{"job_queue_wait_seconds", "job_execution_seconds", "webhook_send_seconds", "webhook_latency_seconds"} {
			require.Equal(t, id, w.exemplars(name), name)
		}
	})
}

// slowSender delivers in a second.
type slowSender struct{}

func (slowSender) Send(_ context.Context, _ job.ClaimedDelivery) job.Sent {
	began := time.Now()
	time.Sleep(time.Second)
	return job.Sent{Attempt: job.DeliveryAttempt{StartedAt: began, Duration: time.Second, Status: 200}}
}
