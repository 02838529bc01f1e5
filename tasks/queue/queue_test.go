package queue

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
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
	q := redistest.Start(t, New(r, Config{MaxTaskTime: 150*time.Second + 1}))
	task := redistest.Task()
	task.Attempt, task.Dispatch = 2, 5
	q.Enqueue(task)
	redistest.Eventually(t, func() bool { return redistest.JobState(t, r, task) == "pending" })

	info := redistest.Must(inspector(r).GetTaskInfo(redisconn.Jobs, TaskName(task)))(t)
	require.Equal(t, JobTask, info.Type)
	require.JSONEq(t, `{"job":"`+task.JobID.String()+`","attempt":2,"dispatch":5}`, string(info.Payload))
	require.Equal(t, 151*time.Second, info.Timeout, "rounded up")
	require.Equal(t, MaxRetry, info.MaxRetry)
	require.Zero(t, info.Retention, "a finished task's name is free at once")

	q.Enqueue(task)
	redistest.Eventually(t, func() bool { return enqueuedOf(r, redisconn.ResultConflict) == 1 })
	require.Equal(t, 1., enqueuedOf(r, redisconn.ResultOK))
	depth := redistest.Must(q.Depth(t.Context()))(t)
	require.Equal(t, map[string]int64{"pending": 1, "active": 0, "scheduled": 0, "retry": 0, "archived": 0, "completed": 0}, depth)
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
	for _, client := range redistest.IDs(maxWoken + 3) {
		q.WakeDelivery(client)
	}
	require.Equal(t, 3., redistest.WakeUps(r, redisconn.ResultDropped))
	require.Equal(t, 15., testutil.ToFloat64(r.Metrics.Enqueued.WithLabelValues(redisconn.ResultDropped)))
	require.Equal(t, 10., testutil.ToFloat64(r.Metrics.Buffered))
	require.Equal(t, 3., testutil.ToFloat64(r.Metrics.Signals.WithLabelValues(redisconn.ResultDropped)))
}

func TestQueueStopSendsWhatIsBuffered(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := New(r, Config{})
	clients := redistest.IDs(500)
	for i, task := range redistest.Tasks(500) {
		q.Enqueue(task)
		q.WakeDelivery(clients[i])
	}
	q.Start()
	q.Start()
	require.NoError(t, q.Stop(t.Context()))
	require.NoError(t, q.Stop(t.Context()))
	depth := redistest.Must(q.Depth(t.Context()))(t)
	require.Equal(t, int64(500), depth["pending"])
	require.Equal(t, 500., redistest.WakeUps(r, redisconn.ResultOK))

	q.Enqueue(redistest.Task())
	q.SignalCancel(job.ID{1})
	q.WakeDelivery(anna)
	require.Equal(t, 1., enqueuedOf(r, redisconn.ResultDropped))
	require.Equal(t, 1., testutil.ToFloat64(r.Metrics.Signals.WithLabelValues(redisconn.ResultDropped)))
	require.Equal(t, 1., redistest.WakeUps(r, redisconn.ResultDropped))
	_, err := q.Dispatch(t.Context(), redistest.Tasks(1))
	require.NoError(t, err, "only the background is stopped")
}

// enqueuedOf is how many tasks of a result were counted.
func enqueuedOf(r *redisconn.Redis, result string) float64 {
	return testutil.ToFloat64(r.Metrics.Enqueued.WithLabelValues(result))
}

// While Redis hangs, what was for it does not pile up: it is given up, until Redis answers again.
func TestNothingWaitsForARedisThatHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	q := redistest.Start(t, New(r, Config{}))
	redistest.Eventually(t, func() bool { return q.Ping(t.Context()) == nil })
	require.NoError(t, server.Pause())
	const total = 1000
	clients := redistest.IDs(total)
	for i, task := range redistest.Tasks(total) {
		q.Enqueue(task)
		q.WakeDelivery(clients[i])
	}
	redistest.Eventually(t, func() bool { return testutil.ToFloat64(r.Metrics.Buffered) == 0 })
	redistest.Eventually(t, func() bool {
		return redistest.WakeUps(r, redisconn.ResultFailed)+redistest.WakeUps(r, redisconn.ResultSkipped) == total
	})
	require.Positive(t, enqueuedOf(r, redisconn.ResultFailed))
	require.GreaterOrEqual(t, enqueuedOf(r, redisconn.ResultSkipped), float64(total-maxPut))

	require.NoError(t, server.Resume())
	redistest.Eventually(t, func() bool {
		q.Enqueue(redistest.Task())
		q.WakeDelivery(redistest.Task().JobID)
		return enqueuedOf(r, redisconn.ResultOK) > 0 && redistest.WakeUps(r, redisconn.ResultOK) > 0
	})
}

func TestRedisThatIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	require.NoError(t, server.Stop())
	r := redistest.Connect(t, server.URL())
	q := redistest.Start(t, New(r, Config{}))
	ctx := t.Context()
	const total = 10_000
	for _, client := range redistest.IDs(total) {
		q.WakeDelivery(client)
	}
	redistest.Eventually(t, func() bool {
		return redistest.WakeUps(r, redisconn.ResultFailed)+redistest.WakeUps(r, redisconn.ResultSkipped) == total
	})
	require.Greater(t, redistest.WakeUps(r, redisconn.ResultSkipped), total/2.)
	q.Enqueue(redistest.Task())
	redistest.Eventually(t, func() bool { return enqueuedOf(r, redisconn.ResultFailed) == 1 }, "enqueueing has a circuit of its own")
	for operation, call := range map[string]func() error{
		"dispatch": func() error { _, err := q.Dispatch(ctx, redistest.Tasks(100)); return err },
		"probe":    func() error { _, err := q.Missing(ctx, redistest.Tasks(100)); return err },
		"epoch":    func() error { _, _, err := q.Epoch(ctx); return errors.Join(err, q.SetEpoch(ctx, 1)) },
		"depth":    func() error { _, err := q.Depth(ctx); return err },
		"ping":     func() error { return q.Ping(ctx) },
		"wake":     func() error { return q.WakeDeliveries(ctx, redistest.IDs(3)) },
	} {
		require.Error(t, call(), operation)
		require.Positive(t, testutil.ToFloat64(r.Metrics.Errors.WithLabelValues(operation)), operation)
	}

	require.NoError(t, server.Start(ctx))
	redistest.Eventually(t, func() bool { return q.Ping(ctx) == nil })
	redistest.Dispatch(t, q, redistest.Task())
	redistest.Eventually(t, func() bool {
		q.WakeDelivery(redistest.Task().JobID)
		return redistest.WakeUps(r, redisconn.ResultOK) > 0
	})
}

// What is sent while the queue stops wakes consumers, and what is for later does
// not.
func TestQueueWakesConsumers(t *testing.T) {
	t.Parallel()
	r := redistest.Connect(t, redistest.Own(t).URL())
	q := New(r, Config{})
	later := redistest.Task()
	later.RunAt = time.Now().Add(time.Hour)
	redistest.Dispatch(t, q, later)
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
	q := redistest.Start(t, New(r, Config{}))
	ts := redistest.Tasks(3 * maxPut)
	half := len(ts) / 2
	for _, task := range ts[:half] {
		q.Enqueue(task)
	}
	redistest.Eventually(t, func() bool { return enqueuedOf(r, redisconn.ResultOK) == float64(half) })
	require.NoError(t, r.Client.ScriptFlush(t.Context()).Err())
	answers := redistest.Must(q.Dispatch(t.Context(), ts))(t)
	for i, a := range answers {
		want := job.TaskEnqueued
		if i < half {
			want = job.TaskPresent
		}
		require.Equal(t, want, a)
	}
	dispatchedOf := func(result string) float64 { return testutil.ToFloat64(r.Metrics.Dispatched.WithLabelValues(result)) }
	require.Equal(t, float64(len(ts)-half), dispatchedOf(redisconn.ResultOK))
	require.Equal(t, float64(half), dispatchedOf(redisconn.ResultPresent))
	missing := redistest.Must(q.Missing(t.Context(), ts))(t)
	require.Empty(t, missing)
	pending := redistest.Must(r.Client.LRange(t.Context(), redisconn.QueueKey(redisconn.Jobs, "pending"), 0, -1).Result())(t)
	slices.Reverse(pending) // asynq takes from the end
	for i, task := range ts {
		require.Equal(t, TaskName(task), pending[i])
	}
}

// Short forms of clients.
var anna, bert = job.ID{15: 0xa}, job.ID{15: 0xb}

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func inspector(r *redisconn.Redis) *asynq.Inspector { return asynq.NewInspector(r) }

func TestEpoch(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	epoch, runID := redistest.Epoch(t, q)
	require.Zero(t, epoch)
	require.Len(t, runID, 40)

	require.NoError(t, q.SetEpoch(t.Context(), 7))
	epoch, again := redistest.Epoch(t, q)
	require.Equal(t, int64(7), epoch)
	require.Equal(t, runID, again)
	queues := redistest.Must(inspector(r).Queues())(t)
	require.ElementsMatch(t, redisconn.Queues, queues, "registered for the dashboard")

	require.NoError(t, r.Client.FlushDB(t.Context()).Err())
	epoch, again = redistest.Epoch(t, q)
	require.Zero(t, epoch, "a flush removes the sentinel too")
	require.Equal(t, runID, again)
	require.NoError(t, q.SetEpoch(t.Context(), 8))
	queues = redistest.Must(inspector(r).Queues())(t)
	require.ElementsMatch(t, redisconn.Queues, queues)

	require.NoError(t, r.Client.Set(t.Context(), epochKey, "nonsense", 0).Err())
	epoch, _ = redistest.Epoch(t, q)
	require.Zero(t, epoch)
}

func TestEpochTellsOfARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.Connect(t, server.URL())
	q := New(r, Config{})
	require.NoError(t, q.SetEpoch(t.Context(), 3))
	_, before := redistest.Epoch(t, q)
	require.NoError(t, server.Stop())
	_, _, err := q.Epoch(t.Context())
	require.Error(t, err, "no answer is not an empty Redis")
	require.NoError(t, server.Start(t.Context()))
	var epoch int64
	var after string
	redistest.Eventually(t, func() bool {
		epoch, after, err = q.Epoch(t.Context())
		return err == nil
	})
	require.Equal(t, int64(3), epoch, "the append-only file has it")
	require.NotEqual(t, before, after)
}

// Valkey says which Redis it is compatible with, and its own version elsewhere.
func TestReadInfoOfValkey(t *testing.T) {
	t.Parallel()
	var s ServerFacts
	s.readInfo("# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.3\r\nrun_id:abc\r\n" +
		"# Persistence\r\naof_enabled:1\r\n# Memory\r\nused_memory:7\r\nmaxmemory:9\r\n")
	require.Equal(t, ServerFacts{
		Product: "valkey", Version: "7.2.4", Release: "8.1.3", RunID: "abc", AppendOnly: "1", Used: 7, MaxMemory: 9,
	}, s)
}
