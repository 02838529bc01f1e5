package consumer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// startDeliveries gives the client of each task that is handled.
func startDeliveries(t testing.TB, r *redisconn.Redis, cfg Config) <-chan job.ID {
	t.Helper()
	handled := make(chan job.ID, 10000)
	startDeliveriesWith(t, r, cfg, func(_ context.Context, client job.ID) error {
		handled <- client
		return nil
	})
	return handled
}

func startDeliveriesWith(t testing.TB, r *redisconn.Redis, cfg Config, handle func(context.Context, job.ID) error) *Consumer {
	t.Helper()
	c := NewDeliveries(r, cfg, handle, nil)
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	return c
}

// countedTasks is what asynq's statistics say of the queue.
func countedTasks(t testing.TB, r *redisconn.Redis) int {
	t.Helper()
	info := redistest.Must(inspector(r).GetQueueInfo(redisconn.Webhooks))(t)
	return info.Processed + info.Failed + info.ProcessedTotal + info.FailedTotal
}

// The time of a next attempt comes as a task, of which consumers are told; it leaves no statistics.
func TestAttemptsAreBegunByTheirTasks(t *testing.T) {
	t.Parallel()
	r := redistest.Connect(t, redistest.Own(t).URL())
	q := redistest.Start(t, queue.New(r, queue.Config{}))
	tried, fail := make(chan job.EndpointKey, 100), atomic.Bool{}
	c := NewDeliveries(r, Config{Concurrency: 4, TaskCheckInterval: never}, nil, func(_ context.Context, at job.EndpointKey) error {
		tried <- at
		if fail.CompareAndSwap(true, false) {
			return errors.New("no room")
		}
		return nil
	})
	listening(t, r, redisconn.Webhooks, func() { require.NoError(t, c.Start(t.Context())) })
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	schedule := func(endpoint job.ID, after time.Duration) time.Time {
		at := time.Now().Add(after)
		n, err := q.ScheduleDeliveries(t.Context(), []job.Delivery{{
			ID: redistest.Task().JobID, ClientID: anna, Endpoint: endpoint, State: job.DeliveryPending, Attempts: 1, NextAttemptAt: &at,
		}})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		return at
	}
	at := schedule(anna, 400*time.Millisecond)
	require.Equal(t, job.EndpointKey{Client: anna, Endpoint: anna}, redistest.Receive(t, tried, "the attempt"))
	require.False(t, time.Now().Before(at), "never before its time")

	fail.Store(true)
	schedule(bert, -time.Second)
	require.Equal(t, bert, redistest.Receive(t, tried, "what was due before").Endpoint)
	require.Equal(t, bert, redistest.Receive(t, tried, "the same again").Endpoint)
	redistest.Eventually(t, func() bool {
		depth, err := r.Depth(t.Context(), redisconn.Webhooks)
		return err == nil && depth["active"]+depth["scheduled"]+depth["pending"]+depth["retry"]+depth["archived"] == 0
	})
	require.Zero(t, countedTasks(t, r))
}

// The consumers leave each other's queue alone.
func TestDeliveriesConsumeTheirQueueOnly(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := queue.New(r, queue.Config{})
	task := redistest.Task()
	redistest.Dispatch(t, q, task)
	clients := redistest.IDs(100)
	require.NoError(t, q.WakeDeliveries(t.Context(), clients))
	handled := startDeliveries(t, r, Config{Concurrency: 8, Servers: 2})
	var got []job.ID
	for range clients {
		got = append(got, redistest.Receive(t, handled, "a client"))
	}
	require.ElementsMatch(t, clients, got)
	require.Equal(t, "pending", redistest.JobState(t, r, task))
	redistest.Eventually(t, func() bool { return len(redistest.DeliveryStates(t, r, clients[99])) == 0 }, "nothing is left behind")
	redistest.Eventually(t, func() bool { return testutil.ToFloat64(r.Metrics.Woken.WithLabelValues(redisconn.ResultOK)) == 100 })
	require.Zero(t, countedTasks(t, r), "only attempts to deliver are counted")

	var c collector
	startWorkers(t, r, Config{}, c.handle)
	redistest.Eventually(t, func() bool { return c.has(task) })
	require.Equal(t, 1., testutil.ToFloat64(r.Metrics.Handled.WithLabelValues(redisconn.ResultOK)))
}

