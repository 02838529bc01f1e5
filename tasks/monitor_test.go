package tasks

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestMonitorShowsAndChangesNothing(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{})
	task := newTask()
	require.NoError(t, q.SetEpoch(t.Context(), 1))
	dispatchAll(t, q, task)
	handler := MonitorHandler(r, "/asynqmon")
	request := func(method, path string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, httptest.NewRequest(method, path, nil))
		return rec
	}
	require.Equal(t, http.StatusOK, request("GET", "/asynqmon").Code)
	queues := request("GET", "/asynqmon/api/queues")
	require.Equal(t, http.StatusOK, queues.Code)
	require.Contains(t, queues.Body.String(), `"queue":"jobs"`)
	require.Contains(t, request("GET", "/asynqmon/api/queues/jobs/pending_tasks").Body.String(), taskName(task))
	require.Contains(t, request("GET", "/asynqmon/api/redis_info").Body.String(), "redis_version")

	require.NotEqual(t, http.StatusNoContent, request("DELETE", "/asynqmon/api/queues/jobs/pending_tasks:delete_all").Code)
	require.NotEqual(t, http.StatusNoContent, request("POST", "/asynqmon/api/queues/jobs:pause").Code)
	require.Equal(t, "pending", stateOf(t, r, task))
	require.Zero(t, r.client.Exists(t.Context(), queueKey(queueJobs, "paused")).Val())
}

func gather(t *testing.T, g prometheus.Gatherer) map[string]int {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	series := map[string]int{}
	for _, f := range families {
		series[f.GetName()] = len(f.GetMetric())
	}
	return series
}

func TestMetricsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	r, err := Connect(newDBURL(), Options{Registry: registry, Timeout: within})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	want := map[string]int{
		"redis_errors_total": len(operations), "tasks_enqueued_total": 5, "tasks_dispatched_total": 4,
		"tasks_handled_total": 3, "cancel_signals_total": 6, "news_total": 6, "rate_limit_leases_total": 2,
		"delivery_hints_total": 6, "delivery_hints_handled_total": 3,
		"tasks_enqueue_buffer": 1, "rate_limit_alone": 1, "asynq_queue_tasks": 12,
	}
	require.Equal(t, want, gather(t, registry))
	// Using them adds no series.
	q := startQueue(t, r, QueueConfig{})
	for _, task := range newTasks(50) {
		q.Enqueue(task)
		q.SignalCancel(task.JobID)
		q.Wake(task.JobID)
		q.Announce(job.News{JobID: task.JobID, Attempt: 1, Progress: &job.Progress{}})
		_ = q.Progress(t.Context(), task.JobID, 1)
	}
	dispatchAll(t, q, newTasks(50)...)
	eventually(t, func() bool { return value(r.metrics.enqueued.WithLabelValues(resultOK)) == 50 })
	eventually(t, func() bool { return newsOf(r, resultOK) == 50 })
	require.Equal(t, want, gather(t, registry))
}

func TestDepthIsSilentWithoutRedis(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	require.NoError(t, server.Stop())
	registry := prometheus.NewRegistry()
	r, err := Connect(server.URL(), Options{Registry: registry})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	require.NotContains(t, gather(t, registry), "asynq_queue_tasks")
	require.Positive(t, value(r.metrics.errors.WithLabelValues("depth")))
}
