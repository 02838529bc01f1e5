package queue

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// counted returns how many tasks a counter has with the result.
func counted(results *prometheus.CounterVec, result string) float64 {
	return testutil.ToFloat64(results.WithLabelValues(result))
}

func TestEnqueue(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := redistest.Start(t, New(r, Config{MaxTaskTime: 150*time.Second + 1}))
	first, again := redistest.Task(), redistest.Task()
	again.Attempt, again.Dispatch = 2, 5
	delivery := redistest.Deliveries(1)[0]
	for range 2 {
		q.Enqueue(first)
		q.Enqueue(again)
		q.EnqueueDelivery(delivery)
	}
	redistest.Eventually(t, func() bool {
		return counted(r.Metrics.Enqueued, redisconn.ResultConflict) == 2 &&
			counted(r.Metrics.DeliveriesEnqueued, redisconn.ResultConflict) == 1
	}, "the second of each is a conflict")
	require.Equal(t, 2., counted(r.Metrics.Enqueued, redisconn.ResultOK))
	require.Equal(t, 1., counted(r.Metrics.DeliveriesEnqueued, redisconn.ResultOK))

	for id, want := range map[string]struct {
		queue, kind, payload string
		timeout              time.Duration
	}{
		first.JobID.String() + ":1": {redisconn.Jobs, JobTask, `{"job":"` + first.JobID.String() + `","attempt":1}`, 151 * time.Second},
		again.JobID.String() + ":2:5": {
			redisconn.Jobs, JobTask, `{"job":"` + again.JobID.String() + `","attempt":2,"dispatch":5}`, 151 * time.Second,
		},
		delivery.ID.String(): {redisconn.Webhooks, DeliveryTask, `{"delivery":"` + delivery.ID.String() + `","client":"` +
			delivery.ClientID.String() + `","endpoint":"` + delivery.Endpoint.String() + `"}`, deliveryTime},
	} {
		info := redistest.Must(r.Inspector.GetTaskInfo(want.queue, id))(t)
		require.Equal(t, asynq.TaskStatePending, info.State)
		require.Equal(t, want.kind, info.Type)
		require.JSONEq(t, want.payload, string(info.Payload))
		require.Equal(t, want.timeout, info.Timeout, "whole seconds, rounded up")
		require.Equal(t, MaxRetry, info.MaxRetry)
		require.Zero(t, info.Retention, "the name of a handled task is free at once")
	}
}

// Nothing reads the buffers of a queue that was not started, so a call that waited would never return.
func TestEnqueueNeverWaits(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := New(r, Config{Buffer: 10})
	for range 25 {
		q.Enqueue(redistest.Task())
	}
	for range maxDeliveries + 3 {
		q.EnqueueDelivery(job.DeliveryTask{})
	}
	for range maxRemovals + 3 {
		q.SignalCancel(job.ID{1})
		q.Remove(job.Task{})
	}
	require.Equal(t, 15., counted(r.Metrics.Enqueued, redisconn.ResultDropped))
	require.Equal(t, 10., testutil.ToFloat64(r.Metrics.Buffered))
	require.Equal(t, 3., counted(r.Metrics.DeliveriesEnqueued, redisconn.ResultDropped))
	require.Equal(t, 3., counted(r.Metrics.Signals, redisconn.ResultDropped))
}

// Tasks are sent in the order of Enqueue, also by Stop, and also after Redis has forgotten asynq's scripts.
func TestTasksKeepTheirOrder(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := New(r, Config{})
	ts, deliveries := redistest.Tasks(2*enqueueBatch+7), redistest.Deliveries(50)
	q.Enqueue(ts[0])
	q.Start()
	q.Start()
	redistest.Eventually(t, func() bool { return redistest.JobState(t, r, ts[0]) == "pending" })
	require.NoError(t, r.Client.ScriptFlush(t.Context()).Err())
	for _, task := range ts[1:] {
		q.Enqueue(task)
	}
	for _, task := range deliveries {
		q.EnqueueDelivery(task)
	}
	require.NoError(t, q.Stop(t.Context()))
	require.NoError(t, q.Stop(t.Context()))
	var want []string
	for _, task := range ts {
		want = append(want, TaskName(task))
	}
	slices.Reverse(want) // asynq takes from the end
	require.Equal(t, want, r.Client.LRange(t.Context(), redisconn.QueueKey(redisconn.Jobs, "pending"), 0, -1).Val())
	require.Equal(t, len(deliveries), redistest.Info(t, r, redisconn.Webhooks).Pending)

	q.Enqueue(redistest.Task())
	q.EnqueueDelivery(redistest.Deliveries(1)[0])
	require.Equal(t, 1., counted(r.Metrics.Enqueued, redisconn.ResultDropped), "it is stopped")
	require.Equal(t, 1., counted(r.Metrics.DeliveriesEnqueued, redisconn.ResultDropped))
	redistest.Ensure(t, q, redistest.Task()) // only the senders are stopped
}

