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
		queue, kind string
		payload     []byte
		timeout     time.Duration
	}{
		first.JobID.String() + ":1":   {redisconn.Jobs, JobTask, jobHint(first).payload, 151 * time.Second},
		again.JobID.String() + ":2:5": {redisconn.Jobs, JobTask, jobHint(again).payload, 151 * time.Second},
		delivery.ID.String():          {redisconn.Webhooks, DeliveryTask, deliveryHint(delivery).payload, deliveryTime},
	} {
		info := redistest.Must(r.Inspector.GetTaskInfo(want.queue, id))(t)
		require.Equal(t, asynq.TaskStatePending, info.State)
		require.Equal(t, want.kind, info.Type)
		require.Equal(t, want.payload, info.Payload)
		require.Equal(t, want.timeout, info.Timeout, "whole seconds, rounded up")
		require.Equal(t, MaxRetry, info.MaxRetry)
		require.Zero(t, info.Retention, "handled tasks are not retained")
	}
}

// The queue is not started, so a call that waited for free buffer space would block forever.
func TestEnqueueNeverWaits(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := New(r, Config{})
	for range maxBuffered + 15 {
		q.Enqueue(job.Task{})
		q.EnqueueDelivery(job.DeliveryTask{})
	}
	for range 4096 + 3 {
		q.SignalCancel(job.ID{1})
		q.Remove(job.Task{})
	}
	for range 16384 + 3 {
		q.Publish(job.Notification{})
	}
	require.Equal(t, 15., counted(r.Metrics.Enqueued, redisconn.ResultDropped))
	require.EqualValues(t, maxBuffered, testutil.ToFloat64(r.Metrics.Buffered))
	require.Equal(t, 15., counted(r.Metrics.DeliveriesEnqueued, redisconn.ResultDropped))
	require.Equal(t, 3., counted(r.Metrics.Signals, redisconn.ResultDropped))
	require.Equal(t, 3., counted(r.Metrics.Notifications, redisconn.ResultDropped))
}

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
		q.Publish(job.Notification{ClientID: task.ID, JobID: task.ID})
		q.SignalCancel(task.ID)
	}
	require.NoError(t, q.Stop(t.Context()))
	require.NoError(t, q.Stop(t.Context()))
	var want []string
	for _, task := range ts {
		want = append(want, TaskName(task))
	}
	slices.Reverse(want) // asynq takes tasks from the end of the list
	require.Equal(t, want, r.Client.LRange(t.Context(), redisconn.QueueKey(redisconn.Jobs, "pending"), 0, -1).Val())
	require.Equal(t, len(deliveries), redistest.Info(t, r, redisconn.Webhooks).Pending)
	require.Equal(t, 50., counted(r.Metrics.Notifications, redisconn.ResultOK))
	require.Equal(t, 50., counted(r.Metrics.Signals, redisconn.ResultOK))

	q.Enqueue(redistest.Task())
	q.EnqueueDelivery(redistest.Deliveries(1)[0])
	require.Equal(t, 1., counted(r.Metrics.Enqueued, redisconn.ResultDropped), "the queue is stopped")
	require.Equal(t, 1., counted(r.Metrics.DeliveriesEnqueued, redisconn.ResultDropped))
	redistest.Ensure(t, q, redistest.Task()) // Ensure works after Stop, because Stop ends only the senders
}

