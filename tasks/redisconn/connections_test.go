package redisconn_test

import (
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// A scrape does not wait for a Redis that is away: neither with the connections that there are, nor for new ones.
func TestScrapeWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		begin, end func(*testing.T, *stack.Redis)
	}{
		"stopped": {
			func(t *testing.T, s *stack.Redis) { require.NoError(t, s.Stop()) },
			func(t *testing.T, s *stack.Redis) { require.NoError(t, s.Start(t.Context())) },
		},
		"hangs": {
			func(t *testing.T, s *stack.Redis) { require.NoError(t, s.Pause()) },
			func(t *testing.T, s *stack.Redis) { require.NoError(t, s.Resume()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Own(t)
			r, registry := redistest.ConnectCounted(t, server.URL(), redistest.Within)
			redistest.Eventually(t, func() bool { return redistest.Gauge(t, registry, "redis_up") == 1 })
			fault.begin(t, server)
			for range 2 { // it does not wait for the end of the fault
				series := redistest.SeriesOf(t, registry)
				require.NotContains(t, series, "asynq_queue_tasks")
				require.Contains(t, series, "redis_connections")
				require.Contains(t, series, "redis_pool_timeouts_total")
				require.Contains(t, series, "tasks_enqueued_total")
			}
			require.Zero(t, redistest.Gauge(t, registry, "redis_up"))
			require.Positive(t, testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("depth")))
			fault.end(t, server)
			redistest.Eventually(t, func() bool { return redistest.Gauge(t, registry, "redis_up") == 1 })
			require.Equal(t, 12, redistest.SeriesOf(t, registry)["asynq_queue_tasks"])
		})
	}
}
