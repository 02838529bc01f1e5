package tasks

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/job"
)

// gather gives the number of series by name.
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

// gauge reads the only series of a gauge.
func gauge(t *testing.T, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			require.Len(t, f.GetMetric(), 1)
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	require.FailNow(t, "no metric "+name)
	return 0
}

func connectCounted(t *testing.T, url string, timeout time.Duration) (*Redis, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	r, err := Connect(url, Options{Registry: registry, Timeout: timeout, Logger: slog.New(slog.NewTextHandler(testLog{t}, nil))})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r, registry
}

func TestMetricsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	r, registry := connectCounted(t, newDBURL(), within)
	want := map[string]int{
		"redis_errors_total": len(operations), "tasks_enqueued_total": 5, "tasks_dispatched_total": 4,
		"tasks_handled_total": 3, "cancel_signals_total": 6, "news_total": 6, "rate_limit_leases_total": 2,
		"delivery_hints_total": 6, "delivery_hints_handled_total": 3,
		"tasks_enqueue_buffer": 1, "rate_limit_alone": 1, "asynq_queue_tasks": 12,
		"redis_up": 1, "redis_connections": 2, "redis_pool_timeouts_total": 1,
	}
	eventually(t, func() bool { return gauge(t, registry, "redis_up") == 1 })
	require.Equal(t, want, gather(t, registry))
	// Using them adds no series.
	q := startQueue(t, r, QueueConfig{})
	for _, task := range newTasks(50) {
		q.Enqueue(task)
		q.SignalCancel(task.JobID)
		q.WakeDelivery(task.JobID)
		q.Publish(job.Notification{JobID: task.JobID, Attempt: 1, Progress: &job.Progress{}})
		_ = q.Progress(t.Context(), task.JobID, 1)
	}
	dispatchAll(t, q, newTasks(50)...)
	eventually(t, func() bool { return value(r.metrics.enqueued.WithLabelValues(resultOK)) == 50 })
	eventually(t, func() bool { return newsOf(r, resultOK) == 50 })
	require.Equal(t, want, gather(t, registry))
}

func TestMetricsThatAreOff(t *testing.T) {
	t.Parallel()
	r, err := Connect(newDBURL(), Options{Registry: nil, Timeout: within})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	q := startQueue(t, r, QueueConfig{})
	task := newTask()
	q.Enqueue(task)
	eventually(t, func() bool { return stateOf(t, r, task) == "pending" })
}

func TestDepthsOfBothQueues(t *testing.T) {
	t.Parallel()
	r, registry := connectCounted(t, newDBURL(), within)
	q := NewQueue(r, QueueConfig{})
	dispatchAll(t, q, newTasks(3)...)
	require.NoError(t, q.WakeDeliveries(t.Context(), newClients(2)))
	want := map[[2]string]float64{{queueJobs, "pending"}: 3, {queueWebhooks, "pending"}: 2}
	families, err := registry.Gather()
	require.NoError(t, err)
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

// A scrape waits for Redis once, and only for a moment: for the settled
// connections of a Redis that begins to hang and for new ones. Its other
// collectors do not wait for it.
func TestScrapeWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		begin, end func(*testing.T, *Redis, *devstack.Redis)
	}{
		"stopped": {
			func(t *testing.T, _ *Redis, s *devstack.Redis) { require.NoError(t, s.Stop()) },
			func(t *testing.T, _ *Redis, s *devstack.Redis) { require.NoError(t, s.Start(t.Context())) },
		},
		"hangs": {
			func(t *testing.T, _ *Redis, s *devstack.Redis) { require.NoError(t, s.Pause()) },
			func(t *testing.T, _ *Redis, s *devstack.Redis) { require.NoError(t, s.Resume()) },
		},
		"answers nobody": {
			func(t *testing.T, r *Redis, _ *devstack.Redis) {
				require.NoError(t, r.client.Do(t.Context(), "CLIENT", "PAUSE", "5000", "ALL").Err())
			},
			func(*testing.T, *Redis, *devstack.Redis) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := ownRedis(t)
			r, registry := connectCounted(t, server.URL(), within)
			eventually(t, func() bool { return gauge(t, registry, "redis_up") == 1 })
			registry.MustRegister(slowCollector{})
			fault.begin(t, r, server)
			for range 3 {
				began := time.Now()
				series := gather(t, registry)
				require.Less(t, time.Since(began), scrapePatience+900*time.Millisecond)
				require.NotContains(t, series, "asynq_queue_tasks")
				require.Contains(t, series, "redis_connections")
				require.Contains(t, series, "redis_pool_timeouts_total")
				require.Contains(t, series, "tasks_enqueued_total")
			}
			require.Zero(t, gauge(t, registry, "redis_up"))
			require.Positive(t, value(r.metrics.errors.WithLabelValues("depth")))
			fault.end(t, r, server)
			eventually(t, func() bool { return gauge(t, registry, "redis_up") == 1 })
			require.Equal(t, 12, gather(t, registry)["asynq_queue_tasks"])
		})
	}
}

// slowCollector takes as long as the one of Redis when that hangs.
type slowCollector struct{}

func (slowCollector) Describe(out chan<- *prometheus.Desc) { out <- slowDesc }

func (slowCollector) Collect(out chan<- prometheus.Metric) {
	time.Sleep(scrapePatience)
	out <- prometheus.MustNewConstMetric(slowDesc, prometheus.GaugeValue, 1)
}

var slowDesc = prometheus.NewDesc("slow", "A collector that waits.", nil, nil)

// The connections of workers count as well: theirs is another pool.
func TestConnectionsAreOfAllClients(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	require.NoError(t, r.Ping(t.Context()))
	shared, ok := r.connections(true)
	require.True(t, ok)
	require.Positive(t, shared.total)
	require.Zero(t, shared.timeouts)
	var c collector
	w := startWorkers(t, r, WorkersConfig{}, c.handle)
	eventually(t, func() bool {
		all, _ := r.connections(true)
		return all.total > shared.total+1
	})
	w.Stop()
	eventually(t, func() bool {
		left, _ := r.connections(true)
		return left.total <= shared.total
	})
}

func TestScrapeOfAClusterThatIsAway(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	require.NoError(t, server.Pause())
	address := server.URL()[len("redis://") : len(server.URL())-len("/0")]
	_, registry := connectCounted(t, "redis-cluster://"+address+","+address, within)
	began := time.Now()
	require.Zero(t, gauge(t, registry, "redis_up"))
	require.Less(t, time.Since(began), scrapePatience+900*time.Millisecond)
	require.NoError(t, server.Resume())
}
