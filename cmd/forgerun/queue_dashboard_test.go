package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
)

// inspector returns an asynq inspector; the dashboard uses the same kind.
func (s *stack) inspector() *asynq.Inspector {
	s.t.Helper()
	return asynq.NewInspectorFromRedisClient(s.rdb)
}

func (s *stack) jobsQueue(i *asynq.Inspector) *asynq.QueueInfo {
	s.t.Helper()
	info, err := i.GetQueueInfo("jobs")
	require.NoError(s.t, err)
	return info
}

type listTasks func(queue string, options ...asynq.ListOption) ([]*asynq.TaskInfo, error)

// tasksBy returns the tasks that list returns for a queue, keyed by a member of their payload.
func (s *stack) tasksBy(member, queue string, list listTasks) map[string]*asynq.TaskInfo {
	s.t.Helper()
	all, err := list(queue, asynq.PageSize(1000))
	if err != nil {
		require.ErrorIs(s.t, err, asynq.ErrQueueNotFound, "only before the first and after FLUSHALL")
	}
	tasks := map[string]*asynq.TaskInfo{}
	for _, task := range all {
		tasks[payloadOf(s.t, task)[member].(string)] = task
	}
	return tasks
}

func payloadOf(t *testing.T, task *asynq.TaskInfo) map[string]any {
	t.Helper()
	var payload map[string]any
	require.NoError(t, json.Unmarshal(task.Payload, &payload), "%s", task.Payload)
	return payload
}

// Jobs succeed, fail, are retried by the service and by their client, and are canceled while they wait. The queue's counters agree with
// the database, and the failed tasks are in the archive.
func TestDashboardAgreesWithTheRows(t *testing.T) {
	s, api, u := newWorking(t)
	inspector := s.inspector()
	ids := u.submitMany(api, 40, execute("SUCCESS_FAST"))
	failing := u.submitMany(api, 15, execute("FAIL_AFTER_RETRYABLE"))
	ids = append(ids, failing...)
	ids = append(ids, u.submitMany(api, 15, execute("RETRY_ON_FAIL", `"auto_retry":true`))...)
	ids = append(ids, u.submitMany(api, 10, execute("RETRY_LIMIT_REACHED", `"auto_retry":true`))...)
	var canceled []string
	for range 10 {
		canceled = append(canceled, u.submit(api, deferred(time.Hour)))
	}
	for _, id := range canceled { // a task created after the cancel would stay until its due time, so wait for the task
		eventually(t, "the job has a task", func() bool { return s.tasksBy("job", "jobs", inspector.ListScheduledTasks)[id] != nil })
		require.Equal(t, 200, u.call(api, "POST", "/v1/jobs/"+id+"/cancel", "").status)
	}
	s.awaitFinal(append(ids, canceled...)...)
	for _, id := range failing[:5] {
		u.retry(api, id)
	}
	s.awaitFinal(ids...)

	processed := s.count(`SELECT count(*) FROM reports WHERE started_at IS NOT NULL`)
	failed := s.count(`SELECT count(*) FROM reports WHERE outcome = 'FAILED'`)
	require.Equal(t, 15+5+15+40, failed, "as the catalogue defines")
	require.Equal(t, 40+15+failed, processed)
	eventually(t, "the counters equal the rows", func() bool {
		info := s.jobsQueue(inspector)
		return info.ProcessedTotal == processed && info.FailedTotal == failed && info.Size == failed
	})
	info := s.jobsQueue(inspector)
	require.Equal(t, []int{processed, failed, failed, 0, 0, 0, 0},
		[]int{info.ProcessedTotal, info.FailedTotal, info.Archived, info.Pending, info.Active, info.Scheduled, info.Retry})
	kept, err := inspector.ListArchivedTasks("jobs", asynq.PageSize(1000))
	require.NoError(t, err)
	require.Len(t, kept, failed)
	for _, task := range kept {
		payload := payloadOf(t, task)
		id, attempt := payload["job"].(string), int(payload["attempt"].(float64))
		require.Equal(t, s.text(`SELECT failure_code || ': ' || failure_detail FROM reports WHERE job_id = $1 AND attempt = $2`, id, attempt),
			task.LastErr)
		require.Equal(t, s.text(`SELECT work_kind FROM jobs WHERE job_id = $1`, id), payload["kind"])
		require.Equal(t, s.text(`SELECT client_id::text FROM jobs WHERE job_id = $1`, id), payload["client"])
	}
	s.checkInvariants()
	require.Equal(t, 204, u.call(api, "DELETE", "/v1/jobs/"+failing[0], "").status)
	eventually(t, "the tasks of a deleted job are deleted", func() bool { return s.jobsQueue(inspector).Archived == failed-2 })
}
