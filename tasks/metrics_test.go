package tasks_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestDepthsOfBothQueues(t *testing.T) {
	t.Parallel()
	r, registry := redistest.ConnectCounted(t, redistest.MiniURL(t), redistest.Within)
	q := queue.New(r, queue.Config{})
	redistest.Dispatch(t, q, redistest.Tasks(3)...)
	require.NoError(t, q.WakeDeliveries(t.Context(), redistest.IDs(2)))
	want := map[[2]string]float64{{redisconn.Jobs, "pending"}: 3, {redisconn.Webhooks, "pending"}: 2}
	families := redistest.Must(registry.Gather())(t)
	for _, f := range families {
		if f.GetName() != "asynq_queue_tasks" {
			continue
		}
		require.Len(t, f.GetMetric(), 12)
		for _, m := range f.GetMetric() {
			labels := [2]string{m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue()}
			require.Equal(t, want[labels], m.GetGauge().GetValue(), labels)
		}
	}
}

func TestMetricsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	r, registry := redistest.ConnectCounted(t, redistest.URL(t), redistest.Within)
	want := map[string]int{
		"redis_errors_total": 17, "tasks_enqueued_total": 6, "tasks_dispatched_total": 5,
		"tasks_handled_total": 5, "cancel_signals_total": 6, "notifications_total": 6, "rate_limit_grants_total": 2,
		"delivery_wake_ups_total": 6, "delivery_wake_ups_handled_total": 5,
		"tasks_enqueue_buffer": 1, "rate_limit_alone": 1, "asynq_queue_tasks": 12,
		"redis_up": 1, "redis_connections": 2, "redis_pool_timeouts_total": 1,
	}
	redistest.Eventually(t, func() bool { return redistest.Gauge(t, registry, "redis_up") == 1 })
	require.Equal(t, want, redistest.SeriesOf(t, registry))
	// Using them adds no series.
	q := redistest.Start(t, queue.New(r, queue.Config{}))
	for _, task := range redistest.Tasks(50) {
		q.Enqueue(task)
		q.SignalCancel(task.JobID)
		q.WakeDelivery(task.JobID)
		q.Publish(job.Notification{JobID: task.JobID, Attempt: 1, Progress: &job.Progress{}})
		_ = q.Progress(t.Context(), task.JobID, 1)
	}
	redistest.Dispatch(t, q, redistest.Tasks(50)...)
	redistest.Eventually(t, func() bool { return testutil.ToFloat64(r.Metrics.Enqueued.WithLabelValues(redisconn.ResultOK)) == 50 })
	redistest.Eventually(t, func() bool {
		return testutil.ToFloat64(r.Metrics.Notifications.WithLabelValues(redisconn.ResultOK)) == 50
	})
	require.Equal(t, want, redistest.SeriesOf(t, registry))
}
