package consumer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
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
	r := redistest.DB(t)
	q := queue.New(r, queue.Config{})
	ts := redistest.Tasks(500)
	redistest.Dispatch(t, q, ts...)
	var c collector
	startWorkers(t, r, Config{Concurrency: 20, Servers: 3}, c.handle)
	redistest.Eventually(t, func() bool { return c.count() == len(ts) })
	for _, task := range ts {
		require.Equal(t, 1, c.got[task])
	}
	// A finished task leaves nothing behind but statistics.
	redistest.Eventually(t, func() bool {
		depth, err := q.Depth(t.Context())
		return err == nil && depth["pending"]+depth["active"]+depth["completed"]+depth["archived"] == 0
	})
	require.Empty(t, redistest.JobState(t, r, ts[0]))
	require.Equal(t, 500., testutil.ToFloat64(r.Metrics.Handled.WithLabelValues(redisconn.ResultOK)))
}

func TestWorkersKeepToTheirConcurrency(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	redistest.Dispatch(t, queue.New(r, queue.Config{}), redistest.Tasks(50)...)
	var now, most, done atomic.Int32
	full := make(chan struct{})
	startWorkers(t, r, Config{Concurrency: 5, Servers: 2}, func(context.Context, job.Task) error {
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
	redistest.Eventually(t, func() bool { return done.Load() == 50 })
	require.Equal(t, int32(5), most.Load())
}

func TestWorkersRunAFailedTaskAgain(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	task := redistest.Task()
	redistest.Dispatch(t, queue.New(r, queue.Config{}), task)
	var tries atomic.Int32
	startWorkers(t, r, Config{DelayedTaskCheckInterval: 20 * time.Millisecond}, func(_ context.Context, got job.Task) error {
		if got != task {
			return errors.New("another task")
		}
		if tries.Add(1) < 2 {
			return errors.New("no database")
		}
		return nil
	})
	redistest.Eventually(t, func() bool { return tries.Load() == 2 && redistest.JobState(t, r, task) == "" })
	require.Equal(t, 1., testutil.ToFloat64(r.Metrics.Handled.WithLabelValues(redisconn.ResultFailed)))
}

func TestRetryDelay(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.Second, retryDelay(0, nil, nil))
	require.Equal(t, 3*time.Second, retryDelay(2, nil, nil))
	require.Equal(t, 10*time.Second, retryDelay(500, nil, nil))
}

// How a task ends is what the dashboard counts and keeps.
// Promise: patterns Dead Letter
func TestWorkersTellHowATaskEnded(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	ts := redistest.Tasks(4)
	done, failed, stale, early := ts[0], ts[1], ts[2], ts[3]
	var came atomic.Int32
	startWorkers(t, r, Config{Concurrency: 4}, func(_ context.Context, task job.Task) error {
		switch {
		case task == failed:
			return &job.TaskFailed{Text: "RFA_INTERNAL: it broke"}
		case task == stale:
			return job.ErrTaskStale
		case task == early && came.Add(1) == 1:
			return &job.TaskEarly{Wait: time.Millisecond}
		}
		return nil
	})
	redistest.Dispatch(t, queue.New(r, queue.Config{}), done, failed, stale, early)
	redistest.Eventually(t, func() bool {
		n, _ := r.Client.Get(t.Context(), redisconn.QueueKey(redisconn.Jobs, "processed")).Int()
		return n == 3 && came.Load() == 2 && redistest.JobState(t, r, stale) == ""
	})
	require.Equal(t, "1", r.Client.Get(t.Context(), redisconn.QueueKey(redisconn.Jobs, "failed")).Val())
	kept := redistest.Must(inspector(r).ListArchivedTasks(redisconn.Jobs))(t)
	require.Len(t, kept, 1)
	require.Equal(t, queue.TaskName(failed), kept[0].ID)
	require.Equal(t, "RFA_INTERNAL: it broke", kept[0].LastErr)
	for result, n := range map[string]float64{
		redisconn.ResultOK: 3, redisconn.ResultStale: 1, redisconn.ResultEarly: 1, redisconn.ResultFailed: 0,
	} {
		redistest.Eventually(t, func() bool { return testutil.ToFloat64(r.Metrics.Handled.WithLabelValues(result)) == n }, result)
	}
}

func TestWorkersArchiveWhatTheyCannotRead(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	client := asynq.NewClientFromRedisClient(r.Client)
	good := redistest.Task()
	for _, task := range []*asynq.Task{
		asynq.NewTask(queue.JobTask, []byte("nonsense")),
		asynq.NewTask(queue.JobTask, nil),
		asynq.NewTask("other", payloadOf(good)),
	} {
		redistest.Must(client.Enqueue(task, asynq.Queue(redisconn.Jobs), asynq.MaxRetry(queue.MaxRetry)))(t)
	}
	redistest.Dispatch(t, queue.New(r, queue.Config{}), good)
	var c collector
	startWorkers(t, r, Config{}, c.handle)
	redistest.Eventually(t, func() bool { return c.has(good) })
	redistest.Eventually(t, func() bool {
		depth, err := r.Depth(t.Context(), redisconn.Jobs)
		return err == nil && depth["archived"] == 3 && depth["active"] == 0
	})
	require.Equal(t, 1, c.count())
	require.Equal(t, 3., testutil.ToFloat64(r.Metrics.Handled.WithLabelValues(redisconn.ResultBad)))
}

// startHeld starts workers whose handler has a task until release.
func startHeld(t *testing.T, r *redisconn.Redis, cfg Config) (w *Consumer, task job.Task, release func()) {
	t.Helper()
	task = redistest.Task()
	redistest.Dispatch(t, queue.New(r, queue.Config{}), task)
	started, released := make(chan struct{}), make(chan struct{})
	w = startWorkers(t, r, cfg, func(context.Context, job.Task) error {
		close(started)
		<-released
		return nil
	})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release) // before the workers' end
	redistest.Receive(t, started, "the handler")
	return w, task, release
}

