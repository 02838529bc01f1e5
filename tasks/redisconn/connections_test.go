package redisconn_test

import (
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// A scrape does not wait while Redis is down or hangs, neither on existing connections nor for new ones.
func TestScrapeWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"stopped": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Own(t)
			fault, heal := server.Stop, func() error { return server.Start(t.Context()) }
			if hangs {
				fault, heal = server.Pause, server.Resume
			}
			r, registry := redistest.ConnectCounted(t, server.URL(), redistest.Within)
			redistest.Eventually(t, func() bool { return redistest.Gauge(t, registry, "redis_up") == 1 })
			require.NoError(t, fault())
			for range 2 { // a scrape does not wait for the end of the fault
				series := redistest.SeriesOf(t, registry)
				require.NotContains(t, series, "asynq_queue_tasks")
				require.Contains(t, series, "redis_connections")
				require.Contains(t, series, "redis_pool_timeouts_total")
				require.Contains(t, series, "tasks_enqueued_total")
			}
			require.Zero(t, redistest.Gauge(t, registry, "redis_up"))
			require.Positive(t, testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("depth")))
			require.NoError(t, heal())
			redistest.Eventually(t, func() bool { return redistest.Gauge(t, registry, "redis_up") == 1 })
			require.Equal(t, 12, redistest.SeriesOf(t, registry)["asynq_queue_tasks"])
		})
	}
}
