package app

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestAllMetricsStartAtZero(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	NewMetrics(registry)
	families, err := registry.Gather()
	require.NoError(t, err)
	usual := map[string]string{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "jobs_failed_total" {
				usual[m.GetLabel()[1].GetValue()] = m.GetLabel()[0].GetValue()
			}
			require.Zero(t, m.GetCounter().GetValue()+m.GetGauge().GetValue()+m.GetHistogram().GetSampleSum())
		}
	}
	require.Equal(t, []string{"RFA_EXEC_TIMEOUT", "RFA_DEPENDENCY_TIMEOUT", "RFA_EXEC_WORKER_UNAVAILABLE"},
		[]string{usual["RUNS_OVER_TIMEOUT"], usual["RETRY_ON_FAIL"], usual["SUCCESS_FAST"]}, "the usual failure of a kind")
}

// The durations of a job's steps are observed, and the result of a later attempt is counted.
func TestTimesOfAJobAreCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	due := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	claimed := due.Add(3 * time.Second)
	c := &job.Claim{ClaimID: job.ClaimID{Attempt: 2}, WasCreated: true, QueuedAt: due.Add(time.Second), Job: job.Job{
		WorkKind: job.SuccessFast, RunAt: due, ExecutionAt: &due, UpdatedAt: claimed,
	}}
	m.Claimed(t.Context(), c)
	m.Started(t.Context(), c, claimed.Add(5*time.Second))
	m.Finished(t.Context(), job.Finish{ClaimID: c.ClaimID, State: job.Succeeded}, job.SuccessFast, job.Finished{Duration: 7 * time.Second})
	sums := map[string]float64{}
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			sums[f.GetName()] += metric.GetHistogram().GetSampleSum() + metric.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"job_queue_wait_seconds": 3, "job_queued_seconds": 2, "job_assigned_seconds": 5, "job_execution_seconds": 7,
		"job_schedule_lateness_seconds": 3, "jobs_queued_total": 1, "jobs_running_total": 1, "jobs_succeeded_total": 1,
		"job_retry_outcomes_total": 1,
	} {
		require.Equal(t, want, sums[name], name)
	}
}

// Event names come from storage: an unknown name must not create a new series.
func TestLabelsOfDeliveriesAreBounded(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	before := seriesOf(t, registry)
	for status, code := range map[int]string{0: "none", 100: "none", 204: "2xx", 302: "3xx", 410: "4xx", 503: "5xx", 600: "none", -1: "none"} {
		require.Equal(t, code, codeLabel(status))
		for _, event := range append([]string{"job.from_the_future", "", "x\n\xff"}, job.SubscribableEvents...) {
			for _, class := range job.SendErrors[:len(job.SendErrors)-2] {
				metrics.Delivered(job.ClaimedDelivery{Delivery: job.Delivery{EventName: event}}, job.DeliveryResult{
					State: job.DeliveryFailed, Sent: job.Sent{Attempt: job.DeliveryAttempt{Status: status, Error: class}},
				})
			}
		}
	}
	require.Equal(t, before, seriesOf(t, registry))
	require.NotZero(t, testutil.ToFloat64(metrics.Deliveries.WithLabelValues("other", "failed")))
}

func seriesOf(t *testing.T, registry *prometheus.Registry) (n int) {
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return n
}
