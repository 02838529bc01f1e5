package queue

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
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
		task := redistest.Task()
		if state == "scheduled" {
			task.RunAt = time.Now().Add(time.Hour)
		}
		in[state] = task
		redistest.Dispatch(t, q, in[state])
		moveTask(t, r, redisconn.Jobs, TaskName(in[state]), state)
	}
	return in
}

// moveTask makes a pending task look as asynq leaves it in a state.
func moveTask(t *testing.T, r *redisconn.Redis, queue, name, state string) {
	t.Helper()
	ctx, later := t.Context(), redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: name}
	switch state {
	case "active":
		later.Score = float64(time.Now().Add(leaseMost - 10*time.Second).Unix())
	case "retry":
		later.Score = float64(time.Now().Add(maxRetry).Unix())
	}
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

// byAsynq has asynq enqueue the task.
func byAsynq(t testing.TB, r *redisconn.Redis, q *Queue, task job.Task, options ...asynq.Option) {
	t.Helper()
	payload := payloadOf(task)
	theirs := asynq.NewTask(JobTask, payload)
	if task.TraceParent != "" {
		theirs = asynq.NewTaskWithHeaders(JobTask, payload, map[string]string{TraceHeader: task.TraceParent})
	}
	_, err := asynq.NewClientFromRedisClient(r.Client).EnqueueContext(t.Context(), theirs, append([]asynq.Option{
		asynq.Queue(redisconn.Jobs), asynq.TaskID(TaskName(task)), asynq.MaxRetry(MaxRetry), asynq.Timeout(q.taskTime),
		asynq.ProcessAt(task.RunAt.Add(time.Second - 1).Truncate(time.Second)),
	}, options...)...)
	require.NoError(t, err)
}

// What asynq leaves of tasks is what our script leaves, but for the fraction of a second of those that wait for their time, and for
// the moment of the others.
func TestEnqueueContractWithAsynq(t *testing.T) {
	t.Parallel()
	later, due, late, traced := redistest.Task(), redistest.Task(), redistest.Task(), redistest.Task()
	later.RunAt = time.Now().Add(time.Hour).Truncate(time.Second).Add(123*time.Millisecond + 1)
	late.RunAt = time.Now().Add(-time.Hour)
	due.WorkKind, due.ClientID, due.Dispatch = "SUCCESS_FAST", later.JobID, 7
	traced.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	tasks := []job.Task{due, later, late, traced}
	var left [2]map[string]map[string]string
	var pending [2][]string
	var scores [2]float64
	for side, r := range []*redisconn.Redis{redistest.DB(t), redistest.DB(t)} {
		q := New(r, Config{})
		if side == 0 {
			for _, task := range tasks {
				byAsynq(t, r, q, task)
			}
		} else {
			redistest.Dispatch(t, q, tasks...)
		}
		require.NoError(t, q.Mend(t.Context())) // it names all queues
		left[side] = map[string]map[string]string{}
		keys := []string{redisconn.QueueKey(redisconn.Jobs, "scheduled"), redisconn.QueueKey(redisconn.Jobs, "pending"), "asynq:queues"}
		for _, task := range tasks {
			key := redisconn.TaskKey(redisconn.Jobs, TaskName(task))
			keys = append(keys, key)
			left[side][key] = r.Client.HGetAll(t.Context(), key).Val()
			if since := left[side][key]["pending_since"]; task.JobID != later.JobID {
				ns := redistest.Must(strconv.ParseInt(since, 10, 64))(t)
				require.Positive(t, ns)
				left[side][key]["pending_since"] = ""
			}
		}
		require.ElementsMatch(t, keys, r.Client.Keys(t.Context(), "*").Val())
		scores[side] = r.Client.ZScore(t.Context(), keys[0], TaskName(later)).Val()
		pending[side] = r.Client.LRange(t.Context(), keys[1], 0, -1).Val()
		info := redistest.Must(inspector(r).GetTaskInfo(redisconn.Jobs, TaskName(later)))(t)
		require.WithinDuration(t, later.RunAt, info.NextProcessAt, time.Second)
		answers := redistest.Must(q.Dispatch(t.Context(), tasks))(t)
		require.Equal(t, slices.Repeat([]job.Dispatched{job.TaskPresent}, len(tasks)), answers)
	}
	require.Equal(t, left[0], left[1])
	require.Equal(t, []string{TaskName(traced), TaskName(late), TaskName(due)}, pending[0])
	require.Equal(t, pending[0], pending[1])
	require.InDelta(t, float64(later.RunAt.Unix()+1), scores[0], 0)
	require.InDelta(t, float64(later.RunAt.UnixMicro())/1e6, scores[1], 2e-6, "to the microsecond")
}

