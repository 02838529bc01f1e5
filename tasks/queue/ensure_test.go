package queue

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func move(t testing.TB, r *redisconn.Redis, queue, name, state string, wait time.Duration) {
	t.Helper()
	ctx, at := t.Context(), redis.Z{Score: float64(time.Now().Add(wait).Unix()), Member: name}
	require.NoError(t, r.Client.LRem(ctx, redisconn.QueueKey(queue, "pending"), 0, name).Err())
	require.NoError(t, r.Client.HSet(ctx, redisconn.QueueKey(queue, "t:"+name), "state", state).Err())
	set := state
	if state == "active" {
		require.NoError(t, r.Client.LPush(ctx, redisconn.QueueKey(queue, "active"), name).Err())
		set = "lease"
	}
	require.NoError(t, r.Client.ZAdd(ctx, redisconn.QueueKey(queue, set), at).Err())
}

func (q *Queue) sawEarlier(d time.Duration) {
	for what, seen := range q.sightings.of {
		seen.first = seen.first.Add(-d)
		q.sightings.of[what] = seen
	}
}

func requireRuns(t *testing.T, r *redisconn.Redis, queue string, want ...string) {
	t.Helper()
	ran := make(chan string, 10_000)
	s := asynq.NewServerFromRedisClient(r.Client, asynq.Config{
		Queues: map[string]int{queue: 1}, Concurrency: 1, TaskCheckInterval: time.Millisecond, Logger: redisconn.NewAsynqLog(r.Log),
	})
	require.NoError(t, s.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ran <- id
		return nil
	})))
	defer s.Shutdown()
	last := New(r, Config{})
	marker := redistest.Task()
	h := jobHint(marker)
	h.queue = queue
	require.NoError(t, last.put(t.Context(), h, 0))
	got := []string{}
	for id := redistest.Receive(t, ran, "a task"); id != h.id; id = redistest.Receive(t, ran, "a task") {
		got = append(got, id)
	}
	require.Equal(t, append([]string{}, want...), got)
}

func TestEnsureByState(t *testing.T) {
	t.Parallel()
	type world struct {
		*redisconn.Redis
		*testing.T
		name, key string
	}
	pending := redisconn.QueueKey(redisconn.Jobs, "pending")
	move := func(w world, state string, wait time.Duration) {
		move(w.T, w.Redis, redisconn.Jobs, w.name, state, wait)
	}
	for name, c := range map[string]struct {
		prepare      func(w world)
		after        time.Duration
		first, later int
		runs         []string // id suffixes of the tasks that run after Ensure
	}{
		"missing":            {func(w world) { w.Client.FlushDB(w.Context()) }, stuckActive, 1, 0, []string{""}},
		"pending":            {func(world) {}, stuckActive, 0, 0, []string{""}},
		"active":             {func(w world) { move(w, "active", time.Minute) }, stuckActive - time.Second, 0, 0, nil},
		"active, stuck":      {func(w world) { move(w, "active", time.Minute) }, stuckActive, 0, 1, []string{"/1"}},
		"scheduled too late": {func(w world) { move(w, "scheduled", time.Hour) }, 0, 1, 0, []string{""}},
		"retried soon":       {func(w world) { move(w, "retry", 2*time.Second) }, 0, 0, 0, nil},
		"retried later":      {func(w world) { move(w, "retry", time.Minute) }, 0, 1, 0, []string{""}},
		"archived":           {func(w world) { move(w, "archived", 0) }, 0, 1, 0, []string{""}},
		"pending list missing": {
			func(w world) { w.Client.Del(w.Context(), pending) }, stuckPending, 0, 1, []string{""},
		},
		"missing in the pending list": {
			func(w world) { w.Client.LRem(w.Context(), pending, 0, w.name) }, stuckPending, 0, 1, []string{""},
		},
		"pending list missing briefly": {
			func(w world) { w.Client.Del(w.Context(), pending) }, stuckPending - time.Second, 0, 0, nil,
		},
		"missing in the scheduled set": {func(w world) {
			move(w, "scheduled", time.Hour)
			w.Client.Del(w.Context(), redisconn.QueueKey(redisconn.Jobs, "scheduled"))
		}, 0, 1, 0, []string{""}},
		"without a message": {
			func(w world) { w.Client.HDel(w.Context(), w.key, "msg") }, stuckPending, 0, 1, []string{""},
		},
		"without a state": {
			func(w world) { w.Client.HDel(w.Context(), w.key, "state"); w.Client.Del(w.Context(), pending) }, 0, 1, 0, []string{""},
		},
		"key of another type": {func(w world) {
			w.Client.Set(w.Context(), w.key, "x", 0)
			w.Client.Del(w.Context(), pending)
		}, 0, 1, 0, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.DB(t)
			q := New(r, Config{})
			ts := redistest.Tasks(1)
			redistest.Ensure(t, q, ts...)
			w := world{r, t, TaskName(ts[0]), redisconn.QueueKey(redisconn.Jobs, "t:"+TaskName(ts[0]))}
			c.prepare(w)
			require.Equal(t, c.first, redistest.Must(q.Ensure(t.Context(), ts))(t))
			q.sawEarlier(c.after)
			require.Equal(t, c.later, redistest.Must(q.Ensure(t.Context(), ts))(t))
			for range 3 {
				require.Zero(t, redistest.Must(q.Ensure(t.Context(), ts))(t), "no further task is made")
			}
			var want []string
			for _, suffix := range c.runs {
				want = append(want, w.name+suffix)
			}
			active := r.Client.LLen(t.Context(), redisconn.QueueKey(redisconn.Jobs, "active"))
			requireRuns(t, r, redisconn.Jobs, want...)
			require.Equal(t, active.Val(), r.Client.LLen(t.Context(), redisconn.QueueKey(redisconn.Jobs, "active")).Val(), "no second active task")
		})
	}
}

