package tasks_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/consumer"
	"github.com/forgerun/forgerun/tasks/notify"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// startJobs gives each task that is handled, and the id of each job that is
// canceled.
func startJobs(t *testing.T, r *redisconn.Redis, cfg consumer.Config) (<-chan job.Task, <-chan job.ID) {
	t.Helper()
	handled, canceled := make(chan job.Task, 10_000), make(chan job.ID, 10_000)
	c := consumer.NewJobs(r, cfg, func(_ context.Context, task job.Task) error {
		handled <- task
		return nil
	}, func(id job.ID) { canceled <- id })
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	return handled, canceled
}

// requireSignals signals until a signal comes through.
func requireSignals(t *testing.T, q *queue.Queue, canceled <-chan job.ID) {
	t.Helper()
	id := redistest.Task().JobID
	redistest.Eventually(t, func() bool {
		q.SignalCancel(id)
		select {
		case got := <-canceled:
			return got == id
		default:
			return false
		}
	})
}

// startDeliveries gives the client of each delivery task that is handled.
func startDeliveries(t *testing.T, r *redisconn.Redis, cfg consumer.Config) <-chan job.ID {
	t.Helper()
	handled := make(chan job.ID, 10_000)
	c := consumer.NewDeliveries(r, cfg, func(_ context.Context, client job.ID) error {
		handled <- client
		return nil
	}, nil)
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	return handled
}

// hear waits until the clients are heard, and gives their notifications.
func hear(t *testing.T, r *redisconn.Redis, clients ...job.ID) <-chan job.Notification {
	t.Helper()
	received, resumed := make(chan job.Notification, 10_000), make(chan job.ID, 10_000)
	e := notify.NewEvents(r)
	for _, client := range clients {
		e.Watch(client)
	}
	e.Start(func(n job.Notification) { received <- n }, func(client job.ID) { resumed <- client })
	t.Cleanup(func() { _ = e.Stop(context.Background()) })
	missing := map[job.ID]bool{}
	for _, client := range clients {
		missing[client] = true
	}
	for len(missing) > 0 {
		delete(missing, redistest.Receive(t, resumed, "a client to be heard"))
	}
	return received
}
