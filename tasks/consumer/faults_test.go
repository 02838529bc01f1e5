package consumer

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestWorkersStartWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	require.NoError(t, server.Stop())
	r := redistest.Connect(t, server.URL())
	var c collector
	startWorkers(t, r, Config{}, c.handle)
	redistest.Eventually(t, func() bool { return testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("work")) > 0 })
	require.NoError(t, server.Start(t.Context()))
	requireWorks(t, r, &c)
}

// requireWorks waits until a new task is handled.
func requireWorks(t *testing.T, r *redisconn.Redis, c *collector) {
	t.Helper()
	q := queue.New(r, queue.Config{})
	task := redistest.Task()
	redistest.Eventually(t, func() bool {
		_, err := q.Dispatch(t.Context(), []job.Task{task})
		return err == nil
	})
	redistest.Eventually(t, func() bool { return c.has(task) })
}

func TestWorkersSurviveRedis(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*testing.T, *redisconn.Redis, *stack.Redis){
		"kill": func(t *testing.T, r *redisconn.Redis, server *stack.Redis) {
			require.NoError(t, server.Kill())
			requirePaced(t, r)
			require.NoError(t, server.Start(t.Context()))
		},
		"hang": func(t *testing.T, r *redisconn.Redis, server *stack.Redis) {
			require.NoError(t, server.Pause())
			require.Error(t, r.Ping(t.Context()))
			require.NoError(t, server.Resume())
		},
		"out of memory": func(t *testing.T, r *redisconn.Redis, _ *stack.Redis) {
			require.NoError(t, r.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())
			requirePaced(t, r)
			require.NoError(t, r.Client.ConfigSet(t.Context(), "maxmemory", "0").Err())
		},
		"flush": func(t *testing.T, r *redisconn.Redis, _ *stack.Redis) {
			require.NoError(t, r.Client.FlushAll(t.Context()).Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Own(t)
			r := redistest.ConnectHanging(t, server.URL())
			var c collector
			startWorkers(t, r, Config{Concurrency: 2}, c.handle)
			requireWorks(t, r, &c)
			fault(t, r, server)
			requireWorks(t, r, &c)
		})
	}
}

// requirePaced checks that asynq's loops do not spin while Redis fails: there
// are fewer than ten, and each failure takes pacePause.
func requirePaced(t *testing.T, r *redisconn.Redis) {
	t.Helper()
	failures := func() float64 { return testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("work")) }
	redistest.Eventually(t, func() bool { return failures() > 0 })
	before, began := failures(), time.Now()
	time.Sleep(3 * pacePause)
	require.LessOrEqual(t, failures()-before, 10*(1+float64(time.Since(began)/pacePause)))
}

func TestWorkersStopWhileRedisHangs(t *testing.T) {
	t.Parallel()
	for name, hangsFirst := range map[string]bool{"from the start": true, "later": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Own(t)
			r := redistest.ConnectHanging(t, server.URL())
			if hangsFirst {
				require.NoError(t, server.Pause())
			}
			var c collector
			w := startWorkers(t, r, Config{ShutdownTimeout: 50 * time.Millisecond, Servers: 2, Concurrency: 2}, c.handle)
			if !hangsFirst {
				requireWorks(t, r, &c)
				require.NoError(t, server.Pause())
			}
			requireStops(t, w)
		})
	}
}
