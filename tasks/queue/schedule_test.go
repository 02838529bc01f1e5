package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// What asynq leaves of a scheduled task is what our script leaves, but for the fraction of a second.
func TestScheduleContractWithAsynq(t *testing.T) {
	t.Parallel()
	task := redistest.Task()
	task.RunAt = time.Now().Add(time.Hour).Truncate(time.Second).Add(123*time.Millisecond + 1)
	id := TaskName(task)
	var left [2]map[string]string
	var scores [2]float64
	for side, r := range []*redisconn.Redis{redistest.DB(t), redistest.DB(t)} {
		q := New(r, Config{})
		if side == 0 {
			_, err := q.client.EnqueueContext(t.Context(), q.newTask(task), append([]asynq.Option{
				asynq.Queue(redisconn.Jobs), asynq.TaskID(id), asynq.ProcessAt(ceilTime(task.RunAt)),
			}, q.options...)...)
			require.NoError(t, err)
		} else {
			dispatchAll(t, q, task)
		}
		left[side] = r.Client.HGetAll(t.Context(), redisconn.TaskKey(redisconn.Jobs, id)).Val()
		scores[side] = r.Client.ZScore(t.Context(), redisconn.QueueKey(redisconn.Jobs, "scheduled"), id).Val()
		require.ElementsMatch(t, []string{
			"asynq:queues", redisconn.TaskKey(redisconn.Jobs, id), redisconn.QueueKey(redisconn.Jobs, "scheduled"),
		}, r.Client.Keys(t.Context(), "*").Val())
		info, err := inspector(r).GetTaskInfo(redisconn.Jobs, id)
		require.NoError(t, err)
		require.WithinDuration(t, task.RunAt, info.NextProcessAt, time.Second)
		answer, err := q.dispatch(t.Context(), task)
		require.NoError(t, err)
		require.Equal(t, job.TaskPresent, answer)
	}
	require.Equal(t, left[0], left[1])
	require.InDelta(t, float64(task.RunAt.Unix()+1), scores[0], 0)
	require.InDelta(t, float64(task.RunAt.Unix())+0.124, scores[1], 1e-6, "rounded up to the millisecond")
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
		answers, err := q.Dispatch(t.Context(), []job.Task{task})
		require.NoError(t, err)
		return answers[0]
	}
	farthest, far, near, nearest := at(40), at(30), at(20), at(10)
	for _, task := range []job.Task{near, farthest, far} {
		require.Equal(t, job.TaskEnqueued, offer(task))
	}
	require.Equal(t, job.TaskRefused, offer(at(50)))
	require.Equal(t, job.TaskEnqueued, offer(nearest))
	require.Equal(t, "", stateOf(t, r, farthest), "it gave way")
	require.Equal(t, job.TaskRefused, offer(farthest))
	for _, task := range []job.Task{far, near, nearest} {
		require.Equal(t, "scheduled", stateOf(t, r, task))
	}
	require.Equal(t, job.TaskEnqueued, offer(redistest.Task()), "what is due needs none of that room")

	lower := New(r, Config{Scheduled: 1}) // as after a restart with another setting
	first := at(5)
	answers, err := lower.Dispatch(t.Context(), []job.Task{first})
	require.NoError(t, err)
	require.Equal(t, []job.Dispatched{job.TaskEnqueued}, answers)
	require.Equal(t, int64(1), r.Client.ZCard(t.Context(), redisconn.QueueKey(redisconn.Jobs, "scheduled")).Val())
	require.Equal(t, "scheduled", stateOf(t, r, first))
}

func TestRemove(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := startQueue(t, r, Config{})
	scheduled, pending, archived, late := redistest.Task(), redistest.Task(), redistest.Task(), redistest.Task()
	scheduled.RunAt = time.Now().Add(time.Hour)
	late.RunAt = scheduled.RunAt
	require.NoError(t, q.sendRemovals(t.Context(), []removal{{queue: redisconn.Jobs, id: TaskName(late)}}))
	dispatchAll(t, q, late) // it was on its way
	redistest.Eventually(t, func() bool { return stateOf(t, r, late) == "" })
	dispatchAll(t, q, scheduled, pending, archived)
	require.NoError(t, inspector(r).ArchiveTask(redisconn.Jobs, TaskName(archived)))
	for _, task := range []job.Task{scheduled, pending, archived} {
		q.Remove(task)
		redistest.Eventually(t, func() bool { return stateOf(t, r, task) == "" })
	}
	for _, key := range r.Client.Keys(t.Context(), "asynq:{*").Val() {
		require.False(t, strings.Contains(key, ":t:"), key)
	}
}

// A consumer of the version before reads names; while there is one, all payloads are names.
func TestPayloadsForConsumersOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	task := redistest.Task()
	payload := func() string { return string(New(r, Config{}).newTask(task).Payload()) }
	require.JSONEq(t, `{"job":"`+task.JobID.String()+`","attempt":1}`, payload())
	server := serve(t, r, redisconn.Jobs, nil) // it gives its queue asynq's usual priority
	redistest.Eventually(t, func() bool { return payload() == TaskName(task) })
	server.Shutdown()
	redistest.Eventually(t, func() bool { return payload() != TaskName(task) })
}