func TestNothingWaitsForRedis(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"hangs": true, "down": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			server := redistest.Own(t)
			r := redistest.ConnectTimeout(t, server.URL(), time.Second/2)
			q := redistest.Start(t, New(r, Config{}))
			redistest.Eventually(t, func() bool { return r.Ping(ctx) == nil })
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
				"ping":   func() error { return r.Ping(ctx) },
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

func TestTasksWaitForTheirTime(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	for name, c := range map[string]struct {
		number int64
		rate   float64
		ahead  time.Duration // how far Postgres' clock is ahead of the machine's
		due    time.Duration // by the service's time
		want   time.Duration // by the machine's clock
	}{
		"never moved":         {0, 0, 0, hour, hour},
		"Postgres is ahead":   {0, 0, 10 * time.Minute, hour, hour},
		"advanced":            {1, 1, 0, hour, hour},
		"sixty times as fast": {1, 60, 0, hour, time.Minute},
		"half as fast":        {1, 0.5, 10 * time.Minute, hour, 2 * hour},
		"frozen":              {1, 0, 0, time.Second, farAhead},
		"frozen, due before":  {1, 0, 0, -time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			of := clock.New()
			of.Set(clock.Setting{Number: c.number, Rate: c.rate, Real: now.Add(c.ahead), Time: now.Add(1000 * hour)}, c.ahead)
			q := New(redistest.Mini(t), Config{Clock: of})
			due := of.Now().Add(c.due)
			require.WithinRange(t, q.processAt(due), now.Add(c.want-time.Microsecond), time.Now().Add(c.want))
		})
	}
	q := New(redistest.Mini(t), Config{})
	require.WithinDuration(t, time.Now().Add(hour), q.processAt(time.Now().Add(hour)), time.Minute, "without a clock")
	require.True(t, q.processAt(time.Time{}).IsZero(), "at once")
}

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
			return len(redistest.Must(r.Inspector.Queues())(t)) == len(redisconn.Queues)
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
	require.Equal(t, "allkeys-lru", evictionPolicy("maxmemory:5\r\nmaxmemory_policy:allkeys-lru\r\n"))
	require.Empty(t, evictionPolicy("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n"))
	require.Empty(t, evictionPolicy("maxmemory:5\r\nmaxmemory_policy:noeviction\r\n"))
}

func TestMendRemovesKeysOfAnotherType(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	ts := redistest.Tasks(20)
	redistest.Ensure(t, q, ts...)
	damaged := []string{"asynq:queues"}
	for _, name := range []string{"pending", "active", "lease", "scheduled", "retry", "archived", "completed"} {
		damaged = append(damaged, redisconn.QueueKey(redisconn.Jobs, name))
	}
	for _, key := range append(damaged, redisconn.QueueKey(redisconn.Jobs, "paused")) {
		require.NoError(t, r.Client.Set(t.Context(), key, "x", 0).Err())
	}
	for _, key := range countKeys(redisconn.Webhooks) {
		require.NoError(t, r.Client.SAdd(t.Context(), key, "x").Err())
		damaged = append(damaged, key)
	}
	_, err := q.Ensure(t.Context(), ts)
	require.ErrorContains(t, err, "WRONGTYPE")
	require.NoError(t, q.Mend(t.Context()))
	require.Zero(t, r.Client.Exists(t.Context(), damaged...).Val())
	require.Equal(t, int64(1), r.Client.Exists(t.Context(), redisconn.QueueKey(redisconn.Jobs, "paused")).Val(), "any type pauses")
	made := redistest.Must(q.Ensure(t.Context(), ts))(t)
	q.sawEarlier(stuckPending)
	require.Equal(t, len(ts), made+redistest.Must(q.Ensure(t.Context(), ts))(t))
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
	redistest.Ensure(t, q, scheduled, pending, archived, late) // the first removal, before this line, found no task `late`
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

// Valkey reports the version of Valkey in a separate field.
func TestReadInfoOfValkey(t *testing.T) {
	t.Parallel()
	var s ServerFacts
	s.readInfo("# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.3\r\nrun_id:abc\r\n" +
		"# Persistence\r\naof_enabled:1\r\n# Memory\r\nused_memory:7\r\nmaxmemory:9\r\n")
	require.Equal(t, ServerFacts{
		Product: "valkey", Version: "7.2.4", Release: "8.1.3", RunID: "abc", AppendOnly: "1", Used: 7, MaxMemory: 9,
	}, s)
}
