package app

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

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
