package tasks

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// never is a TaskCheckInterval with which only the bell brings tasks.
const never = time.Hour

// startListening starts workers that nobody can tell of a task in vain.
func startListening(t *testing.T, r *Redis, cfg WorkersConfig, handle func(context.Context, job.Task) error) *JobConsumer {
	t.Helper()
	channel := bellChannel(queueJobs)
	before := r.client.PubSubNumSub(t.Context(), channel).Val()[channel] // databases share channels
	w := startWorkers(t, r, cfg, handle)
	eventually(t, func() bool { return r.client.PubSubNumSub(t.Context(), channel).Val()[channel] > before })
	return w
}

func TestIdleWorkersAreWoken(t *testing.T) {
	t.Parallel()
	r := connect(t, ownRedis(t).URL())
	var c collector
	w := startListening(t, r, WorkersConfig{TaskCheckInterval: never, Concurrency: 4, Servers: 2}, c.handle)
	q := startQueue(t, r, QueueConfig{})
	for range 5 {
		eventually(t, func() bool { return len(w.broker.fetcher.watch) == 1 }, "idle")
		task := newTask()
		q.Enqueue(task)
		eventually(t, func() bool { return c.has(task) })
	}
}

func TestABurstIsHandledToItsEnd(t *testing.T) {
	t.Parallel()
	r := connect(t, ownRedis(t).URL())
	var c collector
	startListening(t, r, WorkersConfig{TaskCheckInterval: never, Concurrency: 7, Servers: 3}, c.handle)
	q := startQueue(t, r, QueueConfig{})
	for range 10 {
		before := c.count()
		for _, task := range newTasks(200) {
			q.Enqueue(task)
		}
		eventually(t, func() bool { return c.count() == before+200 })
	}
}

func TestTasksWhoseTimeHasComeWakeWorkers(t *testing.T) {
	t.Parallel()
	r := connect(t, ownRedis(t).URL())
	var c collector
	startListening(t, r, WorkersConfig{TaskCheckInterval: never}, c.handle)
	for range 2 {
		task := newTask()
		late := task
		late.RunAt = time.Now().Add(time.Second)
		dispatchAll(t, NewQueue(r, QueueConfig{}), late)
		eventually(t, func() bool { return c.has(task) })
	}
}

// Nobody rings: the queue was not started. After that the bell is not trusted
// for a while.
func TestTasksThatNobodyToldOf(t *testing.T) {
	t.Parallel()
	r := connect(t, ownRedis(t).URL()) // databases share channels
	var c collector
	w := startWorkers(t, r, WorkersConfig{TaskCheckInterval: 50 * time.Millisecond, Concurrency: 8, Servers: 4}, c.handle)
	f := w.broker.fetcher
	eventually(t, func() bool { return len(f.watch) == 1 })
	require.Equal(t, 50*time.Millisecond, f.interval())
	dispatchAll(t, NewQueue(r, QueueConfig{}), newTasks(20)...)
	eventually(t, func() bool { return c.count() == 20 })
	eventually(t, func() bool { return f.interval() == missedWatch })
	eventually(t, func() bool { return f.interval() == 50*time.Millisecond }, "trusted again")
}

func TestWorkersWithoutPubSub(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	url := proxy(t, server.Port(), func(sent []byte) bool { return !bytes.Contains(sent, []byte("subscribe")) })
	r := connectHanging(t, url)
	var c collector
	startWorkers(t, r, WorkersConfig{ShutdownTimeout: 50 * time.Millisecond}, c.handle)
	q := startQueue(t, r, QueueConfig{})
	for range 3 {
		task := newTask()
		q.Enqueue(task)
		eventually(t, func() bool { return c.has(task) })
	}
}

func TestWorkersThatWaitForTasksStopAtOnce(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	var c collector
	w := startWorkers(t, r, WorkersConfig{TaskCheckInterval: never, Concurrency: 6, Servers: 3}, c.handle)
	eventually(t, func() bool { return len(w.broker.fetcher.watch) == 1 })
	w.Quiet()
	require.True(t, waitFor(&w.quieting, within))
	task := newTask()
	dispatchAll(t, NewQueue(r, QueueConfig{}), task)
	requireStops(t, w)
	require.Equal(t, "pending", stateOf(t, r, task))
}

func TestRingerRingsOnceForMany(t *testing.T) {
	t.Parallel()
	r := connect(t, ownRedis(t).URL())
	heard := make(chan string, 10_000)
	s := r.subscribe(r.client, map[string]func(string){bellChannel("x"): func(m string) { heard <- m }})
	t.Cleanup(s.stop)
	eventually(t, func() bool { return r.client.PubSubNumSub(t.Context(), bellChannel("x")).Val()[bellChannel("x")] == 1 })
	bell, stopping, ended := newRinger(r, "x"), make(chan struct{}), make(chan struct{})
	go func() {
		bell.run(stopping)
		close(ended)
	}()
	began := time.Now()
	for range 100_000 {
		bell.ring()
	}
	receive(t, heard, "the bell")
	bell.ring()
	close(stopping)
	receive(t, ended, "the end")
	require.LessOrEqual(t, len(heard), 2+int(time.Since(began)/bellPause))
	require.Empty(t, bell.due, "who rang before the end was told of")
}

// What is sent while the queue stops is told of, and what is for later is not.
func TestQueueRings(t *testing.T) {
	t.Parallel()
	r := connect(t, ownRedis(t).URL())
	q := NewQueue(r, QueueConfig{Senders: 1})
	later := newTask()
	later.RunAt = time.Now().Add(time.Hour)
	dispatchAll(t, q, later)
	require.Empty(t, q.bells[queueJobs].due)

	channel, heard := bellChannel(queueJobs), make(chan int64, 1000)
	s := r.subscribe(r.client, map[string]func(string){channel: func(string) {
		heard <- r.client.LLen(context.Background(), queueKey(queueJobs, "pending")).Val()
	}})
	t.Cleanup(s.stop)
	eventually(t, func() bool { return r.client.PubSubNumSub(t.Context(), channel).Val()[channel] == 1 })
	for _, task := range newTasks(500) {
		q.Enqueue(task)
	}
	q.Start()
	require.NoError(t, q.Stop(t.Context()))
	for receive(t, heard, "a ring after the last task") < 500 {
	}
}
