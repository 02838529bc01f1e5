package tasks

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func newClients(n int) []job.ID {
	clients := make([]job.ID, n)
	for i := range clients {
		clients[i] = newTask().JobID
	}
	return clients
}

// hintsOf is how many hints of a result were counted.
func hintsOf(r *Redis, result string) float64 { return value(r.metrics.hints.WithLabelValues(result)) }

// hintStates are the asynq states of the client's hints in Redis, "" for none,
// without the empty ones at the end.
func hintStates(t testing.TB, r *Redis, client job.ID) []string {
	t.Helper()
	states := []string{}
	for n := range hintNames + 1 {
		state, err := r.client.HGet(context.Background(), taskKey(queueWebhooks, hintName(client.String(), n)), "state").Result()
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
	r := newDB(t)
	q := startQueue(t, r, QueueConfig{})
	client := newTask().JobID
	q.WakeDelivery(client)
	eventually(t, func() bool { return hintsOf(r, resultOK) == 1 })

	for n := range 3 { // while it rests, or soon after
		q.WakeDelivery(client)
		eventually(t, func() bool { return hintsOf(r, resultPresent) == float64(1+n) })
	}

	info, err := inspector(r).GetTaskInfo(queueWebhooks, client.String())
	require.NoError(t, err)
	require.Equal(t, asynq.TaskStatePending, info.State)
	require.Equal(t, hintType, info.Type)
	require.Equal(t, client.String(), string(info.Payload))
	require.Equal(t, maxRetry, info.MaxRetry)
	require.Equal(t, hintTime, info.Timeout)
	require.Zero(t, info.Retention, "a handled hint's name is free at once")
	depth, err := q.Depth(t.Context())
	require.NoError(t, err)
	require.Zero(t, depth["pending"], "hints are no jobs")
}

// Nobody consumes the hints, and few of them get as far as Redis.
func TestWakesOfAClientAreMerged(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := startQueue(t, r, QueueConfig{})
	client := newTask().JobID
	began := time.Now()
	for range 100_000 {
		q.WakeDelivery(client)
	}
	q.WakeDelivery(bert)
	eventually(t, func() bool { return len(hintStates(t, r, bert)) == 1 })
	require.NoError(t, q.Stop(t.Context()))
	require.Equal(t, []string{"pending"}, hintStates(t, r, client))
	require.Equal(t, 2., hintsOf(r, resultOK))
	require.LessOrEqual(t, hintsOf(r, resultPresent), 1+float64(time.Since(began)/hintPause))
	require.Zero(t, hintsOf(r, resultDropped))
}

// Each state in which a client's first hint can be, and what a further hint
// makes of it.
func TestWakeByState(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		occupy func(t *testing.T, r *Redis, q *Queue, name string)
		want   []string
	}{
		"none":      {func(*testing.T, *Redis, *Queue, string) {}, []string{"pending"}},
		"pending":   {putHint, []string{"pending"}},
		"active":    {setHint("active"), []string{"active", "pending"}},
		"retry":     {setHint("retry"), []string{"retry", "pending"}},
		"archived":  {setHint("archived"), []string{"archived", "pending"}},
		"completed": {setHint("completed"), []string{"completed", "pending"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDB(t)
			q := NewQueue(r, QueueConfig{})
			client := newTask().JobID
			test.occupy(t, r, q, client.String())
			for range 3 {
				require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{client}))
			}
			require.Equal(t, test.want, hintStates(t, r, client))
		})
	}
}

func putHint(t *testing.T, _ *Redis, q *Queue, name string) {
	t.Helper()
	_, err := q.client.Enqueue(asynq.NewTask(hintType, []byte(name[:36])), append([]asynq.Option{asynq.TaskID(name)}, hintOptions...)...)
	require.NoError(t, err)
}

// setHint makes the hint look as asynq leaves it.
func setHint(state string) func(*testing.T, *Redis, *Queue, string) {
	return func(t *testing.T, r *Redis, q *Queue, name string) {
		t.Helper()
		putHint(t, r, q, name)
		ctx := t.Context()
		require.NoError(t, r.client.LRem(ctx, queueKey(queueWebhooks, "pending"), 0, name).Err())
		require.NoError(t, r.client.HSet(ctx, taskKey(queueWebhooks, name), "state", state).Err())
		if state == "active" {
			require.NoError(t, r.client.LPush(ctx, queueKey(queueWebhooks, state), name).Err())
			return
		}
		require.NoError(t, r.client.ZAdd(ctx, queueKey(queueWebhooks, state),
			redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: name}).Err())
	}
}

func TestHintsOfAClientAreBoundedInRedis(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{})
	client := newTask().JobID
	for n := range hintNames {
		setHint("active")(t, r, q, hintName(client.String(), n))
	}
	for range 100 {
		require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{client, client}))
	}
	require.Equal(t, []string{"active", "active", "active"}, hintStates(t, r, client))
	require.Equal(t, 200., hintsOf(r, resultSpent))
}

