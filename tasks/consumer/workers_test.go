package consumer

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/notify"
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

// listen starts workers that hand over the ids of cancelled jobs, and waits
// until they listen.
func listen(t *testing.T, r *redisconn.Redis, q *queue.Queue) <-chan job.ID {
	t.Helper()
	received := make(chan job.ID, 10000)
	w := NewJobs(r, Config{}, func(context.Context, job.Task) error { return nil }, func(id job.ID) { received <- id })
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() { _ = w.Stop(context.Background()) })
	requireSignals(t, q, received)
	return received
}

// requireSignals signals until a signal comes through, and drains the channel.
func requireSignals(t *testing.T, q *queue.Queue, received <-chan job.ID) {
	t.Helper()
	last := redistest.Task().JobID
	redistest.Eventually(t, func() bool {
		q.SignalCancel(last)
		select {
		case id := <-received:
			return id == last
		default:
			return false
		}
	})
	marker := redistest.Task().JobID
	q.SignalCancel(marker)
	for redistest.Receive(t, received, "the last signal") != marker {
	}
}

func TestCancelSignal(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t) // channels are shared by all databases of a server
	sender, receiver := redistest.Connect(t, server.URL()), redistest.Connect(t, server.URL())
	q := redistest.Start(t, queue.New(sender, queue.Config{}))
	received := listen(t, receiver, q)
	also := listen(t, receiver, q)

	for _, nonsense := range []string{"", "x", "0190f3a4-7d6e-7c55-8a2b-3d1f5e6a7b8", "{}"} {
		require.NoError(t, sender.Client.Publish(t.Context(), notify.CancelChannel, nonsense).Err())
	}
	var ids []job.ID
	for _, task := range redistest.Tasks(1000) {
		ids = append(ids, task.JobID)
		q.SignalCancel(task.JobID)
	}
	for _, ch := range []<-chan job.ID{received, also} {
		for redistest.Receive(t, ch, "the first signal") != ids[0] {
		}
		for _, id := range ids[1:] {
			require.Equal(t, id, redistest.Receive(t, ch, "a signal"))
		}
	}
	require.Equal(t, 8., testutil.ToFloat64(receiver.Metrics.Signals.WithLabelValues(redisconn.ResultBad)))
}

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
	q, ts := queue.New(r, queue.Config{}), redistest.Tasks(1)
	redistest.Eventually(t, func() bool {
		_, err := q.Ensure(t.Context(), ts)
		return err == nil && c.has(ts[0])
	})
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