func TestWorkersStopWaitsForHandlers(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	w, task, release := startHeld(t, r, Config{})
	w.Quiet()
	w.Quiet()
	late := redistest.Task()
	redistest.Dispatch(t, queue.New(r, queue.Config{}), late)
	var stops sync.WaitGroup
	for range 3 {
		stops.Go(func() { _ = w.Stop(context.Background()) })
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.Error(t, redisconn.WaitFor(short, stops.Wait), "a handler runs")
	release()
	stops.Wait()
	require.Empty(t, redistest.JobState(t, r, task), "done")
	require.Equal(t, "pending", redistest.JobState(t, r, late), "a quiet worker fetches nothing")
}

func TestWorkersPutBackWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	w, task, _ := startHeld(t, r, Config{ShutdownTimeout: 50 * time.Millisecond})
	_ = w.Stop(context.Background())
	require.Equal(t, "pending", redistest.JobState(t, r, task))
}

func TestHandledTasksAreRemovedOnceRedisIsBack(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	_, task, release := startHeld(t, r, Config{})
	require.NoError(t, server.Stop())
	release()
	redistest.Eventually(t, func() bool { return testutil.ToFloat64(r.Metrics.Handled.WithLabelValues(redisconn.ResultOK)) == 1 })
	require.NoError(t, server.Start(t.Context()))
	redistest.Eventually(t, func() bool { return redistest.JobState(t, r, task) == "" })
}

func TestWorkersStopBeforeStart(t *testing.T) {
	t.Parallel()
	w := NewJobs(redistest.Mini(t), Config{}, func(context.Context, job.Task) error { return nil }, func(job.ID) {})
	w.Quiet()
	_ = w.Stop(context.Background())
	_ = w.Stop(context.Background())
	require.NoError(t, w.Start(t.Context()))
	require.Empty(t, w.servers)
}

func requireStops(t *testing.T, w *Consumer) {
	t.Helper()
	stopped := make(chan struct{})
	go func() {
		_ = w.Stop(context.Background())
		close(stopped)
	}()
	redistest.Receive(t, stopped, "Stop")
}
