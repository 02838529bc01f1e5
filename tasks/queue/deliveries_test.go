package queue

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

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

// waitingFor is a delivery to the endpoint that waits for its second attempt.
func waitingFor(endpoint job.ID, wait time.Duration) job.Delivery {
	at := time.Now().Add(wait).Truncate(time.Millisecond)
	return job.Delivery{
		ID: redistest.Task().JobID, ClientID: anna, Endpoint: endpoint, WebhookID: endpoint, JobID: bert, EventName: job.EventFailed,
		State: job.DeliveryPending, Attempts: 1, NextAttemptAt: &at, LastStatus: 503, LastError: job.SendServerError,
	}
}

// showAll shows attempts and waits until that has happened.
func showAll(t testing.TB, q *Queue, ds ...job.Delivery) {
	t.Helper()
	items := make([]*shown, len(ds))
	for i, d := range ds {
		items[i] = &shown{delivery: d}
	}
	for some := range slices.Chunk(items, attemptBatch) {
		require.NoError(t, q.sendAttempts(t.Context(), some))
	}
}

// counted gives how many attempts the dashboard counts, and how many of them failed.
func counted(t testing.TB, r *redisconn.Redis) [4]int {
	t.Helper()
	info := redistest.Must(inspector(r).GetQueueInfo(redisconn.Webhooks))(t)
	return [4]int{info.Processed, info.Failed, info.ProcessedTotal, info.FailedTotal}
}

// waitingTasks gives the tasks of deliveries that wait, by delivery.
func waitingTasks(t testing.TB, r *redisconn.Redis) map[string]*asynq.TaskInfo {
	t.Helper()
	all := map[string]*asynq.TaskInfo{}
	for page := 1; ; page++ {
		some := redistest.Must(inspector(r).ListScheduledTasks(redisconn.Webhooks, asynq.PageSize(1000), asynq.Page(page)))(t)
		for _, info := range some {
			var p attemptPayload
			require.NoError(t, json.Unmarshal(info.Payload, &p))
			all[p.Delivery] = info
		}
		if len(some) < 1000 {
			return all
		}
	}
}

func TestAttemptsAreShown(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := redistest.Start(t, New(r, Config{}))
	require.NoError(t, q.SetEpoch(t.Context(), 1))
	d := waitingFor(redistest.Task().JobID, time.Hour)
	q.Attempted(d)
	redistest.Eventually(t, func() bool { return counted(t, r) == [4]int{1, 1, 1, 1} })
	info := waitingTasks(t, r)[d.ID.String()]
	require.Equal(t, []any{AttemptTask, "HTTP_5XX: The receiver answered with a 5xx status.", d.NextAttemptAt.Unix()},
		[]any{info.Type, info.LastErr, info.NextProcessAt.Unix()})
	due := redistest.Must(json.Marshal(d.NextAttemptAt.UTC()))(t)
	require.JSONEq(t, fmt.Sprintf(`{"delivery":%q,"client":%q,"endpoint":%q,"webhook":%q,"job":%q,"event":"job.failed","attempt":2,
		"last_error":"HTTP_5XX","last_status":503,"due_at":%s}`, d.ID, anna, d.Endpoint, d.Endpoint, bert, due), string(info.Payload))
	at := redistest.Must(ParseAttempt(string(info.Payload)))(t)
	require.Equal(t, job.EndpointKey{Client: anna, Endpoint: d.Endpoint}, at)

	next := waitingFor(d.Endpoint, 2*time.Hour) // the next attempt has failed, too
	next.ID, next.Attempts = d.ID, 2
	showAll(t, q, next)
	require.Equal(t, d.Endpoint.String()+":"+d.ID.String()+":3", waitingTasks(t, r)[d.ID.String()].ID)
	require.Len(t, waitingTasks(t, r), 1)

	last := next
	last.State, last.Attempts, last.NextAttemptAt, last.LastError, last.LastStatus = job.DeliveryFailed, 3, nil, job.SendTimeout, 0
	showAll(t, q, last)
	require.Empty(t, waitingTasks(t, r))
	archived := redistest.Must(inspector(r).ListArchivedTasks(redisconn.Webhooks))(t)
	require.Len(t, archived, 1)
	require.Equal(t, "TIMEOUT: The receiver did not answer completely within the time limit.", archived[0].LastErr)
	require.False(t, archived[0].LastFailedAt.IsZero())
	require.NotContains(t, string(archived[0].Payload), "due_at")
	require.Contains(t, string(archived[0].Payload), `"attempt":3`)

	done := waitingFor(d.Endpoint, 0)
	done.State, done.NextAttemptAt, done.LastError = job.DeliveryDelivered, nil, ""
	showAll(t, q, done)
	require.Equal(t, [4]int{4, 3, 4, 3}, counted(t, r))
}

