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
func startListening(t *testing.T, r *redisconn.Redis, cfg Config, handle func(context.Context, job.Task) error) *Consumer {
	t.Helper()
	channel := notify.WakeUpChannel(redisconn.Jobs)
	before := r.Client.PubSubNumSub(t.Context(), channel).Val()[channel] // databases share channels
	w := startWorkers(t, r, cfg, handle)
	redistest.Eventually(t, func() bool { return r.Client.PubSubNumSub(t.Context(), channel).Val()[channel] > before })
	return w
}

func TestIdleWorkersAreWoken(t *testing.T) {
	t.Parallel()
	r := redistest.Connect(t, redistest.Own(t).URL())
	var c collector
	w := startListening(t, r, Config{TaskCheckInterval: never, Concurrency: 4, Servers: 2}, c.handle)
	q := startQueue(t, r, queue.Config{})
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
	q := startQueue(t, r, queue.Config{})
	for range 10 {
		before := c.count()
		for _, task := range redistest.Tasks(200) {
			q.Enqueue(task)
		}
		redistest.Eventually(t, func() bool { return c.count() == before+200 })
	}
}

func TestTasksWhoseTimeHasComeWakeWorkers(t *testing.T) {
	t.Parallel()
	r := redistest.Connect(t, redistest.Own(t).URL())
	var c collector
	startListening(t, r, Config{TaskCheckInterval: never}, c.handle)
	for range 2 {
		task := redistest.Task()
		late := task
		late.RunAt = time.Now().Add(time.Second)
		dispatchAll(t, queue.New(r, queue.Config{}), late)
		redistest.Eventually(t, func() bool { return c.has(task) })
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
	dispatchAll(t, queue.New(r, queue.Config{}), task)
	requireStops(t, w)
	require.Equal(t, "pending", stateOf(t, r, task))
}
