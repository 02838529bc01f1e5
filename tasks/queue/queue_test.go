package queue

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/notify"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestEnqueue(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := startQueue(t, r, Config{MaxTaskTime: 150*time.Second + 1})
	task := redistest.Task()
	task.Attempt, task.Dispatch = 2, 5
	q.Enqueue(task)
	redistest.Eventually(t, func() bool { return stateOf(t, r, task) == "pending" })

	info, err := inspector(r).GetTaskInfo(redisconn.Jobs, TaskName(task))
	require.NoError(t, err)
	require.Equal(t, JobTask, info.Type)
	require.JSONEq(t, `{"job":"`+task.JobID.String()+`","attempt":2,"dispatch":5}`, string(info.Payload))
	require.Equal(t, 151*time.Second, info.Timeout, "rounded up")
	require.Equal(t, MaxRetry, info.MaxRetry)
	require.Zero(t, info.Retention, "a finished task's name is free at once")

	q.Enqueue(task)
	redistest.Eventually(t, func() bool {
		return testutil.ToFloat64(r.Metrics.Enqueued.WithLabelValues(redisconn.ResultConflict)) == 1
	})
	require.Equal(t, 1., testutil.ToFloat64(r.Metrics.Enqueued.WithLabelValues(redisconn.ResultOK)))
	depth, err := q.Depth(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"pending": 1, "active": 0, "scheduled": 0, "retry": 0, "archived": 0, "completed": 0}, depth)
}

func TestEnqueueForLater(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := startQueue(t, r, Config{})
	past, later := redistest.Task(), redistest.Task()
	past.RunAt = time.Now().Add(-time.Hour)
	later.RunAt = time.Now().Add(time.Hour).Truncate(time.Second).Add(time.Millisecond)
	q.Enqueue(past)
	q.Enqueue(later)
	redistest.Eventually(t, func() bool { return stateOf(t, r, past) == "pending" })
	redistest.Eventually(t, func() bool { return stateOf(t, r, later) == "scheduled" })
	score, err := r.Client.ZScore(t.Context(), redisconn.QueueKey(redisconn.Jobs, "scheduled"), TaskName(later)).Result()
	require.NoError(t, err)
	require.InDelta(t, float64(later.RunAt.UnixMilli())/1000, score, 1e-6)
}

// Nobody reads the buffer of a queue that was not started, so a call that waited
// would wait for ever.
func TestEnqueueNeverWaits(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := New(r, Config{Buffer: 10})
	for range 25 {
		q.Enqueue(redistest.Task())
	}
	for range 4096 + 3 {
		q.SignalCancel(redistest.Task().JobID)
	}
	require.Equal(t, 15., testutil.ToFloat64(r.Metrics.Enqueued.WithLabelValues(redisconn.ResultDropped)))
	require.Equal(t, 10., testutil.ToFloat64(r.Metrics.Buffered))
	require.Equal(t, 3., testutil.ToFloat64(r.Metrics.Signals.WithLabelValues(redisconn.ResultDropped)))
}

// While Redis hangs, tasks do not pile up: they are given up, until it answers
// again.
func TestEnqueueWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	q := startQueue(t, r, Config{})
	first := redistest.Task()
	q.Enqueue(first)
	redistest.Eventually(t, func() bool { return stateOf(t, r, first) == "pending" })

	require.NoError(t, server.Pause())
	for _, task := range redistest.Tasks(1000) {
		q.Enqueue(task)
	}
	redistest.Eventually(t, func() bool { return testutil.ToFloat64(r.Metrics.Buffered) == 0 })
	require.Positive(t, testutil.ToFloat64(r.Metrics.Enqueued.WithLabelValues(redisconn.ResultFailed)))
	require.GreaterOrEqual(t, testutil.ToFloat64(r.Metrics.Enqueued.WithLabelValues(redisconn.ResultSkipped)), 1000.-maxPut)
	_, err := q.Dispatch(t.Context(), redistest.Tasks(3))
	require.Error(t, err)

	require.NoError(t, server.Resume())
	redistest.Eventually(t, func() bool {
		task := redistest.Task()
		q.Enqueue(task)
		time.Sleep(10 * time.Millisecond)
		return stateOf(t, r, task) == "pending"
	})
}

func TestQueueStopSendsWhatIsBuffered(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := New(r, Config{})
	for _, task := range redistest.Tasks(500) {
		q.Enqueue(task)
	}
	q.Start()
	q.Start()
	require.NoError(t, q.Stop(t.Context()))
	require.NoError(t, q.Stop(t.Context()))
	depth, err := q.Depth(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(500), depth["pending"])

	q.Enqueue(redistest.Task())
	q.SignalCancel(job.ID{1})
	require.Equal(t, 1., testutil.ToFloat64(r.Metrics.Enqueued.WithLabelValues(redisconn.ResultDropped)))
	require.Equal(t, 1., testutil.ToFloat64(r.Metrics.Signals.WithLabelValues(redisconn.ResultDropped)))
	_, err = q.Dispatch(t.Context(), redistest.Tasks(1))
	require.NoError(t, err, "only the background is stopped")
}

