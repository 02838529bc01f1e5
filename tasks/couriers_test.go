package tasks

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// startCouriers starts couriers that give the client of each hint.
func startCouriers(t testing.TB, r *Redis, cfg WorkersConfig) <-chan job.ID {
	t.Helper()
	handled := make(chan job.ID, 10000)
	startCouriersWith(t, r, cfg, func(_ context.Context, client job.ID) error {
		handled <- client
		return nil
	})
	return handled
}

func startCouriersWith(t testing.TB, r *Redis, cfg WorkersConfig, handle func(context.Context, job.ID) error) *DeliveryConsumer {
	t.Helper()
	c := NewDeliveryConsumer(r, cfg, handle)
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(c.Stop)
	return c
}

// Workers and couriers leave each other's queue alone.
func TestCouriersConsumeTheirQueueOnly(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{})
	task := newTask()
	dispatchAll(t, q, task)
	clients := newClients(100)
	require.NoError(t, q.WakeDeliveries(t.Context(), clients))
	handled := startCouriers(t, r, WorkersConfig{Concurrency: 8, Servers: 2})
	var got []job.ID
	for range clients {
		got = append(got, receive(t, handled, "a hint"))
	}
	require.ElementsMatch(t, clients, got)
	require.Equal(t, "pending", stateOf(t, r, task))
	eventually(t, func() bool { return len(hintStates(t, r, clients[99])) == 0 }, "a handled hint leaves nothing behind")
	eventually(t, func() bool { return value(r.metrics.hinted.WithLabelValues(resultOK)) == 100 })

	var c collector
	startWorkers(t, r, WorkersConfig{}, c.handle)
	eventually(t, func() bool { return c.has(task) })
	require.Equal(t, 1., value(r.metrics.handled.WithLabelValues(resultOK)))
}

// A handler may have read storage before the event that a hint is about was
// committed.
func TestAHintWhileTheClientIsHandledIsNotLost(t *testing.T) {
	t.Parallel()
	for name, wake := range map[string]func(*Queue, job.ID) error{
		"wake":     func(q *Queue, client job.ID) error { q.WakeDelivery(client); return nil },
		"wake all": func(q *Queue, client job.ID) error { return q.WakeDeliveries(context.Background(), []job.ID{client}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDB(t)
			q := startQueue(t, r, QueueConfig{})
			started, release := make(chan job.ID), make(chan struct{})
			startCouriersWith(t, r, WorkersConfig{Concurrency: 10}, func(_ context.Context, client job.ID) error {
				started <- client
				<-release
				return nil
			})
			t.Cleanup(func() { close(release) }) // before the couriers' Stop
			for range hintNames {
				require.NoError(t, wake(q, anna))
				require.Equal(t, anna, receive(t, started, "the handler"))
			}
			require.Equal(t, []string{"active", "active", "active"}, hintStates(t, r, anna))
			require.NoError(t, wake(q, anna))
			eventually(t, func() bool { return hintsOf(r, resultSpent) == 1 })
			release <- struct{}{}
			eventually(t, func() bool { return hintsOf(r, resultOK) == hintNames })
			eventually(t, func() bool { return value(r.metrics.hinted.WithLabelValues(resultOK)) == 1 })
			eventually(t, func() bool {
				require.NoError(t, wake(q, anna))
				select {
				case <-started:
					return true
				default:
					return false
				}
			}, "a name that became free is used again")
		})
	}
}

func TestCouriersHandleAFailedHintAgain(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	require.NoError(t, NewQueue(r, QueueConfig{}).WakeDeliveries(t.Context(), []job.ID{anna}))
	var tries atomic.Int32
	startCouriersWith(t, r, WorkersConfig{DelayedTaskCheckInterval: 20 * time.Millisecond}, func(context.Context, job.ID) error {
		if tries.Add(1) < 2 {
			return errors.New("no database")
		}
		return nil
	})
	eventually(t, func() bool { return tries.Load() == 2 && len(hintStates(t, r, anna)) == 0 })
	require.Equal(t, 1., value(r.metrics.hinted.WithLabelValues(resultFailed)))
}

// asynq would archive the hint at last and so keep its name taken for months.
func TestAHintThatFailsTooOftenIsForgotten(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{})
	require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{anna}))
	var tries atomic.Int32
	startCouriersWith(t, r, WorkersConfig{}, func(context.Context, job.ID) error {
		tries.Add(1)
		return errors.New("no database")
	})
	eventually(t, func() bool {
		_ = inspector(r).RunTask(queueWebhooks, anna.String()) // without its wait
		return len(hintStates(t, r, anna)) == 0
	})
	require.Equal(t, int32(1+hintRetries), tries.Load())
	depth, err := r.depth(t.Context(), queueWebhooks)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"pending": 0, "active": 0, "scheduled": 0, "retry": 0, "archived": 0, "completed": 0}, depth)
}

func TestCouriersArchiveWhatTheyCannotRead(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	client := asynq.NewClientFromRedisClient(r.client)
	for _, task := range []*asynq.Task{
		asynq.NewTask(hintType, nil),
		asynq.NewTask(hintType, []byte("0190F3A4-7D6E-7C55-8A2B-3D1F5E6A7B8C")),
		asynq.NewTask(hintType, []byte(job.ID{}.String())),
		asynq.NewTask(hintType, []byte(taskName(newTask()))),
		asynq.NewTask(taskType, []byte(anna.String())),
	} {
		_, err := client.Enqueue(task, asynq.Queue(queueWebhooks))
		require.NoError(t, err)
	}
	require.NoError(t, NewQueue(r, QueueConfig{}).WakeDeliveries(t.Context(), []job.ID{bert}))
	handled := startCouriers(t, r, WorkersConfig{})
	require.Equal(t, bert, receive(t, handled, "the good one"))
	eventually(t, func() bool {
		depth, err := r.depth(t.Context(), queueWebhooks)
		return err == nil && depth["archived"] == 5 && depth["active"] == 0
	})
	require.Equal(t, 5., value(r.metrics.hinted.WithLabelValues(resultBad)))
	require.Empty(t, handled)
}

func TestCouriersStop(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{})
	require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{anna}))
	started, release := make(chan struct{}), make(chan struct{})
	c := startCouriersWith(t, r, WorkersConfig{ShutdownTimeout: 50 * time.Millisecond}, func(context.Context, job.ID) error {
		close(started)
		<-release
		return nil
	})
	t.Cleanup(func() { close(release) })
	receive(t, started, "the handler")
	c.Quiet()
	require.NoError(t, q.WakeDeliveries(t.Context(), []job.ID{bert}))
	c.Stop()
	c.Stop()
	require.Equal(t, []string{"pending"}, hintStates(t, r, anna), "put back")
	require.Equal(t, []string{"pending"}, hintStates(t, r, bert))

	unused := NewDeliveryConsumer(r, WorkersConfig{}, func(context.Context, job.ID) error { return nil })
	unused.Stop()
	require.NoError(t, unused.Start(t.Context()))
	require.Empty(t, unused.servers)
}

func TestCouriersSurviveRedis(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	require.NoError(t, server.Stop())
	r := connect(t, server.URL())
	q := startQueue(t, r, QueueConfig{})
	handled := startCouriers(t, r, WorkersConfig{})
	for range 2 {
		require.NoError(t, server.Start(t.Context()))
		eventually(t, func() bool {
			q.WakeDelivery(anna)
			select {
			case <-handled:
				return true
			default:
				return false
			}
		})
		require.NoError(t, server.Kill())
	}
}
