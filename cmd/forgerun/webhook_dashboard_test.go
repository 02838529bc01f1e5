package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
)

// deliveryTask is what the dashboard shows of a delivery.
type deliveryTask struct {
	info *asynq.TaskInfo

	Delivery, Client, Endpoint, Webhook, Job, Event string
	Attempt                                         int
	LastError                                       string    `json:"last_error"`
	LastStatus                                      int       `json:"last_status"`
	DueAt                                           time.Time `json:"due_at"`
}

// hookQueue reads the queue of deliveries as its dashboard does.
type hookQueue struct {
	s *stack
	*asynq.Inspector
}

func (s *stack) hookQueue() hookQueue { return hookQueue{s, s.inspector()} }

type listTasks func(queue string, options ...asynq.ListOption) ([]*asynq.TaskInfo, error)

// list gives the tasks of deliveries in a state, by delivery.
func (q hookQueue) list(list listTasks) map[string]deliveryTask {
	q.s.t.Helper()
	all, err := list("webhooks", asynq.PageSize(1000))
	if err != nil {
		require.ErrorIs(q.s.t, err, asynq.ErrQueueNotFound, "only after FLUSHALL")
	}
	tasks := map[string]deliveryTask{}
	for _, info := range all {
		if info.Type != "delivery" {
			continue
		}
		task := deliveryTask{info: info}
		require.NoError(q.s.t, json.Unmarshal(info.Payload, &task))
		tasks[task.Delivery] = task
	}
	return tasks
}

func (q hookQueue) waiting() map[string]deliveryTask { return q.list(q.ListScheduledTasks) }

// awaitCounts waits until the statistics are those of the rows.
func (q hookQueue) awaitCounts() {
	q.s.t.Helper()
	var counted, rows string
	eventually(q.s.t, "the dashboard counts what was tried", func() bool {
		info, err := q.GetQueueInfo("webhooks")
		require.NoError(q.s.t, err)
		counted = fmt.Sprintf("%d processed, %d failed, %d today, %d of them failed", info.ProcessedTotal, info.FailedTotal,
			info.Processed, info.Failed)
		rows = q.s.text(`SELECT format('%s processed, %s failed, %1$s today, %2$s of them failed', count(*), count(error))
			FROM delivery_attempts`)
		return counted == rows
	})
}

// lateness is by how much attempts came after the times in the map, by delivery and attempt.
func (s *stack) lateness(due map[string]time.Time) map[string]time.Duration {
	s.t.Helper()
	late := map[string]time.Duration{}
	for _, a := range structs[struct {
		Name string
		At   time.Time
	}](s, `SELECT delivery_id || ':' || number, started_at FROM delivery_attempts`) {
		if expected, ok := due[a.Name]; ok {
			late[a.Name] = a.At.Sub(expected)
		}
	}
	return late
}

