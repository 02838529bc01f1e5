package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/notify"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

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
