package queue

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// tasksInEveryState makes one task for each asynq state that a task can be in.
func tasksInEveryState(t *testing.T, r *redisconn.Redis, q *Queue) map[string]job.Task {
	t.Helper()
	in := map[string]job.Task{"": redistest.Task()}
	for _, state := range []string{"pending", "scheduled", "retry", "active", "archived", "completed"} {
		in[state] = redistest.Task()
		redistest.Dispatch(t, q, in[state])
		moveTask(t, r, redisconn.Jobs, TaskName(in[state]), state)
	}
	return in
}

// moveTask makes a pending task look as asynq leaves it in a state.
func moveTask(t *testing.T, r *redisconn.Redis, queue, name, state string) {
	t.Helper()
	ctx, later := t.Context(), redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: name}
	require.NoError(t, r.Client.LRem(ctx, redisconn.QueueKey(queue, "pending"), 0, name).Err())
	require.NoError(t, r.Client.HSet(ctx, redisconn.TaskKey(queue, name), "state", state).Err())
	switch state {
	case "active":
		require.NoError(t, r.Client.ZAdd(ctx, redisconn.QueueKey(queue, "lease"), later).Err())
		fallthrough
	case "pending":
		require.NoError(t, r.Client.LPush(ctx, redisconn.QueueKey(queue, state), name).Err())
	default:
		require.NoError(t, r.Client.ZAdd(ctx, redisconn.QueueKey(queue, state), later).Err())
	}
}

func TestDispatchAndMissingByState(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	in := tasksInEveryState(t, r, q)
	ctx := t.Context()

	lost := map[string]bool{"": true, "archived": true, "completed": true}
	for state, task := range in {
		missing := redistest.Must(q.Missing(ctx, []job.Task{task}))(t)
		require.Equal(t, lost[state], len(missing) == 1, "state %q", state)
	}
	// A worker that was killed leaves its task active. Redis only knows that nobody renews its lease any more; that it has not
	// ended yet makes no difference.
	require.NoError(t, r.Client.ZAdd(ctx, redisconn.QueueKey(redisconn.Jobs, "lease"),
		redis.Z{Score: float64(time.Now().Add(leaseRest - 2*time.Second).Unix()), Member: TaskName(in["active"])}).Err())
	missing := redistest.Must(q.Missing(ctx, []job.Task{in["active"]}))(t)
	require.Equal(t, []job.Task{in["active"]}, missing)
	want := map[string]job.Dispatched{
		"": job.TaskEnqueued, "pending": job.TaskPresent, "scheduled": job.TaskPresent, "retry": job.TaskPresent,
		"active": job.TaskIDUsed, "archived": job.TaskIDUsed, "completed": job.TaskIDUsed,
	}
	for state, task := range in {
		answers := redistest.Must(q.Dispatch(ctx, []job.Task{task}))(t)
		require.Equal(t, []job.Dispatched{want[state]}, answers, "state %q", state)
	}
	for state, task := range in {
		task.Dispatch++
		answers := redistest.Must(q.Dispatch(ctx, []job.Task{task}))(t)
		require.Equal(t, []job.Dispatched{job.TaskEnqueued}, answers, "a raised dispatch has a name of its own, state %q", state)
	}
}

func TestDispatchAndWakeEndWithTheirContext(t *testing.T) {
	t.Parallel()
	q := New(redistest.Mini(t), Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := q.Dispatch(ctx, redistest.Tasks(10))
	require.ErrorIs(t, err, context.Canceled)
	_, err = q.Missing(ctx, redistest.Tasks(10))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, q.WakeDeliveries(ctx, redistest.IDs(3)), context.Canceled)
	require.NoError(t, q.WakeDeliveries(ctx, nil))
}

// Redis out of memory refuses to write, and must not look like a lost task.
func TestDispatchWhileRedisIsOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.Connect(t, server.URL())
	q := New(r, Config{})
	ts := redistest.Tasks(10)
	redistest.Dispatch(t, q, ts[:5]...)
	require.NoError(t, r.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := q.Dispatch(t.Context(), ts)
	require.ErrorContains(t, err, "OOM")
	missing := redistest.Must(q.Missing(t.Context(), ts))(t)
	require.Equal(t, ts[5:], missing)
	require.NoError(t, r.Client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	redistest.Must(q.Dispatch(t.Context(), ts))(t)
}
