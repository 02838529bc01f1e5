package tasks

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/job"
)

// collector is a handler that remembers what it got.
type collector struct {
	mu  sync.Mutex
	got map[job.Task]int
}

func (c *collector) handle(_ context.Context, t job.Task) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.got == nil {
		c.got = map[job.Task]int{}
	}
	c.got[t]++
	return nil
}

func (c *collector) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

func (c *collector) has(t job.Task) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[t] > 0
}

func TestWorkersHandleEachTaskOnce(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{})
	ts := newTasks(500)
	dispatchAll(t, q, ts...)
	var c collector
	startWorkers(t, r, WorkersConfig{Concurrency: 20, Servers: 3}, c.handle)
	eventually(t, func() bool { return c.count() == len(ts) })
	for _, task := range ts {
		require.Equal(t, 1, c.got[task])
	}
	// A finished task leaves nothing behind but statistics.
	eventually(t, func() bool {
		depth, err := q.Depth(t.Context())
		return err == nil && depth["pending"]+depth["active"]+depth["completed"]+depth["archived"] == 0
	})
	require.Empty(t, stateOf(t, r, ts[0]))
	require.Equal(t, 500., value(r.metrics.handled.WithLabelValues(resultOK)))
}

func TestWorkersKeepToTheirConcurrency(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	dispatchAll(t, NewQueue(r, QueueConfig{}), newTasks(50)...)
	var now, most, done atomic.Int32
	full := make(chan struct{})
	startWorkers(t, r, WorkersConfig{Concurrency: 5, Servers: 2}, func(context.Context, job.Task) error {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if n == 5 && done.Load() == 0 {
			close(full)
		}
		<-full
		done.Add(1)
		return nil
	})
	eventually(t, func() bool { return done.Load() == 50 })
	require.Equal(t, int32(5), most.Load())
}

func TestWorkersRunAFailedTaskAgain(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	task := newTask()
	dispatchAll(t, NewQueue(r, QueueConfig{}), task)
	var tries atomic.Int32
	startWorkers(t, r, WorkersConfig{DelayedTaskCheckInterval: 20 * time.Millisecond}, func(_ context.Context, got job.Task) error {
		if got != task {
			return errors.New("another task")
		}
		if tries.Add(1) < 3 {
			return errors.New("no database")
		}
		return nil
	})
	eventually(t, func() bool { return tries.Load() == 3 && stateOf(t, r, task) == "" })
	require.Equal(t, 2., value(r.metrics.handled.WithLabelValues(resultFailed)))
}

func TestRetryDelay(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.Second, retryDelay(0, nil, nil))
	require.Equal(t, 3*time.Second, retryDelay(2, nil, nil))
	require.Equal(t, 10*time.Second, retryDelay(500, nil, nil))
}

func TestWorkersArchiveWhatTheyCannotRead(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	client := asynq.NewClientFromRedisClient(r.client)
	good := newTask()
	for _, task := range []*asynq.Task{
		asynq.NewTask(taskType, []byte("nonsense")),
		asynq.NewTask(taskType, nil),
		asynq.NewTask("other", []byte(taskName(good))),
	} {
		_, err := client.Enqueue(task, asynq.Queue(queueJobs), asynq.MaxRetry(maxRetry))
		require.NoError(t, err)
	}
	dispatchAll(t, NewQueue(r, QueueConfig{}), good)
	var c collector
	startWorkers(t, r, WorkersConfig{}, c.handle)
	eventually(t, func() bool { return c.has(good) })
	eventually(t, func() bool {
		depth, err := r.depth(t.Context(), queueJobs)
		return err == nil && depth["archived"] == 3 && depth["active"] == 0
	})
	require.Equal(t, 1, c.count())
	require.Equal(t, 3., value(r.metrics.handled.WithLabelValues(resultBad)))
}