// A Redis that hangs or is down loses tasks, but the buffers do not fill up and the queue works again afterwards.
func TestNothingWaitsForRedis(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"hangs": true, "down": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			server := redistest.Own(t)
			r, _ := redistest.ConnectCounted(t, server.URL(), time.Second/2)
			q := redistest.Start(t, New(r, Config{}))
			redistest.Eventually(t, func() bool { return q.Ping(ctx) == nil })
			fault, heal := server.Stop, func() error { return server.Start(ctx) }
			if hangs {
				fault, heal = server.Pause, server.Resume
			}
			require.NoError(t, fault())
			const total = 1000
			for _, task := range redistest.Tasks(total) {
				q.Enqueue(task)
				q.EnqueueDelivery(job.DeliveryTask{ID: task.JobID})
			}
			given := func(c *prometheus.CounterVec) float64 {
				return counted(c, redisconn.ResultFailed) + counted(c, redisconn.ResultSkipped)
			}
			redistest.Eventually(t, func() bool {
				return given(r.Metrics.Enqueued) == total && given(r.Metrics.DeliveriesEnqueued) == total
			})
			require.Positive(t, counted(r.Metrics.Enqueued, redisconn.ResultFailed))
			require.Positive(t, counted(r.Metrics.Enqueued, redisconn.ResultSkipped))
			require.Zero(t, testutil.ToFloat64(r.Metrics.Buffered))
			for operation, call := range map[string]func() error{
				"ensure": func() error { _, err := q.Ensure(ctx, redistest.Tasks(3)); return err },
				"ping":   func() error { return q.Ping(ctx) },
				"mend":   func() error { return q.Mend(ctx) },
			} {
				require.Error(t, call(), operation)
				require.Positive(t, testutil.ToFloat64(r.Metrics.Errors.WithLabelValues(operation)), operation)
			}
			require.Equal(t, 3., counted(r.Metrics.Ensured, redisconn.ResultFailed))

			require.NoError(t, heal())
			redistest.Eventually(t, func() bool {
				q.Enqueue(redistest.Task())
				q.EnqueueDelivery(redistest.Deliveries(1)[0])
				return counted(r.Metrics.Enqueued, redisconn.ResultOK) > 0 && counted(r.Metrics.DeliveriesEnqueued, redisconn.ResultOK) > 0
			})
		})
	}
}

// A task for later is scheduled for the moment at which the machine's clock shows that its time has come.
func TestTasksWaitForTheirTime(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	for name, c := range map[string]struct {
		set   *clock.Setting // from now on; nil: the clock was never moved
		ahead time.Duration  // of Postgres' clock to the machine's
		due   time.Duration  // after now in the service's time
		want  time.Duration  // after now by the machine's clock; 0: pending
	}{
		"the machine's clock":   {nil, 0, hour, hour},
		"due":                   {nil, 0, -hour, 0},
		"Postgres is ahead":     {&clock.Setting{}, 10 * time.Minute, hour, hour},
		"advanced":              {&clock.Setting{Number: 1, Rate: 1}, 0, hour, hour},
		"sixty times as fast":   {&clock.Setting{Number: 1, Rate: 60}, 0, hour, time.Minute},
		"half as fast":          {&clock.Setting{Number: 1, Rate: 0.5}, 10 * time.Minute, hour, 2 * hour},
		"frozen":                {&clock.Setting{Number: 1}, 0, time.Second, farAhead},
		"frozen after its time": {&clock.Setting{Number: 1}, 0, -time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.Mini(t)
			var of *clock.Clock
			if c.set != nil {
				of = clock.New()
				c.set.Real = time.Now().Add(c.ahead)
				c.set.Time = c.set.Real.Add(1000 * hour)
				of.Set(*c.set, c.ahead)
			}
			q := New(r, Config{Clock: of})
			task, delivery := redistest.Task(), redistest.Deliveries(1)[0]
			task.RunAt = of.Now().Add(c.due)
			delivery.At = task.RunAt
			before := time.Now()
			require.NoError(t, q.put(t.Context(), jobHint(task), 0))
			require.NoError(t, q.put(t.Context(), deliveryHint(delivery), 0))
			after := time.Now()
			for queue, id := range map[string]string{redisconn.Jobs: TaskName(task), redisconn.Webhooks: delivery.ID.String()} {
				info := redistest.Must(r.Inspector.GetTaskInfo(queue, id))(t)
				if c.want == 0 {
					require.Equal(t, asynq.TaskStatePending, info.State)
					continue
				}
				require.Equal(t, asynq.TaskStateScheduled, info.State)
				slack := time.Second + after.Sub(before) // asynq keeps whole seconds
				require.WithinRange(t, info.NextProcessAt, before.Add(c.want-slack), after.Add(c.want))
			}
		})
	}
}

