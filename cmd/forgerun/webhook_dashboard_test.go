package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
)

// hookQueue reads the queue of deliveries as the dashboard Asynqmon does.
type hookQueue struct {
	s *stack
	*asynq.Inspector
}

func (s *stack) hookQueue() hookQueue { return hookQueue{s, asynq.NewInspectorFromRedisClient(s.rdb)} }

func (q hookQueue) list(read func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error)) map[string]*asynq.TaskInfo {
	q.s.t.Helper()
	all, err := read("webhooks", asynq.PageSize(1000))
	if err != nil {
		require.ErrorIs(q.s.t, err, asynq.ErrQueueNotFound, "only before the first and after FLUSHALL")
	}
	tasks := map[string]*asynq.TaskInfo{}
	for _, task := range all {
		payload := parsed[struct{ Delivery string }](q.s.t, string(task.Payload))
		require.Equal(q.s.t, task.ID, payload.Delivery)
		tasks[task.ID] = task
	}
	return tasks
}

func (q hookQueue) waiting() map[string]*asynq.TaskInfo { return q.list(q.ListRetryTasks) }

// awaitCounts waits until the queue's statistics agree with the database. The relay may create a second task for the same delivery. Such a
// task has nothing to send; `stale` counts these tasks.
func (q hookQueue) awaitCounts(stale func() int) {
	q.s.t.Helper()
	var counted, rows string
	eventually(q.s.t, "the counters equal the attempts", func() bool {
		info, err := q.GetQueueInfo("webhooks")
		require.NoError(q.s.t, err)
		n := stale()
		counted = fmt.Sprintf("%d processed, %d failed", info.ProcessedTotal-n, info.FailedTotal)
		rows = q.s.text(`SELECT format('%s processed, %s failed', count(*), count(error)) FROM delivery_attempts`)
		return counted == rows
	})
}

func staleTasks(deliverer *proc) int {
	return int(deliverer.metric(`delivery_tasks_handled_total{result="stale"}`))
}

// failing answers the first `times` attempts of each delivery with 503, and later ones with 200.
func failing(times int) func(received, http.ResponseWriter, *http.Request) {
	return func(d received, w http.ResponseWriter, _ *http.Request) {
		if d.nth <= times {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
}

// In Asynqmon, waiting deliveries are shown as retries, with their last error. Failed deliveries are in the archive. The counters equal
// the number of attempts.
func TestDashboardOfDeliveries(t *testing.T) {
	s := newStack(t, hooks)
	api, deliverer, u := s.startDelivering()
	q := s.hookQueue()
	dead, healing, fine := newReceiver(t, failing(1000)), newReceiver(t, failing(2)), newReceiver(t, nil)
	u.subscribe(api, dead.url, "job.succeeded")
	u.subscribe(api, healing.url, "job.succeeded")
	u.subscribe(api, fine.url, "job.succeeded")
	u.submitMany(api, 3, execute("WEBHOOK_SUCCESS"))
	s.awaitCount("all deliveries have ended", 9, `SELECT count(*) FROM deliveries WHERE state <> 'PENDING'`)
	q.awaitCounts(func() int { return staleTasks(deliverer) })
	stale := staleTasks(deliverer)

	archived := q.list(q.ListArchivedTasks)
	require.Len(t, archived, 3)
	for id, task := range archived {
		require.Equal(t, "HTTP_5XX: HTTP 503 from "+strings.TrimPrefix(dead.url, "http://"), task.LastErr)
		require.Equal(t, "FAILED 4", s.text(`SELECT state || ' ' || attempts FROM deliveries WHERE delivery_id = $1`, id))
	}
	require.Empty(t, q.waiting())

	deliverer.stop()
	s.await("SUCCEEDED", u.submit(api, execute("WEBHOOK_SUCCESS")))
	eventually(t, "its deliveries wait", func() bool { return len(q.list(q.ListPendingTasks)) == 3 })
	deliverer = s.startDeliverer()
	s.awaitDeliveries()
	q.awaitCounts(func() int { return stale + staleTasks(deliverer) }) // the counters also show that no task was handled twice
	s.checkInvariants()
}

// Waiting deliveries survive FLUSHALL, and do not become due earlier. The client can send waiting deliveries at once. Deleting a webhook
// deletes its waiting deliveries.
func TestTasksOfWaitingDeliveries(t *testing.T) {
	s := newStack(t, hooks, env{
		"FORGERUN_WEBHOOK_BACKOFF_BASE": "1h", "FORGERUN_WEBHOOK_BACKOFF_MAX": "1h",
		"FORGERUN_WEBHOOK_TIMEOUT": "30s", // no attempt may time out, because the test compares stored responses
	})
	api, _, u := s.startDelivering()
	q := s.hookQueue()
	lost, kept := newReceiver(t, failing(1000)), newReceiver(t, failing(1000))
	hook := u.subscribe(api, lost.url, "job.succeeded")
	u.submitMany(api, 5, execute("WEBHOOK_SUCCESS"))
	const attempts = `SELECT count(*) FROM delivery_attempts`
	s.awaitCount("all were tried once", 5, attempts)
	eventually(t, "all wait", func() bool { return len(q.waiting()) == 5 })
	deliveries := q.waiting()
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())

	second := u.subscribe(api, kept.url, "job.succeeded")
	u.submitMany(api, 5, execute("WEBHOOK_SUCCESS"))
	s.awaitCount("the new deliveries were tried", 15, attempts)
	eventually(t, "all deliveries wait", func() bool { return len(q.waiting()) == 10 })
	lost.respondWith(withStatus(http.StatusNoContent))
	for id := range deliveries {
		u.expect(api, http.StatusAccepted, "POST", "/v1/webhooks/"+hook.id+"/deliveries/"+id+"/redeliver", "")
		eventually(t, "it is delivered", func() bool {
			return s.text(`SELECT state FROM deliveries WHERE delivery_id = $1`, id) == "DELIVERED"
		})
	}
	require.Equal(t, 20, s.count(attempts), "nothing comes early because of a flush")

	u.expect(api, http.StatusOK, "PATCH", "/v1/webhooks/"+hook.id, `{"enabled":false}`)
	eventually(t, "nothing waits for a disabled webhook", func() bool { return len(q.waiting()) == 5 })
	u.expect(api, http.StatusOK, "DELETE", "/v1/webhooks/"+second.id, "")
	eventually(t, "nothing waits for a deleted webhook", func() bool { return len(q.waiting()) == 0 })
	require.Empty(t, q.list(q.ListArchivedTasks), "deliveries without a last attempt are not archived")
	s.checkInvariants()
}