func TestWorkersAreNeverEarly(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	early := make(chan time.Duration, 100)
	due := map[job.ID]time.Time{}
	ts := newTasks(12)
	for i := range ts {
		ts[i].RunAt = time.Now().Add(time.Duration(i) * 130 * time.Millisecond)
		due[ts[i].JobID] = ts[i].RunAt
	}
	startWorkers(t, r, WorkersConfig{Concurrency: 4, DelayedTaskCheckInterval: 5 * time.Millisecond}, func(_ context.Context, got job.Task) error {
		early <- time.Until(due[got.JobID])
		return nil
	})
	dispatchAll(t, NewQueue(r, QueueConfig{}), ts...)
	for range ts {
		require.LessOrEqual(t, receive(t, early, "a task"), time.Duration(0))
	}
}

func TestHandlerContext(t *testing.T) {
	t.Parallel()
	type key struct{}
	r := newDB(t)
	dispatchAll(t, NewQueue(r, QueueConfig{MaxTaskTime: time.Hour}), newTask())
	seen := make(chan context.Context)
	w := NewJobConsumer(r, WorkersConfig{}, func(ctx context.Context, _ job.Task) error {
		seen <- ctx
		seen <- ctx
		return nil
	}, func(job.ID) {})
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	require.NoError(t, w.Start(ctx))
	t.Cleanup(w.Stop)
	got := receive(t, seen, "the handler")
	cancel()
	require.NoError(t, got.Err(), "the end of Start's context means nothing")
	require.Equal(t, "value", got.Value(key{}))
	deadline, ok := got.Deadline()
	require.True(t, ok)
	require.WithinDuration(t, time.Now().Add(time.Hour), deadline, time.Minute)
	receive(t, seen, "the handler")
}

func TestWorkersStartWithoutRedis(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	require.NoError(t, server.Stop())
	r := connect(t, server.URL())
	var c collector
	startWorkers(t, r, WorkersConfig{}, c.handle)
	eventually(t, func() bool { return value(r.metrics.errors.WithLabelValues("work")) > 0 })
	require.NoError(t, server.Start(t.Context()))
	requireWorks(t, r, &c)
}

// requireWorks waits until a new task is handled.
func requireWorks(t *testing.T, r *Redis, c *collector) {
	t.Helper()
	q := NewQueue(r, QueueConfig{})
	task := newTask()
	eventually(t, func() bool {
		_, err := q.Dispatch(t.Context(), []job.Task{task})
		return err == nil
	})
	eventually(t, func() bool { return c.has(task) })
}

func TestWorkersSurviveRedis(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*testing.T, *Redis, *devstack.Redis){
		"kill": func(t *testing.T, r *Redis, server *devstack.Redis) {
			require.NoError(t, server.Kill())
			requirePaced(t, r)
			require.NoError(t, server.Start(t.Context()))
		},
		"stop": func(t *testing.T, _ *Redis, server *devstack.Redis) {
			require.NoError(t, server.Stop())
			require.NoError(t, server.Start(t.Context()))
		},
		"hang": func(t *testing.T, _ *Redis, server *devstack.Redis) {
			require.NoError(t, server.Pause())
			time.Sleep(time.Second)
			require.NoError(t, server.Resume())
		},
		"out of memory": func(t *testing.T, r *Redis, _ *devstack.Redis) {
			require.NoError(t, r.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
			requirePaced(t, r)
			require.NoError(t, r.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
		},
		"flush": func(t *testing.T, r *Redis, _ *devstack.Redis) {
			require.NoError(t, r.client.FlushAll(t.Context()).Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := ownRedis(t)
			r := connectHanging(t, server.URL())
			var c collector
			startWorkers(t, r, WorkersConfig{Concurrency: 2}, c.handle)
			requireWorks(t, r, &c)
			fault(t, r, server)
			requireWorks(t, r, &c)
		})
	}
}

// requirePaced checks that asynq's loops do not spin while Redis fails: there
// are fewer than ten, and each failure takes pacePause.
func requirePaced(t *testing.T, r *Redis) {
	t.Helper()
	failures := func() float64 { return value(r.metrics.errors.WithLabelValues("work")) }
	eventually(t, func() bool { return failures() > 0 })
	before, began := failures(), time.Now()
	time.Sleep(3 * pacePause)
	require.LessOrEqual(t, failures()-before, 10*(1+float64(time.Since(began)/pacePause)))
}

func TestWorkersStopWaitsForHandlers(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	task := newTask()
	dispatchAll(t, NewQueue(r, QueueConfig{}), task)
	started, release := make(chan struct{}), make(chan struct{})
	w := startWorkers(t, r, WorkersConfig{}, func(context.Context, job.Task) error {
		close(started)
		<-release
		return nil
	})
	receive(t, started, "the handler")
	w.Quiet()
	w.Quiet()
	late := newTask()
	dispatchAll(t, NewQueue(r, QueueConfig{}), late)

	var stops sync.WaitGroup
	for range 3 {
		stops.Go(w.Stop)
	}
	stopped := make(chan struct{})
	go func() {
		stops.Wait()
		close(stopped)
	}()
	select {
	case <-stopped:
		require.FailNow(t, "stopped although a handler runs")
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	receive(t, stopped, "Stop")
	require.Empty(t, stateOf(t, r, task), "done")
	require.Equal(t, "pending", stateOf(t, r, late), "a quiet worker fetches nothing")
}

func TestWorkersPutBackWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	task := newTask()
	dispatchAll(t, NewQueue(r, QueueConfig{}), task)
	started, release := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(release) })
	w := startWorkers(t, r, WorkersConfig{ShutdownTimeout: 50 * time.Millisecond}, func(context.Context, job.Task) error {
		close(started)
		<-release
		return nil
	})
	receive(t, started, "the handler")
	w.Stop()
	require.Equal(t, "pending", stateOf(t, r, task))
}

