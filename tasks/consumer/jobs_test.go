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

type collector struct {
	mu  sync.Mutex
	got map[job.ID]int
}

func (c *collector) handle(_ context.Context, t job.Task) error {
	c.add(t.JobID)
	return nil
}

func (c *collector) add(id job.ID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.got == nil {
		c.got = map[job.ID]int{}
	}
	c.got[id]++
	return c.got[id]
}

func (c *collector) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

func (c *collector) has(t job.Task) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[t.JobID] > 0
}

func enqueue(t testing.TB, r *redisconn.Redis, ts ...job.Task) {
	t.Helper()
	redistest.Ensure(t, queue.New(r, queue.Config{}), ts...)
}

func TestWorkersHandleEachTaskOnce(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	ts := redistest.Tasks(500)
	enqueue(t, r, ts...)
	delivery := redistest.Deliveries(1)
	require.Equal(t, 1, redistest.Must(queue.New(r, queue.Config{}).EnsureDeliveries(t.Context(), delivery))(t))
	var c collector
	var begun atomic.Int32
	var tooMany atomic.Bool
	full := make(chan struct{})
	for range 3 {
		var now atomic.Int32
		startWorkers(t, r, Config{Concurrency: 7}, func(ctx context.Context, task job.Task) error {
			if now.Add(1) > 7 {
				tooMany.Store(true)
			}
			defer now.Add(-1)
			if begun.Add(1) == 3*7 {
				close(full) // each of the three workers has seven tasks
			}
			<-full
			return c.handle(ctx, task)
		})
	}
	redistest.Eventually(t, func() bool { return redistest.Info(t, r, redisconn.Jobs).Size == 0 }, "handled tasks are removed")
	for _, task := range ts {
		require.Equal(t, 1, c.got[task.JobID])
	}
	require.False(t, tooMany.Load())
	require.Equal(t, 500, redistest.Info(t, r, redisconn.Jobs).ProcessedTotal)
	require.Equal(t, 500., testutil.ToFloat64(r.Metrics.Handled.WithLabelValues(redisconn.ResultOK)))
	require.Equal(t, 1, redistest.Info(t, r, redisconn.Webhooks).Pending, "the deliveries queue is untouched")
}

func TestRetryDelay(t *testing.T) {
	t.Parallel()
	broken := errors.New("no database")
	require.Equal(t, time.Second, retryDelay(0, broken, nil))
	require.Equal(t, 3*time.Second, retryDelay(2, broken, nil))
	require.Equal(t, 10*time.Second, retryDelay(500, broken, nil))
	require.Equal(t, time.Minute, retryDelay(500, &job.TaskEarly{Wait: time.Minute}, nil))
	require.Equal(t, time.Minute, retryDelay(500, &job.TaskFailed{Again: time.Minute}, nil))
	require.Equal(t, longestWait, retryDelay(0, &job.TaskEarly{Wait: 1<<63 - 1}, nil), "the clock is frozen")
}

// Promise: patterns Dead Letter
func TestWorkersTellHowATaskEnded(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(testing.TB) *redisconn.Redis{"Redis": redistest.DB, "miniredis": redistest.Mini} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := connect(t)
			ts := redistest.Tasks(6)
			first := map[job.ID]error{ // the handler's result of the first try of a task
				ts[0].JobID: nil,
				ts[1].JobID: job.ErrTaskStale,
				ts[2].JobID: &job.TaskFailed{Text: "RFA_INTERNAL: it broke"},
				ts[3].JobID: &job.TaskFailed{Text: "HTTP_5XX", Again: time.Millisecond},
				ts[4].JobID: &job.TaskEarly{Wait: time.Millisecond},
				ts[5].JobID: errors.New("no database"),
			}
			enqueue(t, r, ts...)
			nonsense := asynq.NewTask(queue.JobTask, []byte("nonsense"))
			redistest.Must(asynq.NewClientFromRedisClient(r.Client).Enqueue(nonsense, asynq.Queue(redisconn.Jobs)))(t)
			var c collector
			cfg := Config{Concurrency: 4, DelayedTaskCheckInterval: 10 * time.Millisecond}
			startWorkers(t, r, cfg, func(_ context.Context, task job.Task) error {
				if c.add(task.JobID) == 1 {
					return first[task.JobID]
				}
				return nil
			})
			redistest.Eventually(t, func() bool {
				info := redistest.Info(t, r, redisconn.Jobs)
				return info.Size == 2 && info.Archived == 2
			}, "only the failed one and what cannot be read are kept")
			for i, times := range []int{1, 1, 1, 2, 2, 2} {
				require.Equal(t, times, c.got[ts[i].JobID], i)
			}
			info := redistest.Info(t, r, redisconn.Jobs)
			require.Equal(t, []int{9, 4}, []int{info.ProcessedTotal, info.FailedTotal}, "an early task counts once")
			kept := redistest.Must(r.Inspector.ListArchivedTasks(redisconn.Jobs))(t)
			texts := map[string]string{kept[0].ID: kept[0].LastErr, kept[1].ID: kept[1].LastErr}
			require.Equal(t, "RFA_INTERNAL: it broke", texts[queue.TaskName(ts[2])])
			for result, n := range map[string]float64{
				redisconn.ResultOK: 6, redisconn.ResultStale: 1, redisconn.ResultEarly: 1, redisconn.ResultFailed: 1, redisconn.ResultBad: 1,
			} {
				require.Equal(t, n, testutil.ToFloat64(r.Metrics.Handled.WithLabelValues(result)), result)
			}
		})
	}
}