// Watch registers the queues anew with asynq after Redis was emptied: the dashboard and the inspector find none otherwise.
func TestWatchNoticesThatRedisWasEmptied(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := redistest.Start(t, New(r, Config{}))
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		q.Watch(ctx)
	}()
	t.Cleanup(func() { cancel(); <-watched })
	for range 2 {
		redistest.Eventually(t, func() bool {
			q.Enqueue(redistest.Task())
			return len(redistest.Must(r.Inspector.Queues())(t)) == 1
		})
		require.NoError(t, r.Client.FlushDB(t.Context()).Err())
	}
}

func TestConditionOfLongAndPausedQueues(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	redistest.Ensure(t, q, redistest.Tasks(longQueue)...)
	q.look(t.Context(), true)
	require.Equal(t, Condition{}, q.Condition())
	redistest.Ensure(t, q, redistest.Task())
	require.NoError(t, r.Inspector.PauseQueue(redisconn.Jobs))
	q.look(t.Context(), true)
	require.Equal(t, Condition{Paused: []string{redisconn.Jobs}, Long: true}, q.Condition())
	require.Equal(t, "allkeys-lru", evicts("maxmemory:5\r\nmaxmemory_policy:allkeys-lru\r\n"))
	require.Empty(t, evicts("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n"))
	require.Empty(t, evicts("maxmemory:5\r\nmaxmemory_policy:noeviction\r\n"))
}

func TestMendRemovesKeysOfAnotherType(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	damaged := []string{"asynq:queues"}
	for _, name := range []string{"pending", "active", "lease", "scheduled", "retry", "archived", "completed"} {
		damaged = append(damaged, redisconn.QueueKey(redisconn.Jobs, name))
	}
	for _, key := range append(damaged, redisconn.QueueKey(redisconn.Jobs, "paused")) {
		require.NoError(t, r.Client.Set(t.Context(), key, "x", 0).Err())
	}
	for _, key := range redisconn.CountKeys(redisconn.Webhooks, time.Now()) {
		require.NoError(t, r.Client.SAdd(t.Context(), key, "x").Err())
		damaged = append(damaged, key)
	}
	_, err := q.Ensure(t.Context(), redistest.Tasks(1))
	require.ErrorContains(t, err, "WRONGTYPE")
	require.NoError(t, q.Mend(t.Context()))
	require.Zero(t, r.Client.Exists(t.Context(), damaged...).Val())
	require.Equal(t, int64(1), r.Client.Exists(t.Context(), redisconn.QueueKey(redisconn.Jobs, "paused")).Val(), "any type pauses")
	redistest.Ensure(t, q, redistest.Task())
}

func TestRemove(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := redistest.Start(t, New(r, Config{}))
	scheduled, pending, archived, late, active := redistest.Task(), redistest.Task(), redistest.Task(), redistest.Task(), redistest.Task()
	deliveries := redistest.Deliveries(2)
	scheduled.RunAt = time.Now().Add(time.Hour)
	deliveries[0].At = scheduled.RunAt
	redistest.Ensure(t, q, active)
	move(t, r, redisconn.Jobs, TaskName(active), "active", time.Minute)
	require.NoError(t, q.sendRemovals(t.Context(), []removal{{queue: redisconn.Jobs, id: TaskName(late)}}))
	redistest.Ensure(t, q, scheduled, pending, archived, late) // the last one was on its way
	require.NoError(t, r.Inspector.ArchiveTask(redisconn.Jobs, TaskName(archived)))
	require.Equal(t, 2, redistest.Must(q.EnsureDeliveries(t.Context(), deliveries))(t))
	for _, task := range []job.Task{active, scheduled, pending, archived} {
		q.Remove(task)
	}
	q.RemoveDeliveries(deliveries[0].ID, deliveries[1].ID)
	redistest.Eventually(t, func() bool {
		return len(r.Client.Keys(t.Context(), "asynq:{*}:t:*").Val()) == 1
	})
	require.Equal(t, "active", redistest.JobState(t, r, active))
	require.Equal(t, 1, redistest.Info(t, r, redisconn.Jobs).Size)
	require.Zero(t, redistest.Info(t, r, redisconn.Webhooks).Size)
}
