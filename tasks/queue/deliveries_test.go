package queue

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// wakeUpsOf is how many wake-ups of a result were counted.
func wakeUpsOf(r *redisconn.Redis, result string) float64 {
	return testutil.ToFloat64(r.Metrics.WakeUps.WithLabelValues(result))
}

// deliveryStates are the asynq states of the client's tasks in Redis, "" for none,
// without the empty ones at the end.
func deliveryStates(t testing.TB, r *redisconn.Redis, client job.ID) []string {
	t.Helper()
	states := []string{}
	for n := range deliveryNames + 1 {
		key := redisconn.TaskKey(redisconn.Webhooks, deliveryName(client.String(), n))
		state, err := r.Client.HGet(context.Background(), key, "state").Result()
		if err != nil {
			require.ErrorIs(t, err, redis.Nil)
		}
		states = append(states, state)
	}
	for len(states) > 0 && states[len(states)-1] == "" {
		states = states[:len(states)-1]
	}
	return states
}

func TestWake(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := startQueue(t, r, Config{})
	client := redistest.Task().JobID
	q.WakeDelivery(client)
	redistest.Eventually(t, func() bool { return wakeUpsOf(r, redisconn.ResultOK) == 1 })

	for n := range 3 { // while it rests, or soon after
		q.WakeDelivery(client)
		redistest.Eventually(t, func() bool { return wakeUpsOf(r, redisconn.ResultPresent) == float64(1+n) })
	}

	info, err := inspector(r).GetTaskInfo(redisconn.Webhooks, client.String())
	require.NoError(t, err)
	require.Equal(t, asynq.TaskStatePending, info.State)
	require.Equal(t, DeliveryTask, info.Type)
	require.JSONEq(t, `{"client":"`+client.String()+`"}`, string(info.Payload))
	require.Equal(t, MaxRetry, info.MaxRetry)
	require.Equal(t, deliveryTime, info.Timeout)
	require.Zero(t, info.Retention, "a handled task's name is free at once")
	depth, err := q.Depth(t.Context())
	require.NoError(t, err)
	require.Zero(t, depth["pending"], "they are no jobs")
}

// Nobody consumes the tasks, and few wake-ups get as far as Redis.
func TestWakeUpsOfAClientAreMerged(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := startQueue(t, r, Config{})
	client := redistest.Task().JobID
	began := time.Now()
	for range 100_000 {
		q.WakeDelivery(client)
	}
	q.WakeDelivery(bert)
	redistest.Eventually(t, func() bool { return len(deliveryStates(t, r, bert)) == 1 })
	require.NoError(t, q.Stop(t.Context()))
	require.Equal(t, []string{"pending"}, deliveryStates(t, r, client))
	require.Equal(t, 2., wakeUpsOf(r, redisconn.ResultOK))
	require.LessOrEqual(t, wakeUpsOf(r, redisconn.ResultPresent), 1+float64(time.Since(began)/wakeUpRest))
	require.Zero(t, wakeUpsOf(r, redisconn.ResultDropped))
}

// Each state in which a client's first task can be, and what a further wake-up
// makes of it.
func TestWakeByState(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		occupy func(t *testing.T, r *redisconn.Redis, q *Queue, name string)
		want   []string
	}{
		"none":      {func(*testing.T, *redisconn.Redis, *Queue, string) {}, []string{"pending"}},
		"pending":   {putTask, []string{"pending"}},
		"active":    {setTask("active"), []string{"active", "pending"}},
		"retry":     {setTask("retry"), []string{"retry", "pending"}},
		"archived":  {setTask("archived"), []string{"archived", "pending"}},
		"completed": {setTask("completed"), []string{"completed", "pending"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.DB(t)
			q := New(r, Config{})
			client := redistest.Task().JobID
			test.occupy(t, r, q, client.String())
			for range 3 {
				require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{client}))
			}
			require.Equal(t, test.want, deliveryStates(t, r, client))
		})
	}
}

func putTask(t *testing.T, r *redisconn.Redis, _ *Queue, name string) {
	t.Helper()
	_, err := asynq.NewClientFromRedisClient(r.Client).Enqueue(asynq.NewTask(DeliveryTask, []byte(name[:36])),
		asynq.Queue(redisconn.Webhooks), asynq.TaskID(name), asynq.MaxRetry(MaxRetry), asynq.Timeout(deliveryTime))
	require.NoError(t, err)
}

// setTask makes the task look as asynq leaves it.
func setTask(state string) func(*testing.T, *redisconn.Redis, *Queue, string) {
	return func(t *testing.T, r *redisconn.Redis, q *Queue, name string) {
		t.Helper()
		putTask(t, r, q, name)
		ctx := t.Context()
		require.NoError(t, r.Client.LRem(ctx, redisconn.QueueKey(redisconn.Webhooks, "pending"), 0, name).Err())
		require.NoError(t, r.Client.HSet(ctx, redisconn.TaskKey(redisconn.Webhooks, name), "state", state).Err())
		if state == "active" {
			require.NoError(t, r.Client.LPush(ctx, redisconn.QueueKey(redisconn.Webhooks, state), name).Err())
			return
		}
		require.NoError(t, r.Client.ZAdd(ctx, redisconn.QueueKey(redisconn.Webhooks, state),
			redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: name}).Err())
	}
}

func TestTasksOfAClientAreBoundedInRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := New(r, Config{})
	client := redistest.Task().JobID
	for n := range deliveryNames {
		setTask("active")(t, r, q, deliveryName(client.String(), n))
	}
	for range 100 {
		require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{client, client}))
	}
	require.Equal(t, []string{"active", "active", "active"}, deliveryStates(t, r, client))
	require.Equal(t, 200., wakeUpsOf(r, redisconn.ResultUsed))
}