// asynq stores whole seconds and delivers tasks up to a second early. The handler gets an early task when it is due. A task that was
// started by hand is handled immediately.
func TestWorkersHoldEarlyTasksBack(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	due, came := map[job.ID]time.Time{}, make(chan job.ID, 10)
	startWorkers(t, r, Config{DelayedTaskCheckInterval: 10 * time.Millisecond}, func(_ context.Context, task job.Task) error {
		if left := time.Until(task.RunAt); left > 0 && left < time.Second {
			return errors.New("too early") // the test fails, because the id is never received
		}
		came <- task.JobID
		return nil
	})
	ts := redistest.Tasks(4)
	for i, after := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond, 900 * time.Millisecond, time.Hour} {
		ts[i].RunAt = time.Now().Add(after)
		due[ts[i].JobID] = ts[i].RunAt
	}
	enqueue(t, r, ts...)
	require.NoError(t, r.Inspector.RunTask(redisconn.Jobs, queue.TaskName(ts[3])))
	for range due {
		id := redistest.Receive(t, came, "a task")
		require.Contains(t, due, id)
		delete(due, id)
	}
	require.Zero(t, testutil.ToFloat64(r.Metrics.Handled.WithLabelValues(redisconn.ResultFailed)), "no task came too early")
}

func startHeld(t *testing.T, r *redisconn.Redis, cfg Config) (w *Consumer, task job.Task, release func()) {
	t.Helper()
	task = redistest.Task()
	enqueue(t, r, task)
	started, released := make(chan struct{}), make(chan struct{})
	w = startWorkers(t, r, cfg, func(_ context.Context, got job.Task) error {
		if got == task {
			close(started)
			<-released
		}
		return nil
	})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	redistest.Receive(t, started, "the handler")
	return w, task, release
}

func TestWorkersHold(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	w, task, release := startHeld(t, r, Config{Concurrency: 2})
	for round := range 3 {
		w.Hold(true)
		w.Hold(true)
		w.quieting.Wait()
		later := redistest.Task()
		enqueue(t, r, later)
		if round == 1 {
			require.Equal(t, "active", redistest.JobState(t, r, task))
			release()
			redistest.Eventually(t, func() bool { return redistest.JobState(t, r, task) == "" }, "the handler continued")
		}
		require.Equal(t, "pending", redistest.JobState(t, r, later))
		w.Hold(false)
		w.Hold(false)
		redistest.Eventually(t, func() bool { return redistest.JobState(t, r, later) == "" })
	}
	w.Hold(true)
	requireStops(t, w)
	w.Hold(false)
	require.Nil(t, w.server, "a stopped consumer stays stopped")
}

func TestWorkersStopWaitsForHandlers(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	w, task, release := startHeld(t, r, Config{})
	w.Quiet()
	w.Quiet()
	late := redistest.Task()
	enqueue(t, r, late)
	var stops sync.WaitGroup
	for range 3 {
		stops.Go(func() { _ = w.Stop(context.Background()) })
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.Error(t, redisconn.WaitFor(short, stops.Wait), "Stop waits for the handler")
	release()
	stops.Wait()
	require.Empty(t, redistest.JobState(t, r, task), "done")
	require.Equal(t, "pending", redistest.JobState(t, r, late), "a quiet worker fetches nothing")
}

func TestWorkersPutBackRunningTasks(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	w, task, _ := startHeld(t, r, Config{ShutdownTimeout: 50 * time.Millisecond})
	_ = w.Stop(context.Background())
	require.Equal(t, "pending", redistest.JobState(t, r, task))
}

func TestWorkersStopBeforeStart(t *testing.T) {
	t.Parallel()
	w := NewJobs(redistest.Mini(t), Config{}, func(context.Context, job.Task) error { return nil }, func(job.ID) {})
	w.Hold(true)
	w.Hold(false)
	w.Quiet()
	requireStops(t, w)
	requireStops(t, w)
	require.NoError(t, w.Start(t.Context()))
	require.Nil(t, w.server)
}

func requireStops(t *testing.T, w *Consumer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), redistest.Within)
	defer cancel()
	require.NoError(t, w.Stop(ctx))
}