func TestWorkersStopBeforeStart(t *testing.T) {
	t.Parallel()
	w := NewJobConsumer(newDB(t), WorkersConfig{}, func(context.Context, job.Task) error { return nil }, func(job.ID) {})
	w.Quiet()
	w.Stop()
	w.Stop()
	require.NoError(t, w.Start(t.Context()))
	require.Empty(t, w.servers)
}

func TestWorkersStopWhileRedisHangs(t *testing.T) {
	t.Parallel()
	for name, hangsFirst := range map[string]bool{"from the start": true, "later": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := ownRedis(t)
			r := connectHanging(t, server.URL())
			if hangsFirst {
				require.NoError(t, server.Pause())
			}
			var c collector
			w := startWorkers(t, r, WorkersConfig{ShutdownTimeout: 50 * time.Millisecond, Servers: 2, Concurrency: 2}, c.handle)
			if !hangsFirst {
				requireWorks(t, r, &c)
				require.NoError(t, server.Pause())
			}
			requireStops(t, w)
		})
	}
}

func requireStops(t *testing.T, w *JobConsumer) {
	t.Helper()
	stopped := make(chan struct{})
	go func() {
		w.Stop()
		close(stopped)
	}()
	receive(t, stopped, "Stop")
}

// An asynq server waits for the answer to its first subscription for ever.
func TestWorkersStopWhileASubscriptionHangs(t *testing.T) {
	t.Parallel()
	subscribed := make(chan struct{}, 100)
	url := proxy(t, ownRedis(t).Port(), func(sent []byte) bool {
		if !bytes.Contains(sent, []byte("subscribe")) {
			return true
		}
		subscribed <- struct{}{}
		return false
	})
	var c collector
	w := startWorkers(t, connectHanging(t, url), WorkersConfig{ShutdownTimeout: 50 * time.Millisecond}, c.handle)
	receive(t, subscribed, "our subscription or asynq's")
	receive(t, subscribed, "the other one")
	requireStops(t, w)
}

func TestIsTrouble(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	ctx := t.Context()
	require.False(t, isTrouble(nil))
	require.False(t, isTrouble(r.client.Get(ctx, "nothing").Err()))
	require.False(t, isTrouble(r.client.EvalSha(ctx, "0000000000000000000000000000000000000000", nil).Err()))
	require.False(t, isTrouble(r.client.Eval(ctx, `return redis.error_reply("NOT FOUND")`, nil).Err()))
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	require.False(t, isTrouble(r.client.Get(canceled, "x").Err()))
	require.True(t, isTrouble(r.client.Do(ctx, "nonsense").Err()))
	require.True(t, isTrouble(errors.New("broken pipe")))
}
