package queue

import (
	"testing"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestWake(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := redistest.Start(t, New(r, Config{}))
	client := redistest.Task().JobID
	q.WakeDelivery(client)
	redistest.Eventually(t, func() bool { return redistest.WakeUps(r, redisconn.ResultOK) == 1 })

	for n := range 3 { // while it rests, or soon after
		q.WakeDelivery(client)
		redistest.Eventually(t, func() bool { return redistest.WakeUps(r, redisconn.ResultPresent) == float64(1+n) })
	}

	info := redistest.Must(inspector(r).GetTaskInfo(redisconn.Webhooks, client.String()))(t)
	require.Equal(t, asynq.TaskStatePending, info.State)
	require.Equal(t, DeliveryTask, info.Type)
	require.JSONEq(t, `{"client":"`+client.String()+`"}`, string(info.Payload))
	require.Equal(t, MaxRetry, info.MaxRetry)
	require.Equal(t, deliveryTime, info.Timeout)
	require.Zero(t, info.Retention, "a handled task's name is free at once")
	depth := redistest.Must(q.Depth(t.Context()))(t)
	require.Zero(t, depth["pending"], "they are no jobs")
}

// Each state in which a client's first task can be, and what a further wake-up makes of it.
func TestWakeByState(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	for _, state := range []string{"pending", "active", "retry", "archived", "completed"} {
		client := redistest.Task().JobID
		require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{client}))
		moveTask(t, r, redisconn.Webhooks, client.String(), state)
		for range 3 {
			require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{client}))
		}
		want := []string{state, "pending"}
		if state == "pending" {
			want = want[:1]
		}
		require.Equal(t, want, redistest.DeliveryStates(t, r, client))
	}
}

func TestTasksOfAClientAreBoundedInRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := New(r, Config{})
	client := redistest.Task().JobID
	for n := range deliveryNames {
		require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{client}))
		moveTask(t, r, redisconn.Webhooks, deliveryName(client.String(), n), "active")
	}
	for range 100 {
		require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{client, client}))
	}
	require.Equal(t, []string{"active", "active", "active"}, redistest.DeliveryStates(t, r, client))
	require.Equal(t, 200., redistest.WakeUps(r, redisconn.ResultUsed))
}

// Somebody else's key in the place of a task costs one name and disturbs nobody.
func TestWakeBesideAForeignKey(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := New(r, Config{})
	require.NoError(t, r.Client.Set(t.Context(), redisconn.TaskKey(redisconn.Webhooks, anna.String()), "x", 0).Err())
	require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{anna, bert}))
	require.Equal(t, 2., redistest.WakeUps(r, redisconn.ResultOK))
	require.Equal(t, int64(1), r.Client.Exists(t.Context(), redisconn.TaskKey(redisconn.Webhooks, anna.String()+":1")).Val())
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
	require.Equal(t, 3., redistest.WakeUps(r, redisconn.ResultDropped))
	require.NoError(t, q.Stop(t.Context()))
	q.WakeDelivery(anna)
	require.Equal(t, 4., redistest.WakeUps(r, redisconn.ResultDropped))
}