// A courier that was killed leaves its hints active for a minute or two.
func TestAKilledCouriersHintBlocksNoOther(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := startQueue(t, r, QueueConfig{})
	client := newTask().JobID
	setHint("active")(t, r, q, client.String())
	require.NoError(t, r.client.ZAdd(t.Context(), queueKey(queueWebhooks, "lease"),
		redis.Z{Score: float64(time.Now().Add(-time.Second).Unix()), Member: client.String()}).Err())
	handled := startCouriers(t, r, WorkersConfig{})
	for range 3 {
		q.WakeDelivery(client)
		require.Equal(t, client, receive(t, handled, "the hint"))
	}
}

// Somebody else's key in the place of a hint costs one name and disturbs nobody.
func TestWakeBesideAForeignKey(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{})
	require.NoError(t, r.client.Set(t.Context(), taskKey(queueWebhooks, anna.String()), "x", 0).Err())
	require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{anna, bert}))
	require.Equal(t, 2., hintsOf(r, resultOK))
	require.Equal(t, int64(1), r.client.Exists(t.Context(), taskKey(queueWebhooks, anna.String()+":1")).Val())
}

func TestFlushLosesHintsButNotForLong(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := startQueue(t, r, QueueConfig{})
	clients := newClients(200)
	require.NoError(t, q.WakeDeliveries(t.Context(), clients))
	eventually(t, func() bool { return r.client.SCard(t.Context(), "asynq:queues").Val() == 2 }, "registered at start")
	require.NoError(t, r.client.FlushDB(t.Context()).Err())
	require.NoError(t, q.WakeDeliveries(t.Context(), clients))
	require.NoError(t, q.SetEpoch(t.Context(), 1))
	info, err := inspector(r).GetQueueInfo(queueWebhooks)
	require.NoError(t, err, "the dashboard knows the queue")
	require.Equal(t, len(clients), info.Pending)
	handled := startCouriers(t, r, WorkersConfig{Concurrency: 10})
	for range clients {
		receive(t, handled, "a hint")
	}
}

// Nobody takes from a queue that was not started, so a call that waited would
// wait for ever.
func TestWakeNeverWaits(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{})
	for _, client := range newClients(maxWoken + 3) {
		q.WakeDelivery(client)
	}
	require.Equal(t, 3., hintsOf(r, resultDropped))
	require.NoError(t, q.Stop(t.Context()))
	q.WakeDelivery(anna)
	require.Equal(t, 4., hintsOf(r, resultDropped))
}

func TestWakeWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	require.NoError(t, server.Stop())
	r := connect(t, server.URL())
	q := startQueue(t, r, QueueConfig{})
	const total = 10_000
	for _, client := range newClients(total) {
		q.WakeDelivery(client)
	}
	eventually(t, func() bool { return hintsOf(r, resultFailed)+hintsOf(r, resultSkipped) == total }, "nothing waits for Redis")
	require.Positive(t, hintsOf(r, resultFailed))
	require.Greater(t, hintsOf(r, resultSkipped), total/2.)
	require.False(t, q.circuit.isOpen(), "enqueueing has its own troubles")
	require.Error(t, q.WakeDeliveries(t.Context(), newClients(3)))

	require.NoError(t, server.Start(t.Context()))
	eventually(t, func() bool {
		q.WakeDelivery(newTask().JobID)
		return hintsOf(r, resultOK) > 0
	})
}

func TestWakeWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	r := connectHanging(t, server.URL())
	q := startQueue(t, r, QueueConfig{})
	require.NoError(t, server.Pause())
	for _, client := range newClients(1000) {
		q.WakeDelivery(client)
	}
	eventually(t, func() bool { return hintsOf(r, resultFailed)+hintsOf(r, resultSkipped) == 1000 })
	require.NoError(t, server.Resume())
	eventually(t, func() bool {
		q.WakeDelivery(newTask().JobID)
		return hintsOf(r, resultOK) > 0
	})
}

func TestWakeAllEndsWithItsContext(t *testing.T) {
	t.Parallel()
	q := NewQueue(newDB(t), QueueConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, q.WakeDeliveries(ctx, newClients(3)), context.Canceled)
	require.NoError(t, q.WakeDeliveries(ctx, nil))
}

func TestQueueStopSendsHints(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{})
	clients := newClients(500)
	for _, client := range clients {
		q.WakeDelivery(client)
	}
	q.Start()
	require.NoError(t, q.Stop(t.Context()))
	require.Equal(t, 500., hintsOf(r, resultOK))
	for _, client := range clients {
		require.Equal(t, []string{"pending"}, hintStates(t, r, client))
	}
}

func TestQueueStopSendsHintsOfWhoRests(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{})
	q.WakeDelivery(anna)
	_, _ = q.woken.take(time.Now(), nil)
	q.WakeDelivery(anna)
	q.Start()
	require.NoError(t, q.Stop(t.Context()))
	require.Equal(t, []string{"pending"}, hintStates(t, r, anna))
}

func TestQueueStopDropsHintsWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	r := connectHanging(t, server.URL())
	eventually(t, func() bool { return r.Ping(t.Context()) == nil })
	require.NoError(t, server.Pause())
	q := NewQueue(r, QueueConfig{})
	for _, client := range newClients(10 * dispatchers) {
		q.WakeDelivery(client)
	}
	q.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, q.Stop(ctx), context.DeadlineExceeded)
	q.running.Wait()
	require.GreaterOrEqual(t, hintsOf(r, resultDropped), 9.*dispatchers)
}