// The farthest give way to nearer ones.
func TestScheduledTasksAreBounded(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{Scheduled: 3})
	at := func(minutes int) job.Task {
		task := redistest.Task()
		task.RunAt = time.Now().Add(time.Duration(minutes) * time.Minute)
		return task
	}
	offer := func(task job.Task) job.Dispatched {
		answers := redistest.Must(q.Dispatch(t.Context(), []job.Task{task}))(t)
		return answers[0]
	}
	farthest, far, near, nearest := at(40), at(30), at(20), at(10)
	for _, task := range []job.Task{near, farthest, far} {
		require.Equal(t, job.TaskEnqueued, offer(task))
	}
	require.Equal(t, job.TaskRefused, offer(at(50)))
	require.Equal(t, job.TaskEnqueued, offer(nearest))
	require.Equal(t, "", redistest.JobState(t, r, farthest), "it gave way")
	require.Equal(t, job.TaskRefused, offer(farthest))
	for _, task := range []job.Task{far, near, nearest} {
		require.Equal(t, "scheduled", redistest.JobState(t, r, task))
	}
	require.Equal(t, job.TaskEnqueued, offer(redistest.Task()), "what is due needs none of that room")

	lower := New(r, Config{Scheduled: 1}) // as after a restart with another setting
	first := at(5)
	answers := redistest.Must(lower.Dispatch(t.Context(), []job.Task{first}))(t)
	require.Equal(t, []job.Dispatched{job.TaskEnqueued}, answers)
	require.Equal(t, int64(1), r.Client.ZCard(t.Context(), redisconn.QueueKey(redisconn.Jobs, "scheduled")).Val())
	require.Equal(t, "scheduled", redistest.JobState(t, r, first))
}

func TestRemove(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := redistest.Start(t, New(r, Config{}))
	scheduled, pending, archived, late := redistest.Task(), redistest.Task(), redistest.Task(), redistest.Task()
	scheduled.RunAt = time.Now().Add(time.Hour)
	late.RunAt = scheduled.RunAt
	require.NoError(t, q.sendRemovals(t.Context(), []removal{{id: TaskName(late)}}))
	redistest.Dispatch(t, q, late) // it was on its way
	redistest.Eventually(t, func() bool { return redistest.JobState(t, r, late) == "" })
	redistest.Dispatch(t, q, scheduled, pending, archived)
	require.NoError(t, inspector(r).ArchiveTask(redisconn.Jobs, TaskName(archived)))
	for _, task := range []job.Task{scheduled, pending, archived} {
		q.Remove(task)
		redistest.Eventually(t, func() bool { return redistest.JobState(t, r, task) == "" })
	}
	for _, key := range r.Client.Keys(t.Context(), "asynq:{*").Val() {
		require.False(t, strings.Contains(key, ":t:"), key)
	}
}

const someID = "0190f3a4-7d6e-7c55-8a2b-3d1f5e6a7b8c"

func taskOf(t testing.TB, attempt, dispatch int) job.Task {
	t.Helper()
	id := redistest.Must(job.ParseID(someID))(t)
	return job.Task{JobID: id, Attempt: attempt, Dispatch: dispatch}
}

func TestPayload(t *testing.T) {
	t.Parallel()
	task := taskOf(t, 12, 3)
	require.Equal(t, someID+":12:3", TaskName(task))
	task.ClientID, task.WorkKind, task.Reason, task.RunAt, task.TraceParent = task.JobID, "SUCCESS_FAST", job.TimedOut, time.Now(), "x"
	payload := string(payloadOf(task))
	require.JSONEq(t, `{"job":"`+someID+`","attempt":12,"dispatch":3,"kind":"SUCCESS_FAST","client":"`+someID+`",
		"reason":"`+string(job.TimedOut)+`"}`, payload)
	want := taskOf(t, 12, 3)
	want.WorkKind = "SUCCESS_FAST"
	for _, p := range []string{payload, `{"job":"` + someID + `","attempt":12,"dispatch":3,"kind":"SUCCESS_FAST","more":[]}`} {
		parsed := redistest.Must(ParseTask(p))(t)
		require.Equal(t, want, parsed)
	}
}

func TestParseTaskIsStrict(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		"", someID + ":1:0", `{"job_id":"` + someID + `","attempt":1}`, `{"job":"0190F3A4-7D6E-7C55-8A2B-3D1F5E6A7B8C","attempt":1}`,
		`{"job":"00000000-0000-0000-0000-000000000000","attempt":1}`, `{"job":"` + someID + `"}`, `{"job":"` + someID + `","attempt":"1"}`,
		`{"job":"` + someID + `","attempt":1} x`, `{"job":"` + someID + `","attempt":1,"dispatch":-1}`, `{"job":"x","attempt":1}`, `{`, `{}`,
		`{"job":"` + someID + `","attempt":99999999999999999999}`,
	} {
		_, err := ParseTask(payload)
		require.ErrorIs(t, err, ErrBadPayload, payload)
	}
}

func FuzzParseTask(f *testing.F) {
	f.Add(`{"job":"` + someID + `","attempt":1}`)
	f.Add(someID + ":1:0")
	f.Fuzz(func(t *testing.T, payload string) {
		task, err := ParseTask(payload)
		if err == nil {
			again := redistest.Must(ParseTask(string(payloadOf(task))))(t)
			require.Equal(t, task, again)
		}
	})
}
