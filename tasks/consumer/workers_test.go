package consumer

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func startWorkers(t testing.TB, r *redisconn.Redis, cfg Config, handle func(context.Context, job.Task) error) *Consumer {
	t.Helper()
	w := NewJobs(r, cfg, handle, func(job.ID) {})
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() { _ = w.Stop(context.Background()) })
	return w
}

func TestCancelSignals(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t) // all databases of a server share its channels
	sender, receiver := redistest.Connect(t, server.URL()), redistest.Connect(t, server.URL())
	q := redistest.Start(t, queue.New(sender, queue.Config{}))
	received := []chan job.ID{make(chan job.ID, 1000), make(chan job.ID, 1000)}
	for _, ch := range received {
		w := NewJobs(receiver, Config{}, func(context.Context, job.Task) error { return nil }, func(id job.ID) { ch <- id })
		require.NoError(t, w.Start(t.Context()))
		t.Cleanup(func() { _ = w.Stop(context.Background()) })
	}
	redistest.Eventually(t, func() bool {
		return sender.Client.PubSubNumSub(t.Context(), "forgerun:cancel").Val()["forgerun:cancel"] == 2
	})
	for _, nonsense := range []string{"", "x", "0190f3a4-7d6e-7c55-8a2b-3d1f5e6a7b8", "{}"} {
		require.NoError(t, sender.Client.Publish(t.Context(), "forgerun:cancel", nonsense).Err())
	}
	ids := redistest.IDs(1000)
	for _, id := range ids {
		q.SignalCancel(id)
	}
	for _, ch := range received {
		for _, id := range ids {
			require.Equal(t, id, redistest.Receive(t, ch, "a signal"))
		}
	}
	require.Equal(t, 8., testutil.ToFloat64(receiver.Metrics.Signals.WithLabelValues(redisconn.ResultBad)))
}

func requireWorks(t *testing.T, r *redisconn.Redis, c *collector) {
	t.Helper()
	q, ts := queue.New(r, queue.Config{}), redistest.Tasks(1)
	redistest.Eventually(t, func() bool {
		_, err := q.Ensure(t.Context(), ts)
		return err == nil && c.has(ts[0])
	})
}

func TestWorkersSurviveRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	require.NoError(t, server.Stop())
	var c collector
	startWorkers(t, r, Config{Concurrency: 2}, c.handle)
	requirePaced(t, r)
	require.NoError(t, server.Start(t.Context()))
	requireWorks(t, r, &c)
	limitMemory := func(bytes string) { require.NoError(t, r.Client.ConfigSet(t.Context(), "maxmemory", bytes).Err()) }
	limitMemory("1")
	requirePaced(t, r)
	limitMemory("0")
	requireWorks(t, r, &c)
}

// requirePaced checks that asynq's loops do not spin while Redis fails.
func requirePaced(t *testing.T, r *redisconn.Redis) {
	t.Helper()
	failures := func() float64 { return testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("work")) }
	earlier := failures()
	redistest.Eventually(t, func() bool { return failures() > earlier })
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
			w := startWorkers(t, r, Config{ShutdownTimeout: 50 * time.Millisecond, Concurrency: 2}, c.handle)
			if !hangsFirst {
				requireWorks(t, r, &c)
				w.Hold(true)
				w.Hold(false)
				require.NoError(t, server.Pause())
			}
			requireStops(t, w)
		})
	}
}