// failing answers so many times with a failure, and then well.
func failing(times int) func(received, http.ResponseWriter, *http.Request) {
	return func(d received, w http.ResponseWriter, _ *http.Request) {
		if d.nth <= times {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
}

// What waits for its next attempt is a task with its time and last error, which begins that attempt; what was given up is in the
// archive; and the counters are those of the attempts.
func TestDashboardOfDeliveries(t *testing.T) {
	s := newStack(t, hooks)
	api, deliverer, u := s.startDelivering()
	q := s.hookQueue()
	dead, healing, fine := newReceiver(t, failing(1000)), newReceiver(t, failing(2)), newReceiver(t, nil)
	hook := u.subscribe(api, dead.url, "job.succeeded")
	u.subscribe(api, healing.url, "job.succeeded")
	u.subscribe(api, fine.url, "job.succeeded")
	u.submitMany(api, 3, execute("WEBHOOK_SUCCESS"))
	due := map[string]time.Time{}
	eventually(t, "all have come to an end", func() bool {
		for id, task := range q.waiting() {
			due[fmt.Sprint(id, ":", task.Attempt)] = task.DueAt
		}
		return s.count(`SELECT count(*) FROM deliveries WHERE state <> 'PENDING'`) == 9
	})
	for name, by := range s.lateness(due) {
		require.GreaterOrEqual(t, by, time.Duration(0), "%s came before its time", name)
	}
	q.awaitCounts()

	archived := q.list(q.ListArchivedTasks)
	require.Len(t, archived, 3)
	for id, task := range archived {
		require.Equal(t, []any{hook.id, 4}, []any{task.Webhook, task.Attempt})
		require.Equal(t, "HTTP_5XX: HTTP 503 from "+strings.TrimPrefix(dead.url, "http://"), task.info.LastErr)
		require.Equal(t, "FAILED 4", s.text(`SELECT state || ' ' || attempts FROM deliveries WHERE delivery_id = $1`, id))
	}
	require.Empty(t, q.waiting())

	deliverer.stop()
	eventually(t, "it is forgotten", func() bool { servers, err := q.Servers(); return err == nil && len(servers) == 1 })
	s.await("SUCCEEDED", u.submit(api, execute("WEBHOOK_SUCCESS")))
	eventually(t, "a wake-up waits", func() bool {
		pending, err := q.ListPendingTasks("webhooks")
		return err == nil && len(pending) == 1 && string(pending[0].Payload) == `{"client":"`+u.id+`"}`
	})
	s.startDeliverer()
	s.awaitDeliveries()
	q.awaitCounts() // what was handled twice or for nothing would have been counted by now
	s.checkInvariants()
}

// Of an endpoint the nearest ten are in Redis; the others wait in Postgres, and fill the slots that become free.
func TestWaitingDeliveriesOfAnEndpoint(t *testing.T) {
	s := newStack(t, hooks, env{
		"FORGERUN_WEBHOOK_BACKOFF_BASE": "1h", "FORGERUN_WEBHOOK_BACKOFF_MAX": "1h",
		"FORGERUN_WEBHOOK_TIMEOUT": "30s", // the receiver's answers are looked at
	})
	api, _, u := s.startDelivering()
	q := s.hookQueue()
	dead, other := newReceiver(t, failing(1000)), newReceiver(t, failing(1000))
	hook, second := u.subscribe(api, dead.url, "job.succeeded"), u.subscribe(api, other.url, "job.succeeded")
	u.submitMany(api, 14, execute("WEBHOOK_SUCCESS"))
	nearest := func(most int) []string {
		return s.texts(`SELECT delivery_id::text FROM (
			SELECT *, row_number() OVER (PARTITION BY endpoint_id ORDER BY next_attempt_at) AS nth FROM deliveries
			WHERE state = 'PENDING' AND claimed_until IS NULL AND attempts > 0) d WHERE nth <= $1`, most)
	}
	shows := func(n int) func() bool { // of two endpoints
		return func() bool {
			waiting, expected := q.waiting(), nearest(n/2)
			for _, id := range expected {
				delete(waiting, id)
			}
			return len(expected) == n && len(waiting) == 0 && len(q.waiting()) == n
		}
	}
	s.awaitCount("all were tried once", 28, `SELECT count(*) FROM delivery_attempts`)
	eventually(t, "all are shown", shows(28))
	for id, task := range q.waiting() {
		require.Equal(t, []any{"job.succeeded", "HTTP_5XX", http.StatusServiceUnavailable}, []any{task.Event, task.LastError, task.LastStatus})
		require.Equal(t, s.text(`SELECT client_id || ' ' || endpoint_id || ' ' || webhook_id || ' ' || job_id FROM deliveries
			WHERE delivery_id = $1`, id), task.Client+" "+task.Endpoint+" "+task.Webhook+" "+task.Job)
		require.Contains(t, task.info.LastErr, "HTTP_5XX")
		require.Equal(t, 1, s.count(`SELECT count(*) FROM deliveries WHERE delivery_id = $1 AND next_attempt_at = $2`, id, task.DueAt))
		require.Equal(t, task.DueAt.Unix(), task.info.NextProcessAt.Unix())
	}

	lost := q.waiting()
	for _, task := range lost {
		require.NoError(t, q.DeleteTask("webhooks", task.info.ID))
	}
	eventually(t, "of lost tasks the nearest ten of each are back", shows(20))
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	eventually(t, "they are back after a flush", shows(20))
	require.Equal(t, 28, s.count(`SELECT count(*) FROM delivery_attempts`), "none comes early because of that")
	for id, task := range lost {
		if task.Webhook == hook.id {
			dead.behave(answering(http.StatusNoContent))
			u.expect(api, http.StatusAccepted, "POST", "/v1/webhooks/"+hook.id+"/deliveries/"+id+"/redeliver", "")
			eventually(t, "it is delivered", func() bool {
				return s.text(`SELECT state FROM deliveries WHERE delivery_id = $1`, id) == "DELIVERED"
			})
			break
		}
	}
	eventually(t, "its task is gone, and another one is in its place", shows(20))

	u.expect(api, http.StatusOK, "PATCH", "/v1/webhooks/"+hook.id, `{"enabled":false}`)
	eventually(t, "nothing waits for a disabled webhook", func() bool {
		waiting := q.waiting()
		maps.DeleteFunc(waiting, func(_ string, task deliveryTask) bool { return task.Webhook != hook.id })
		return len(waiting) == 0
	})
	u.expect(api, http.StatusOK, "DELETE", "/v1/webhooks/"+second.id, "")
	eventually(t, "nothing waits for a deleted webhook", func() bool { return len(q.waiting()) == 0 })
	require.Empty(t, q.list(q.ListArchivedTasks), "what was not tried for the last time is no failure")
	s.checkInvariants()
}