// A handler may have read storage before the event that a task is about was committed.
func TestAWakeUpWhileTheClientIsHandledIsNotLost(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := redistest.Start(t, queue.New(r, queue.Config{}))
	wake := func() { require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{anna})) }
	started, release := make(chan job.ID), make(chan struct{})
	startDeliveriesWith(t, r, Config{Concurrency: 10}, func(_ context.Context, client job.ID) error {
		started <- client
		<-release
		return nil
	})
	t.Cleanup(func() { close(release) }) // before the consumer's Stop
	for range deliveryNames {
		wake()
		require.Equal(t, anna, redistest.Receive(t, started, "the handler"))
	}
	require.Equal(t, []string{"active", "active", "active"}, redistest.DeliveryStates(t, r, anna))
	wake()
	require.Equal(t, 1., redistest.WakeUps(r, redisconn.ResultUsed))
	release <- struct{}{}
	redistest.Eventually(t, func() bool { return testutil.ToFloat64(r.Metrics.Woken.WithLabelValues(redisconn.ResultOK)) == 1 })
	redistest.Eventually(t, func() bool {
		wake()
		select {
		case <-started:
			return true
		default:
			return false
		}
	}, "a name that became free is used again")
}

// asynq would archive the task at last, keep its name taken for months, and count what is no attempt to deliver.
func TestADeliveryTaskThatFailsOftenIsNeitherArchivedNorCounted(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := queue.New(r, queue.Config{})
	require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{anna}))
	var tries atomic.Int32
	startDeliveriesWith(t, r, Config{}, func(context.Context, job.ID) error {
		if tries.Add(1) <= 20 {
			return errors.New("no database")
		}
		return nil
	})
	redistest.Eventually(t, func() bool {
		_ = inspector(r).RunTask(redisconn.Webhooks, anna.String()) // without its wait
		return len(redistest.DeliveryStates(t, r, anna)) == 0
	})
	require.Equal(t, int32(21), tries.Load())
	require.Zero(t, countedTasks(t, r))
	depth := redistest.Must(r.Depth(t.Context(), redisconn.Webhooks))(t)
	require.Equal(t, map[string]int64{"pending": 0, "active": 0, "scheduled": 0, "retry": 0, "archived": 0, "completed": 0}, depth)
}

func TestDeliveriesArchiveWhatTheyCannotRead(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	client := asynq.NewClientFromRedisClient(r.Client)
	for _, task := range []*asynq.Task{
		asynq.NewTask(queue.DeliveryTask, nil),
		asynq.NewTask(queue.DeliveryTask, []byte(anna.String())),
		asynq.NewTask(queue.DeliveryTask, []byte(`{"client":"0190F3A4-7D6E-7C55-8A2B-3D1F5E6A7B8C"}`)),
		asynq.NewTask(queue.DeliveryTask, []byte(`{"client":"`+job.ID{}.String()+`"}`)),
		asynq.NewTask(queue.JobTask, []byte(`{"client":"`+anna.String()+`"}`)),
	} {
		redistest.Must(client.Enqueue(task, asynq.Queue(redisconn.Webhooks)))(t)
	}
	require.NoError(t, queue.New(r, queue.Config{}).WakeDeliveries(t.Context(), []job.ID{bert}))
	handled := startDeliveries(t, r, Config{})
	require.Equal(t, bert, redistest.Receive(t, handled, "the good one"))
	redistest.Eventually(t, func() bool {
		depth, err := r.Depth(t.Context(), redisconn.Webhooks)
		return err == nil && depth["archived"] == 5 && depth["active"] == 0
	})
	require.Equal(t, 5., testutil.ToFloat64(r.Metrics.Woken.WithLabelValues(redisconn.ResultBad)))
	require.Empty(t, handled)
}
