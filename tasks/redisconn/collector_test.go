package redisconn_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// A scrape waits for Redis once, and only for a moment: for the settled
// connections of a Redis that begins to hang and for new ones. Its other
// collectors do not wait for it.
func TestScrapeWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		begin, end func(*testing.T, *redisconn.Redis, *devstack.Redis)
	}{
		"stopped": {
			func(t *testing.T, _ *redisconn.Redis, s *devstack.Redis) { require.NoError(t, s.Stop()) },
			func(t *testing.T, _ *redisconn.Redis, s *devstack.Redis) { require.NoError(t, s.Start(t.Context())) },
		},
		"hangs": {
			func(t *testing.T, _ *redisconn.Redis, s *devstack.Redis) { require.NoError(t, s.Pause()) },
			func(t *testing.T, _ *redisconn.Redis, s *devstack.Redis) { require.NoError(t, s.Resume()) },
		},
		"answers nobody": {
			func(t *testing.T, r *redisconn.Redis, _ *devstack.Redis) {
				require.NoError(t, r.Client.Do(t.Context(), "CLIENT", "PAUSE", "5000", "ALL").Err())
			},
			func(*testing.T, *redisconn.Redis, *devstack.Redis) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Own(t)
			r, registry := redistest.ConnectCounted(t, server.URL(), redistest.Within)
			redistest.Eventually(t, func() bool { return redistest.Gauge(t, registry, "redis_up") == 1 })
			registry.MustRegister(slowCollector{})
			fault.begin(t, r, server)
			for range 3 {
				began := time.Now()
				series := redistest.SeriesOf(t, registry)
				require.Less(t, time.Since(began), redisconn.ScrapeTimeout+900*time.Millisecond)
				require.NotContains(t, series, "asynq_queue_tasks")
				require.Contains(t, series, "redis_connections")
				require.Contains(t, series, "redis_pool_timeouts_total")
				require.Contains(t, series, "tasks_enqueued_total")
			}
			require.Zero(t, redistest.Gauge(t, registry, "redis_up"))
			require.Positive(t, testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("depth")))
			fault.end(t, r, server)
			redistest.Eventually(t, func() bool { return redistest.Gauge(t, registry, "redis_up") == 1 })
			require.Equal(t, 12, redistest.SeriesOf(t, registry)["asynq_queue_tasks"])
		})
	}
}

// slowCollector takes as long as the one of Redis when that hangs.
type slowCollector struct{}

func (slowCollector) Describe(out chan<- *prometheus.Desc) { out <- slowDesc }

func (slowCollector) Collect(out chan<- prometheus.Metric) {
	time.Sleep(redisconn.ScrapeTimeout)
	out <- prometheus.MustNewConstMetric(slowDesc, prometheus.GaugeValue, 1)
}

var slowDesc = prometheus.NewDesc("slow", "A collector that waits.", nil, nil)

// The connections of consumers count as well: theirs is another pool.
func TestConnectionsAreOfAllClients(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	require.NoError(t, r.Ping(t.Context()))
	shared, _, timeouts, ok := r.Connections(true)
	require.True(t, ok)
	require.Positive(t, shared)
	require.Zero(t, timeouts)
	other := r.NewClient(r.ClientOptions(redistest.Within, 1))
	require.NoError(t, other.Ping(t.Context()).Err())
	redistest.Eventually(t, func() bool {
		all, _, _, _ := r.Connections(true)
		return all > shared
	})
	require.NoError(t, other.Close())
	redistest.Eventually(t, func() bool {
		left, _, _, _ := r.Connections(true)
		return left <= shared
	})
}

func TestScrapeOfAClusterThatIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	require.NoError(t, server.Pause())
	address := server.URL()[len("redis://") : len(server.URL())-len("/0")]
	_, registry := redistest.ConnectCounted(t, "redis-cluster://"+address+","+address, redistest.Within)
	began := time.Now()
	require.Zero(t, redistest.Gauge(t, registry, "redis_up"))
	require.Less(t, time.Since(began), redisconn.ScrapeTimeout+900*time.Millisecond)
	require.NoError(t, server.Resume())
}
