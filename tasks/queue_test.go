package tasks

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestEnqueue(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := startQueue(t, r, QueueConfig{MaxTaskTime: 150*time.Second + 1})
	task := newTask()
	task.Attempt, task.Dispatch = 2, 5
	q.Enqueue(task)
	eventually(t, func() bool { return stateOf(t, r, task) == "pending" })

	info, err := inspector(r).GetTaskInfo(queueJobs, taskName(task))
	require.NoError(t, err)
	require.Equal(t, taskType, info.Type)
	require.Equal(t, taskName(task), string(info.Payload))
	require.Equal(t, 151*time.Second, info.Timeout, "rounded up")
	require.Equal(t, maxRetry, info.MaxRetry)
	require.Zero(t, info.Retention, "a finished task's name is free at once")

	q.Enqueue(task)
	eventually(t, func() bool { return value(r.metrics.enqueued.WithLabelValues(resultConflict)) == 1 })
	require.Equal(t, 1., value(r.metrics.enqueued.WithLabelValues(resultOK)))
	depth, err := q.Depth(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"pending": 1, "active": 0, "scheduled": 0, "retry": 0, "archived": 0, "completed": 0}, depth)
}

func TestEnqueueForLater(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := startQueue(t, r, QueueConfig{})
	past, later := newTask(), newTask()
	past.RunAt = time.Now().Add(-time.Hour)
	later.RunAt = time.Now().Add(time.Hour).Truncate(time.Second).Add(time.Millisecond)
	q.Enqueue(past)
	q.Enqueue(later)
	eventually(t, func() bool { return stateOf(t, r, past) == "pending" })
	eventually(t, func() bool { return stateOf(t, r, later) == "scheduled" })
	score, err := r.client.ZScore(t.Context(), queueKey(queueJobs, "scheduled"), taskName(later)).Result()
	require.NoError(t, err)
	require.Equal(t, later.RunAt.Unix()+1, int64(score), "rounded up to the second")
}

func TestCeilTime(t *testing.T) {
	t.Parallel()
	second := time.Unix(1_900_000_000, 0).UTC()
	require.Equal(t, second, ceilTime(second))
	require.Equal(t, second.Add(time.Second), ceilTime(second.Add(1)))
	require.Equal(t, second.Add(time.Second), ceilTime(second.Add(time.Second-1)))
}

// Nobody reads the buffer of a queue that was not started, so a call that waited
// would wait for ever.
func TestEnqueueNeverWaits(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{Buffer: 10})
	for range 25 {
		q.Enqueue(newTask())
	}
	for range cap(q.signals) + 3 {
		q.SignalCancel(newTask().JobID)
	}
	require.Equal(t, 15., value(r.metrics.enqueued.WithLabelValues(resultDropped)))
	require.Equal(t, 10., value(r.metrics.buffered))
	require.Equal(t, 3., value(r.metrics.signals.WithLabelValues(resultDropped)))
}

// While Redis hangs, tasks do not pile up: they are given up, until it answers
// again.
func TestEnqueueWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	r := connectHanging(t, server.URL())
	q := startQueue(t, r, QueueConfig{})
	first := newTask()
	q.Enqueue(first)
	eventually(t, func() bool { return stateOf(t, r, first) == "pending" })

	require.NoError(t, server.Pause())
	for _, task := range newTasks(1000) {
		q.Enqueue(task)
	}
	eventually(t, func() bool { return value(r.metrics.buffered) == 0 })
	require.Positive(t, value(r.metrics.enqueued.WithLabelValues(resultFailed)))
	require.Greater(t, value(r.metrics.enqueued.WithLabelValues(resultSkipped)), 800.)
	_, err := q.Dispatch(t.Context(), newTasks(3))
	require.Error(t, err)

	require.NoError(t, server.Resume())
	eventually(t, func() bool {
		task := newTask()
		q.Enqueue(task)
		time.Sleep(10 * time.Millisecond)
		return stateOf(t, r, task) == "pending"
	})
}

func TestQueueStopSendsWhatIsBuffered(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{Senders: 4})
	for _, task := range newTasks(500) {
		q.Enqueue(task)
	}
	q.Start()
	q.Start()
	require.NoError(t, q.Stop(t.Context()))
	require.NoError(t, q.Stop(t.Context()))
	depth, err := q.Depth(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(500), depth["pending"])

	q.Enqueue(newTask())
	q.SignalCancel(job.ID{1})
	require.Equal(t, 1., value(r.metrics.enqueued.WithLabelValues(resultDropped)))
	require.Equal(t, 1., value(r.metrics.signals.WithLabelValues(resultDropped)))
	_, err = q.Dispatch(t.Context(), newTasks(1))
	require.NoError(t, err, "only the background is stopped")
}

func TestQueueStopBeforeStart(t *testing.T) {
	t.Parallel()
	q := NewQueue(newDB(t), QueueConfig{})
	q.Enqueue(newTask())
	require.NoError(t, q.Stop(t.Context()))
	q.Start()
	require.NoError(t, q.Stop(t.Context()))
}

func TestQueueStopWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	r := connectHanging(t, server.URL())
	eventually(t, func() bool { return r.Ping(t.Context()) == nil })
	require.NoError(t, server.Pause())
	q := NewQueue(r, QueueConfig{Senders: 1})
	q.Start()
	for _, task := range newTasks(100) {
		q.Enqueue(task)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, q.Stop(ctx), context.Canceled)
	eventually(t, func() bool { return value(r.metrics.buffered) == 0 })
	q.running.Wait()
	require.GreaterOrEqual(t, value(r.metrics.enqueued.WithLabelValues(resultDropped)), 99.)
}

func TestRedisThatIsDown(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	require.NoError(t, server.Stop())
	r := connect(t, server.URL())
	q := startQueue(t, r, QueueConfig{})
	ctx := t.Context()

	q.Enqueue(newTask())
	q.SignalCancel(newTask().JobID)
	_, err := q.Dispatch(ctx, newTasks(100))
	require.Error(t, err)
	_, err = q.Missing(ctx, newTasks(100))
	require.Error(t, err)
	_, _, err = q.Epoch(ctx)
	require.Error(t, err)
	_, err = q.Depth(ctx)
	require.Error(t, err)
	require.Error(t, q.SetEpoch(ctx, 1))
	require.Error(t, q.Ping(ctx))
	for _, operation := range []string{"dispatch", "probe", "epoch", "depth", "ping"} {
		require.Positive(t, value(r.metrics.errors.WithLabelValues(operation)), operation)
	}

	require.NoError(t, server.Start(ctx))
	eventually(t, func() bool { return q.Ping(ctx) == nil })
	answers, err := q.Dispatch(ctx, newTasks(1))
	require.NoError(t, err)
	require.Equal(t, []job.Dispatched{job.TaskEnqueued}, answers)
}