func TestTasksOfAnEndpointAreDropped(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	off := redistest.Task().JobID
	ds := []job.Delivery{waitingFor(off, time.Hour), waitingFor(off, time.Minute), waitingFor(redistest.Task().JobID, time.Hour)}
	for range 2 {
		require.Equal(t, len(ds), redistest.Must(q.ScheduleDeliveries(t.Context(), ds))(t))
		require.Zero(t, redistest.Must(q.ScheduleDeliveries(t.Context(), ds))(t), "they have their tasks")
		require.Len(t, waitingTasks(t, r), len(ds))
		require.Equal(t, [4]int{}, counted(t, r), "that is no attempt")
		require.NoError(t, r.Client.FlushDB(t.Context()).Err())
		require.NoError(t, q.SetEpoch(t.Context(), 2))
	}
	showAll(t, q, ds...)
	require.NoError(t, q.sendAttempts(t.Context(), []*shown{{delivery: ds[2]}, {delivery: job.Delivery{Endpoint: off}, drop: true}}))
	require.Equal(t, []string{ds[2].ID.String()}, slices.Collect(maps.Keys(waitingTasks(t, r))))
}

func TestWaitingTasksAreBounded(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	require.NoError(t, q.SetEpoch(t.Context(), 1))
	var ds []job.Delivery
	for range maxWaiting + 20 {
		ds = append(ds, waitingFor(bert, 2*time.Hour))
	}
	n := redistest.Must(q.ScheduleDeliveries(t.Context(), ds))(t)
	require.Equal(t, maxWaiting, n)
	near := waitingFor(anna, time.Minute)
	showAll(t, q, near)
	waiting := waitingTasks(t, r)
	require.Len(t, waiting, maxWaiting)
	require.Contains(t, waiting, near.ID.String(), "the farthest gave way")
}

func TestGivenUpDeliveriesAreBounded(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	require.NoError(t, q.SetEpoch(t.Context(), 1))
	ds := make([]job.Delivery, maxGivenUp+200)
	for i := range ds {
		ds[i] = waitingFor(redistest.Task().JobID, 0)
		ds[i].State, ds[i].NextAttemptAt = job.DeliveryFailed, nil
	}
	showAll(t, q, ds...)
	depth := redistest.Must(r.Depth(t.Context(), redisconn.Webhooks))(t)
	require.Equal(t, int64(maxGivenUp), depth["archived"])
	keys := redistest.Must(r.Client.Keys(t.Context(), redisconn.TaskKey(redisconn.Webhooks, "*")).Result())(t)
	require.Len(t, keys, maxGivenUp, "the others leave nothing behind")
	require.Equal(t, [4]int{len(ds), len(ds), len(ds), len(ds)}, counted(t, r))
}

func TestParseAttempt(t *testing.T) {
	t.Parallel()
	good := fmt.Sprintf(`{"client":%q,"endpoint":%q,"further":[1]}`, anna, bert)
	at := redistest.Must(ParseAttempt(good))(t)
	require.Equal(t, job.EndpointKey{Client: anna, Endpoint: bert}, at)
	for _, bad := range []string{
		"", "{", "null", "[]", `{}`, anna.String(), fmt.Sprintf(`{"client":%q}`, anna), fmt.Sprintf(`{"endpoint":%q}`, bert),
		fmt.Sprintf(`{"client":%q,"endpoint":%q}`, job.ID{}, bert), `{"client":1,"endpoint":2}`,
		fmt.Sprintf(`{"client":%q,"endpoint":"01A204D7-2297-74D1-8BB3-2E580E65676C"}`, anna),
	} {
		_, err := ParseAttempt(bad)
		require.ErrorIs(t, err, ErrBadPayload, bad)
	}
}