func TestQueueStopBeforeStart(t *testing.T) {
	t.Parallel()
	q := New(redistest.Mini(t), Config{})
	q.Enqueue(redistest.Task())
	require.NoError(t, q.Stop(t.Context()))
	q.Start()
	require.NoError(t, q.Stop(t.Context()))
}

func TestQueueStopWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	redistest.Eventually(t, func() bool { return r.Ping(t.Context()) == nil })
	require.NoError(t, server.Pause())
	q := New(r, Config{})
	q.Start()
	for _, task := range redistest.Tasks(1000) {
		q.Enqueue(task)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, q.Stop(ctx), context.Canceled)
	redistest.Eventually(t, func() bool { return testutil.ToFloat64(r.Metrics.Buffered) == 0 })
	redistest.Eventually(t, func() bool {
		return testutil.ToFloat64(r.Metrics.Enqueued.WithLabelValues(redisconn.ResultDropped)) >= 1000-maxPut
	})
}

func TestRedisThatIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	require.NoError(t, server.Stop())
	r := redistest.Connect(t, server.URL())
	q := startQueue(t, r, Config{})
	ctx := t.Context()

	q.Enqueue(redistest.Task())
	q.SignalCancel(redistest.Task().JobID)
	_, err := q.Dispatch(ctx, redistest.Tasks(100))
	require.Error(t, err)
	_, err = q.Missing(ctx, redistest.Tasks(100))
	require.Error(t, err)
	_, _, err = q.Epoch(ctx)
	require.Error(t, err)
	_, err = q.Depth(ctx)
	require.Error(t, err)
	require.Error(t, q.SetEpoch(ctx, 1))
	require.Error(t, q.Ping(ctx))
	for _, operation := range []string{"dispatch", "probe", "epoch", "depth", "ping"} {
		require.Positive(t, testutil.ToFloat64(r.Metrics.Errors.WithLabelValues(operation)), operation)
	}

	require.NoError(t, server.Start(ctx))
	redistest.Eventually(t, func() bool { return q.Ping(ctx) == nil })
	answers, err := q.Dispatch(ctx, redistest.Tasks(1))
	require.NoError(t, err)
	require.Equal(t, []job.Dispatched{job.TaskEnqueued}, answers)
}

// What is sent while the queue stops wakes consumers, and what is for later does
// not.
func TestQueueWakesConsumers(t *testing.T) {
	t.Parallel()
	r := redistest.Connect(t, redistest.Own(t).URL())
	q := New(r, Config{})
	later := redistest.Task()
	later.RunAt = time.Now().Add(time.Hour)
	dispatchAll(t, q, later)
	require.Zero(t, q.wakeUps[redisconn.Jobs].Len())

	channel, heard := notify.WakeUpChannel(redisconn.Jobs), make(chan int64, 1000)
	s := notify.NewSubscriber(r, notify.SubscriberConfig{
		Client: r.Client, Outages: redisconn.NewCircuit("testing", r.Log, nil),
		Received: func(string, string) {
			heard <- r.Client.LLen(context.Background(), redisconn.QueueKey(redisconn.Jobs, "pending")).Val()
		},
	}, channel)
	s.Start()
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	redistest.Eventually(t, func() bool { return r.Client.PubSubNumSub(t.Context(), channel).Val()[channel] == 1 })
	for _, task := range redistest.Tasks(500) {
		q.Enqueue(task)
	}
	q.Start()
	require.NoError(t, q.Stop(t.Context()))
	for redistest.Receive(t, heard, "a wake-up after the last task") < 500 {
	}
}

// What is enqueued one after the other is fetched in that order, whatever the
// number of tasks, and also when Redis has forgotten asynq's script.
func TestTasksKeepTheirOrder(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := startQueue(t, r, Config{})
	ts := redistest.Tasks(3 * maxPut)
	half := len(ts) / 2
	for _, task := range ts[:half] {
		q.Enqueue(task)
	}
	redistest.Eventually(t, func() bool {
		return testutil.ToFloat64(r.Metrics.Enqueued.WithLabelValues(redisconn.ResultOK)) == float64(half)
	})
	require.NoError(t, r.Client.ScriptFlush(t.Context()).Err())
	answers, err := q.Dispatch(t.Context(), ts)
	require.NoError(t, err)
	for i, a := range answers {
		want := job.TaskEnqueued
		if i < half {
			want = job.TaskPresent
		}
		require.Equal(t, want, a)
	}
	pending, err := r.Client.LRange(t.Context(), redisconn.QueueKey(redisconn.Jobs, "pending"), 0, -1).Result()
	require.NoError(t, err)
	slices.Reverse(pending) // asynq takes from the end
	for i, task := range ts {
		require.Equal(t, TaskName(task), pending[i])
	}
}
