package redisconn_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// A scrape does not wait for a Redis that is away: neither with the connections that there are, nor for new ones.
func TestScrapeWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		begin, end func(*testing.T, *redisconn.Redis, *stack.Redis)
	}{
		"stopped": {
			func(t *testing.T, _ *redisconn.Redis, s *stack.Redis) { require.NoError(t, s.Stop()) },
			func(t *testing.T, _ *redisconn.Redis, s *stack.Redis) { require.NoError(t, s.Start(t.Context())) },
		},
		"hangs": {
			func(t *testing.T, _ *redisconn.Redis, s *stack.Redis) { require.NoError(t, s.Pause()) },
			func(t *testing.T, _ *redisconn.Redis, s *stack.Redis) { require.NoError(t, s.Resume()) },
		},
		"answers nobody": {
			func(t *testing.T, r *redisconn.Redis, _ *stack.Redis) {
				require.NoError(t, r.Client.Do(t.Context(), "CLIENT", "PAUSE", "3600000", "ALL").Err())
			},
			func(t *testing.T, _ *redisconn.Redis, s *stack.Redis) {
				require.NoError(t, s.Stop())
				require.NoError(t, s.Start(t.Context()))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Own(t)
			r, registry := redistest.ConnectCounted(t, server.URL(), redistest.Within)
			redistest.Eventually(t, func() bool { return redistest.Gauge(t, registry, "redis_up") == 1 })
			fault.begin(t, r, server)
			for range 2 { // it does not wait for the end of the fault
				series := redistest.SeriesOf(t, registry)
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

// go-redis looks at the socket to know whether Redis has closed it.
func TestDialUntilShowsTheSocket(t *testing.T) {
	t.Parallel()
	ctx, cut := context.WithCancel(t.Context())
	dial, address := redistest.DB(t).DialUntil(ctx), fmt.Sprint("127.0.0.1:", redistest.Shared(t).Port())
	conn := redistest.Must(dial(t.Context(), "tcp", address))(t)
	require.Implements(t, (*syscall.Conn)(nil), conn)
	require.NoError(t, conn.Close())
	require.False(t, redisconn.Forget(conn), "a closed connection is forgotten")

	conn = redistest.Must(dial(t.Context(), "tcp", address))(t)
	cut()
	_, err := conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = dial(t.Context(), "tcp", address)
	require.ErrorIs(t, err, context.Canceled)
	require.Error(t, conn.Close())
}
