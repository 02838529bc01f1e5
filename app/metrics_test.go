package app

import (
	"testing"

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
	kinds := len(job.Kinds())
	for name, want := range map[string]int{ // section 16
		"jobs_submitted_total": kinds, "jobs_queued_total": kinds, "jobs_running_total": kinds, "jobs_succeeded_total": kinds,
		"jobs_failed_total": kinds, "jobs_canceled_total": kinds, "job_queue_depth": 1,
		"job_queue_wait_seconds": kinds, "job_execution_seconds": kinds, "job_retries_total": 2, "maintenance_errors_total": 10,
		"batches_completed_total": 4, "watchers": 2, "watcher_pokes_total": 3,
		"webhook_deliveries_total": 3, "webhook_failures_total": len(job.SendErrors) - 2, "webhook_send_seconds": 1,
		"webhook_latency_seconds": 1, "webhook_pumps": 1, "webhook_sends_in_flight": 1, "webhook_disabled_total": 2,
		"maintenance_deliveries_total": 3, "outcomes_published_total": 1,
	} {
		require.Equal(t, want, series[name], name)
	}
}