// A process that was killed leaves its tasks active for a minute or two.
func TestATaskOfAKilledProcessBlocksNoOther(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := startQueue(t, r, Config{})
	client := redistest.Task().JobID
	setTask("active")(t, r, q, client.String())
	require.NoError(t, r.Client.ZAdd(t.Context(), redisconn.QueueKey(redisconn.Webhooks, "lease"),
		redis.Z{Score: float64(time.Now().Add(-time.Second).Unix()), Member: client.String()}).Err())
	handled := startDeliveries(t, r)
	for range 3 {
		q.WakeDelivery(client)
		require.Equal(t, client, redistest.Receive(t, handled, "the task"))
	}
}

// Somebody else's key in the place of a task costs one name and disturbs nobody.
func TestWakeBesideAForeignKey(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := New(r, Config{})
	require.NoError(t, r.Client.Set(t.Context(), redisconn.TaskKey(redisconn.Webhooks, anna.String()), "x", 0).Err())
	require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{anna, bert}))
	require.Equal(t, 2., wakeUpsOf(r, redisconn.ResultOK))
	require.Equal(t, int64(1), r.Client.Exists(t.Context(), redisconn.TaskKey(redisconn.Webhooks, anna.String()+":1")).Val())
}

func TestFlushLosesWakeUpsButNotForLong(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := startQueue(t, r, Config{})
	clients := redistest.IDs(200)
	require.NoError(t, q.WakeDeliveries(t.Context(), clients))
	redistest.Eventually(t, func() bool { return r.Client.SCard(t.Context(), "asynq:queues").Val() == 2 }, "registered at start")
	require.NoError(t, r.Client.FlushDB(t.Context()).Err())
	require.NoError(t, q.WakeDeliveries(t.Context(), clients))
	require.NoError(t, q.SetEpoch(t.Context(), 1))
	info, err := inspector(r).GetQueueInfo(redisconn.Webhooks)
	require.NoError(t, err, "the dashboard knows the queue")
	require.Equal(t, len(clients), info.Pending)
	handled := startDeliveries(t, r)
	for range clients {
		redistest.Receive(t, handled, "a task")
	}
}

// Nobody takes from a queue that was not started, so a call that waited would
// wait for ever.
func TestWakeNeverWaits(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := New(r, Config{})
	for _, client := range redistest.IDs(maxWoken + 3) {
		q.WakeDelivery(client)
	}
	require.Equal(t, 3., wakeUpsOf(r, redisconn.ResultDropped))
	require.NoError(t, q.Stop(t.Context()))
	q.WakeDelivery(anna)
	require.Equal(t, 4., wakeUpsOf(r, redisconn.ResultDropped))
}

func TestWakeWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	require.NoError(t, server.Stop())
	r := redistest.Connect(t, server.URL())
	q := startQueue(t, r, Config{})
	const total = 10_000
	for _, client := range redistest.IDs(total) {
		q.WakeDelivery(client)
	}
	redistest.Eventually(t, func() bool {
		return wakeUpsOf(r, redisconn.ResultFailed)+wakeUpsOf(r, redisconn.ResultSkipped) == total
	}, "nothing waits for Redis")
	require.Positive(t, wakeUpsOf(r, redisconn.ResultFailed))
	require.Greater(t, wakeUpsOf(r, redisconn.ResultSkipped), total/2.)
	q.Enqueue(redistest.Task())
	redistest.Eventually(t, func() bool {
		return testutil.ToFloat64(r.Metrics.Enqueued.WithLabelValues(redisconn.ResultFailed)) == 1
	},
		"enqueueing has a circuit of its own")
	require.Error(t, q.WakeDeliveries(t.Context(), redistest.IDs(3)))

	require.NoError(t, server.Start(t.Context()))
	redistest.Eventually(t, func() bool {
		q.WakeDelivery(redistest.Task().JobID)
		return wakeUpsOf(r, redisconn.ResultOK) > 0
	})
}

func TestWakeWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	q := startQueue(t, r, Config{})
	require.NoError(t, server.Pause())
	for _, client := range redistest.IDs(1000) {
		q.WakeDelivery(client)
	}
	redistest.Eventually(t, func() bool { return wakeUpsOf(r, redisconn.ResultFailed)+wakeUpsOf(r, redisconn.ResultSkipped) == 1000 })
	require.NoError(t, server.Resume())
	redistest.Eventually(t, func() bool {
		q.WakeDelivery(redistest.Task().JobID)
		return wakeUpsOf(r, redisconn.ResultOK) > 0
	})
}

func TestWakeAllEndsWithItsContext(t *testing.T) {
	t.Parallel()
	q := New(redistest.Mini(t), Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, q.WakeDeliveries(ctx, redistest.IDs(3)), context.Canceled)
	require.NoError(t, q.WakeDeliveries(ctx, nil))
}

func TestStopSendsWakeUps(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := New(r, Config{})
	clients := redistest.IDs(500)
	for _, client := range clients {
		q.WakeDelivery(client)
	}
	q.Start()
	require.NoError(t, q.Stop(t.Context()))
	require.Equal(t, 500., wakeUpsOf(r, redisconn.ResultOK))
	for _, client := range clients {
		require.Equal(t, []string{"pending"}, deliveryStates(t, r, client))
	}
}

func TestStopDropsWakeUpsWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	redistest.Eventually(t, func() bool { return r.Ping(t.Context()) == nil })
	require.NoError(t, server.Pause())
	q := New(r, Config{})
	for _, client := range redistest.IDs(10 * maxPut) {
		q.WakeDelivery(client)
	}
	q.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, q.Stop(ctx), context.DeadlineExceeded)
	redistest.Eventually(t, func() bool { return wakeUpsOf(r, redisconn.ResultDropped) >= 9.*maxPut })
}
