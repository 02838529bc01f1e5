package queue

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

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
			require.NoError(t, q.register(t.Context()))
		} else {
			redistest.Dispatch(t, q, tasks...)
		}
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

// A task whose key is something else is not there, and cannot be put: another dispatch of the job gets another name.
func TestDispatchOfATaskWhoseKeyIsTaken(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	tasks := redistest.Tasks(3)
	require.NoError(t, r.Client.Set(t.Context(), redisconn.TaskKey(redisconn.Jobs, TaskName(tasks[1])), "x", 0).Err())
	answers := redistest.Must(q.Dispatch(t.Context(), tasks))(t)
	require.Equal(t, []job.Dispatched{job.TaskEnqueued, job.TaskIDUsed, job.TaskEnqueued}, answers)
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
	require.NoError(t, q.sendRemovals(t.Context(), []removal{{queue: redisconn.Jobs, id: TaskName(late)}}))
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
