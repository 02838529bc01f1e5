package queue

import (
	"context"
	"errors"
	"slices"
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

// tasksInEveryState makes one task for each asynq state that a task can be in.
func tasksInEveryState(t *testing.T, r *redisconn.Redis, q *Queue) map[string]job.Task {
	t.Helper()
	in := map[string]job.Task{}
	for _, state := range []string{"", "pending", "scheduled", "retry", "active", "archived", "completed"} {
		in[state] = redistest.Task()
	}
	started := make(chan struct{})
	release := make(chan struct{})
	server := serve(t, r, redisconn.Jobs, func(_ context.Context, payload string) error {
		task, err := ParseTask(payload)
		require.NoError(t, err)
		switch task {
		case in["active"]:
			close(started)
			<-release
		case in["retry"]:
			return errors.New("trouble")
		}
		return nil
	})
	t.Cleanup(func() { close(release) }) // before the server's end
	dispatchAll(t, q, in["active"], in["retry"])
	byAsynq(t, r, q, in["completed"], asynq.Retention(time.Hour))
	redistest.Receive(t, started, "the handler")
	redistest.Eventually(t, func() bool {
		return stateOf(t, r, in["retry"]) == "retry" && stateOf(t, r, in["completed"]) == "completed"
	})
	server.Stop()
	// What failed would come back.
	require.NoError(t, r.Client.ZAdd(t.Context(), redisconn.QueueKey(redisconn.Jobs, "retry"),
		redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: TaskName(in["retry"])}).Err())

	scheduled := in["scheduled"]
	scheduled.RunAt = time.Now().Add(time.Hour)
	dispatchAll(t, q, in["pending"], scheduled, in["archived"])
	require.NoError(t, inspector(r).ArchiveTask(redisconn.Jobs, TaskName(in["archived"])))
	for state, task := range in {
		require.Equal(t, state, stateOf(t, r, task))
	}
	return in
}

func dispatchAll(t *testing.T, q *Queue, ts ...job.Task) {
	t.Helper()
	answers, err := q.Dispatch(t.Context(), ts)
	require.NoError(t, err)
	for _, a := range answers {
		require.Equal(t, job.TaskEnqueued, a)
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
		missing, err := q.Missing(ctx, []job.Task{task})
		require.NoError(t, err)
		require.Equal(t, lost[state], len(missing) == 1, "state %q", state)
	}
	want := map[string]job.Dispatched{
		"": job.TaskEnqueued, "pending": job.TaskPresent, "scheduled": job.TaskPresent, "retry": job.TaskPresent,
		"active": job.TaskIDUsed, "archived": job.TaskIDUsed, "completed": job.TaskIDUsed,
	}
	for state, task := range in {
		answers, err := q.Dispatch(ctx, []job.Task{task})
		require.NoError(t, err)
		require.Equal(t, []job.Dispatched{want[state]}, answers, "state %q", state)
	}
	for state, task := range in {
		task.Dispatch++
		answers, err := q.Dispatch(ctx, []job.Task{task})
		require.NoError(t, err)
		require.Equal(t, []job.Dispatched{job.TaskEnqueued}, answers, "a raised dispatch has a name of its own, state %q", state)
	}
}

// A worker that was killed leaves its task active. Redis only knows that nobody
// renews its lease any more; that it has not ended yet makes no difference.
func TestMissingFindsTasksOfDeadWorkers(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	task := tasksInEveryState(t, r, q)["active"]
	require.NoError(t, r.Client.ZAdd(t.Context(), redisconn.QueueKey(redisconn.Jobs, "lease"),
		redis.Z{Score: float64(time.Now().Add(leaseRest - 2*time.Second).Unix()), Member: TaskName(task)}).Err())
	missing, err := q.Missing(t.Context(), []job.Task{task})
	require.NoError(t, err)
	require.Equal(t, []job.Task{task}, missing)
}

func TestDispatchAnswersInOrder(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	ts := redistest.Tasks(2000)
	var half []job.Task
	want := make([]job.Dispatched, len(ts))
	for i, task := range ts {
		if i%3 == 0 {
			half = append(half, task)
			want[i] = job.TaskPresent
		}
	}
	dispatchAll(t, q, half...)
	answers, err := q.Dispatch(t.Context(), ts)
	require.NoError(t, err)
	require.Equal(t, want, answers)
	missing, err := q.Missing(t.Context(), ts)
	require.NoError(t, err)
	require.Empty(t, missing)
	answers, err = q.Dispatch(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, answers)
	require.Equal(t, float64(len(ts)), testutil.ToFloat64(r.Metrics.Dispatched.WithLabelValues(redisconn.ResultOK)))
	require.Equal(t, float64(len(half)), testutil.ToFloat64(r.Metrics.Dispatched.WithLabelValues(redisconn.ResultPresent)))
}

// The queue is a list: tasks are run in the order in which they arrive.
func TestDispatchKeepsTheOrder(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	ts := redistest.Tasks(5000)
	place := map[string]int{}
	for i, task := range ts {
		place[TaskName(task)] = i
	}
	for batch := range slices.Chunk(ts, 500) {
		dispatchAll(t, q, batch...)
	}
	names, err := r.Client.LRange(t.Context(), redisconn.QueueKey(redisconn.Jobs, "pending"), 0, -1).Result()
	require.NoError(t, err)
	slices.Reverse(names) // asynq pushes on the left and takes from the right
	require.Len(t, names, len(ts))
	worst := 0
	for i, name := range names {
		worst = max(worst, i-place[name], place[name]-i)
	}
	require.Less(t, worst, 300)
}

func TestFlushLosesTasksButNotForLong(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := New(r, Config{})
	ts := redistest.Tasks(300)
	dispatchAll(t, q, ts...)
	require.NoError(t, r.Client.FlushDB(t.Context()).Err())
	missing, err := q.Missing(t.Context(), ts)
	require.NoError(t, err)
	require.Equal(t, ts, missing)
	dispatchAll(t, q, missing...)
	missing, err = q.Missing(t.Context(), ts)
	require.NoError(t, err)
	require.Empty(t, missing)
}

func TestDispatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	q := New(redistest.Mini(t), Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := q.Dispatch(ctx, redistest.Tasks(10))
	require.ErrorIs(t, err, context.Canceled)
	_, err = q.Missing(ctx, redistest.Tasks(10))
	require.ErrorIs(t, err, context.Canceled)
}

// Redis out of memory refuses to write, and must not look like a lost task.
func TestDispatchWhileRedisIsOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.Connect(t, server.URL())
	q := New(r, Config{})
	ts := redistest.Tasks(10)
	dispatchAll(t, q, ts[:5]...)
	require.NoError(t, r.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := q.Dispatch(t.Context(), ts)
	require.ErrorContains(t, err, "OOM")
	missing, err := q.Missing(t.Context(), ts)
	require.NoError(t, err)
	require.Equal(t, ts[5:], missing)
	require.NoError(t, r.Client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	_, err = q.Dispatch(t.Context(), ts)
	require.NoError(t, err)
}