func TestEnsureStopsAtSomeNames(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	task, made := redistest.Task(), 0
	for range maxAgain + 5 {
		made += redistest.Must(q.Ensure(t.Context(), []job.Task{task}))(t)
		for _, name := range r.Client.LRange(t.Context(), redisconn.QueueKey(redisconn.Jobs, "pending"), 0, -1).Val() {
			move(t, r, redisconn.Jobs, name, "active", time.Minute)
		}
		require.Zero(t, redistest.Must(q.Ensure(t.Context(), []job.Task{task}))(t))
		q.sawEarlier(stuckActive)
	}
	require.Equal(t, 1+maxAgain, made)
	require.Equal(t, made, redistest.Info(t, r, redisconn.Jobs).Active)
}

func TestEnsureAfterFlush(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	ts := redistest.Tasks(3 * listPage)
	var want []string
	for _, task := range ts {
		want = append(want, TaskName(task))
	}
	redistest.Ensure(t, q, ts...)
	require.Zero(t, redistest.Must(q.Ensure(t.Context(), ts))(t))
	q.sawEarlier(stuckActive)
	require.Zero(t, redistest.Must(q.Ensure(t.Context(), ts))(t), "the end of a long list is read")
	require.NoError(t, r.Client.LRem(t.Context(), redisconn.QueueKey(redisconn.Jobs, "pending"), 1, want[len(want)-1]).Err())
	require.Equal(t, 1, redistest.Must(q.Ensure(t.Context(), ts))(t), "the lost task is made again")
	require.NoError(t, r.Client.FlushDB(t.Context()).Err())
	redistest.Ensure(t, q, ts...)
	slices.Reverse(want) // asynq takes tasks from the end of the list
	require.Equal(t, want, r.Client.LRange(t.Context(), redisconn.QueueKey(redisconn.Jobs, "pending"), 0, -1).Val())
}

// After Redis was emptied, asynq's Inspector does not find the queue.
func TestEnsureWhileTheQueueIsUnknown(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q, other := New(r, Config{}), New(r, Config{})
	redistest.Ensure(t, q, redistest.Task())
	redistest.Ensure(t, other, redistest.Task())
	require.NoError(t, r.Client.FlushDB(t.Context()).Err())
	ts := redistest.Tasks(2)
	require.NoError(t, other.put(t.Context(), jobHint(ts[0]), 0))
	require.Zero(t, r.Client.Exists(t.Context(), "asynq:queues").Val())
	require.Equal(t, 1, redistest.Must(q.Ensure(t.Context(), ts))(t))
	requireRuns(t, r, redisconn.Jobs, TaskName(ts[0]), TaskName(ts[1]))
}

func TestEnsureWhileRedisIsOutOfMemory(t *testing.T) {
	t.Parallel()
	r := redistest.Connect(t, redistest.Own(t).URL())
	q := New(r, Config{})
	ts := redistest.Tasks(10)
	redistest.Ensure(t, q, ts[:5]...)
	move(t, r, redisconn.Jobs, TaskName(ts[0]), "archived", 0)
	require.NoError(t, r.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	made, err := q.Ensure(t.Context(), ts)
	require.ErrorContains(t, err, "OOM")
	require.NoError(t, r.Client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	again := redistest.Must(q.Ensure(t.Context(), ts))(t)
	require.Equal(t, 6, made+again)
	require.Equal(t, 10, redistest.Info(t, r, redisconn.Jobs).Pending)
}

func TestEnsureDeliveries(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	ts := redistest.Deliveries(3)
	gone, pending, ahead := ts[0], ts[1], ts[2]
	ts[2].At = time.Now().Add(time.Hour)
	require.Equal(t, 3, redistest.Must(q.EnsureDeliveries(t.Context(), ts))(t))
	require.NoError(t, r.Inspector.DeleteTask(redisconn.Webhooks, gone.ID.String()))
	require.Equal(t, 1, redistest.Must(q.EnsureDeliveries(t.Context(), ts))(t))
	require.Zero(t, redistest.Must(q.EnsureDeliveries(t.Context(), ts))(t))
	requireRuns(t, r, redisconn.Webhooks, pending.ID.String(), gone.ID.String())
	require.Zero(t, redistest.Info(t, r, redisconn.Jobs).Size)
	require.Equal(t, "scheduled", redistest.StateOf(t, r, redisconn.Webhooks, ahead.ID.String()))
}

func TestEnsureLeavesBusyDeliveries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		returned error
		made     int
	}{{&job.TaskEarly{}, 0}, {&job.TaskFailed{Text: "HTTP_5XX"}, 1}} {
		r := redistest.DB(t)
		q := New(r, Config{})
		ts := redistest.Deliveries(1)
		redistest.Must(q.EnsureDeliveries(t.Context(), ts))(t)
		s := asynq.NewServerFromRedisClient(r.Client, asynq.Config{
			Queues: map[string]int{redisconn.Webhooks: 1}, TaskCheckInterval: time.Millisecond, Logger: redisconn.NewAsynqLog(r.Log),
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return busyEnough - 5*time.Second },
		})
		require.NoError(t, s.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return c.returned })))
		redistest.Eventually(t, func() bool { return redistest.StateOf(t, r, redisconn.Webhooks, ts[0].ID.String()) == "retry" })
		s.Shutdown()
		require.Equal(t, c.made, redistest.Must(q.EnsureDeliveries(t.Context(), ts))(t), c.returned)
	}
}
