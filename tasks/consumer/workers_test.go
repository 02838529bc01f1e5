package consumer

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/hibiken/asynq"
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

// Short forms of clients.
var anna, bert = job.ID{15: 0xa}, job.ID{15: 0xb}

func startWorkers(t testing.TB, r *redisconn.Redis, cfg Config, handle func(context.Context, job.Task) error) *Consumer {
	t.Helper()
	w := NewJobs(r, cfg, handle, func(job.ID) {})
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() { _ = w.Stop(context.Background()) })
	return w
}

// payloadOf is a task as the queue writes it.
func payloadOf(task job.Task) []byte {
	return fmt.Appendf(nil, `{"job":%q,"attempt":%d}`, task.JobID, task.Attempt)
}

func inspector(r *redisconn.Redis) *asynq.Inspector { return asynq.NewInspector(r) }

// deliveryNames is how many delivery tasks of a client there can be in Redis.
const deliveryNames = 3

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

// never is a TaskCheckInterval with which only a wake-up brings tasks.
const never = time.Hour

// startListening starts workers that no wake-up misses.
func startListening(t *testing.T, r *redisconn.Redis, cfg Config, handle func(context.Context, job.Task) error) (w *Consumer) {
	t.Helper()
	listening(t, r, redisconn.Jobs, func() { w = startWorkers(t, r, cfg, handle) })
	return w
}

// listening starts a consumer and waits until it hears the wake-ups of the queue.
func listening(t *testing.T, r *redisconn.Redis, name string, start func()) {
	t.Helper()
	channel := notify.WakeUpChannel(name)
	before := r.Client.PubSubNumSub(t.Context(), channel).Val()[channel] // databases share channels
	start()
	redistest.Eventually(t, func() bool { return r.Client.PubSubNumSub(t.Context(), channel).Val()[channel] > before })
}

func TestIdleWorkersAreWoken(t *testing.T) {
	t.Parallel()
	r := redistest.Connect(t, redistest.Own(t).URL())
	var c collector
	w := startListening(t, r, Config{TaskCheckInterval: never, Concurrency: 4, Servers: 2}, c.handle)
	q := redistest.Start(t, queue.New(r, queue.Config{}))
	for range 5 {
		redistest.Eventually(t, func() bool { return w.broker.Idle() }, "idle")
		task := redistest.Task()
		q.Enqueue(task)
		redistest.Eventually(t, func() bool { return c.has(task) })
	}
}

func TestABurstIsHandledToItsEnd(t *testing.T) {
	t.Parallel()
	r := redistest.Connect(t, redistest.Own(t).URL())
	var c collector
	startListening(t, r, Config{TaskCheckInterval: never, Concurrency: 7, Servers: 3}, c.handle)
	q := redistest.Start(t, queue.New(r, queue.Config{}))
	for range 10 {
		before := c.count()
		for _, task := range redistest.Tasks(200) {
			q.Enqueue(task)
		}
		redistest.Eventually(t, func() bool { return c.count() == before+200 })
	}
}

// Consumers are told of a scheduled task whose time comes soon, also of one that comes before those that they wait for. They move
// it and wake the others at its time, to the millisecond.
func TestWorkersTakeTasksAtTheirTime(t *testing.T) {
	t.Parallel()
	r := redistest.Connect(t, redistest.Own(t).URL())
	q := redistest.Start(t, queue.New(r, queue.Config{}))
	came := make(chan job.Task, 10)
	startListening(t, r, Config{TaskCheckInterval: never, DelayedTaskCheckInterval: never}, func(_ context.Context, task job.Task) error {
		came <- task
		return nil
	})
	began, due := time.Now(), map[job.ID]time.Time{}
	for _, after := range []time.Duration{450 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond} {
		task := redistest.Task()
		task.RunAt = began.Add(after)
		due[task.JobID] = task.RunAt
		redistest.Dispatch(t, q, task)
	}
	for range due {
		task := redistest.Receive(t, came, "a task")
		require.False(t, time.Now().Before(due[task.JobID]), "never early")
	}
}

func TestWorkersThatWaitForTasksStopAtOnce(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	var c collector
	w := startWorkers(t, r, Config{TaskCheckInterval: never, Concurrency: 6, Servers: 3}, c.handle)
	redistest.Eventually(t, func() bool { return w.broker.Idle() })
	w.Quiet()
	w.quieting.Wait()
	task := redistest.Task()
	redistest.Dispatch(t, queue.New(r, queue.Config{}), task)
	requireStops(t, w)
	require.Equal(t, "pending", redistest.JobState(t, r, task))
}
