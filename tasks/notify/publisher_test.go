package notify

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// notificationsOf is how many notifications of a result were counted.
func notificationsOf(r *redisconn.Redis, result string) float64 {
	return testutil.ToFloat64(r.Metrics.Notifications.WithLabelValues(result))
}

func startPublisher(t testing.TB, r *redisconn.Redis) *Publisher {
	return startPublisherFor(t, r, time.Hour)
}

func startPublisherFor(t testing.TB, r *redisconn.Redis, progressTTL time.Duration) *Publisher {
	t.Helper()
	p := NewPublisher(r, progressTTL)
	p.Start()
	t.Cleanup(func() { _ = p.Stop(context.Background()) })
	return p
}

// What waits for the publisher goes as one message a client.
func TestNotificationsAreMerged(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	clients := [2]job.ID{redistest.Task().JobID, redistest.Task().JobID}
	pubsub := r.Client.Subscribe(t.Context(), eventChannel(clients[0]), eventChannel(clients[1]))
	t.Cleanup(func() { _ = pubsub.Close() })
	for range clients {
		_, err := pubsub.Receive(t.Context())
		require.NoError(t, err)
	}
	p := NewPublisher(r, time.Hour)
	ids := [3]job.ID{redistest.Task().JobID, redistest.Task().JobID, redistest.Task().JobID}
	for percentage := range 100 {
		for i, id := range ids {
			p.Publish(job.Notification{ClientID: clients[i%2], JobID: id, Attempt: 1, Progress: &job.Progress{Percentage: percentage}})
		}
	}
	p.Start()
	t.Cleanup(func() { _ = p.Stop(context.Background()) })
	for i, jobs := range [][]job.ID{{ids[0], ids[2]}, {ids[1]}} {
		m, err := pubsub.ReceiveMessage(t.Context())
		require.NoError(t, err)
		require.Equal(t, eventChannel(clients[i]), m.Channel)
		lines := strings.Split(strings.TrimSuffix(m.Payload, "\n"), "\n")
		require.Len(t, lines, len(jobs))
		for k, line := range lines {
			n, err := parseLine(clients[i], line)
			require.NoError(t, err)
			require.Equal(t, jobs[k], n.JobID)
			require.Equal(t, 99, n.Progress.Percentage)
		}
	}
	redistest.Eventually(t, func() bool { return notificationsOf(r, redisconn.ResultOK) == 300 })
}

// Nobody reads the buffer of a publisher that was not started, so a call that waited
// would wait for ever.
func TestPublishNeverWaits(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	p := NewPublisher(r, time.Hour)
	for range publishBuffer + 3 {
		p.Publish(event(first))
	}
	require.Equal(t, 3., notificationsOf(r, redisconn.ResultDropped))
	require.NoError(t, p.Stop(t.Context()))
	p.Publish(event(first))
	require.Equal(t, 4., notificationsOf(r, redisconn.ResultDropped))
}

func TestPublishWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	require.NoError(t, server.Stop())
	r := redistest.Connect(t, server.URL())
	p := startPublisher(t, r)
	const total = 5 * publishBuffer
	for range total {
		p.Publish(event(redistest.Task().JobID))
	}
	accounted := func() float64 {
		return notificationsOf(r, redisconn.ResultFailed) + notificationsOf(r, redisconn.ResultSkipped) +
			notificationsOf(r, redisconn.ResultDropped)
	}
	redistest.Eventually(t, func() bool { return accounted() == total }, "nothing waits for Redis")
	require.Positive(t, notificationsOf(r, redisconn.ResultFailed))
	require.Positive(t, notificationsOf(r, redisconn.ResultSkipped))
	require.False(t, p.signals.cfg.Circuit.IsOpen(), "signals have a circuit of their own")

	require.NoError(t, server.Start(t.Context()))
	redistest.Eventually(t, func() bool {
		p.Publish(event(first))
		return notificationsOf(r, redisconn.ResultOK) > 0
	})
}

func TestPublishWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	p := startPublisher(t, r)
	require.NoError(t, server.Pause())
	for range 2 * maxPublished {
		p.Publish(event(redistest.Task().JobID))
	}
	redistest.Eventually(t, func() bool {
		return notificationsOf(r, redisconn.ResultFailed)+notificationsOf(r, redisconn.ResultSkipped) == 2*maxPublished
	})
	require.NoError(t, server.Resume())
	redistest.Eventually(t, func() bool {
		p.Publish(event(first))
		return notificationsOf(r, redisconn.ResultOK) > 0
	})
}

// A Redis that takes no more data still passes notifications on.
func TestNotificationsWhileRedisIsFull(t *testing.T) {
	t.Parallel()
	r := redistest.Connect(t, redistest.Own(t).URL())
	p := startPublisher(t, r)
	client := redistest.Task().JobID
	h := hear(t, r, client)
	require.NoError(t, r.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	n := progressOf(1, 10)
	n.ClientID = client
	p.Publish(n)
	require.Equal(t, n, redistest.Receive(t, h.events, "progress"))
	redistest.Eventually(t, func() bool { return notificationsOf(r, redisconn.ResultOK) == 1 })
	require.Equal(t, 1., testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("progress")))
	require.Nil(t, p.Progress(t.Context(), first, 1))
	require.False(t, p.events.cfg.Circuit.IsOpen())
}

func TestStopSendsNotifications(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	client := redistest.Task().JobID
	h := hear(t, r, client)
	p := NewPublisher(r, time.Hour)
	const total = 2*maxPublished + 7
	for range total {
		p.Publish(job.Notification{ClientID: client, JobID: redistest.Task().JobID, Attempt: 1, Progress: &job.Progress{}})
	}
	p.Start()
	require.NoError(t, p.Stop(t.Context()))
	require.Equal(t, float64(total), notificationsOf(r, redisconn.ResultOK))
	for range total {
		redistest.Receive(t, h.events, "a notification")
	}
	require.Equal(t, int64(total), r.Client.DBSize(t.Context()).Val(), "nothing but progress")
}

func TestStopDropsNotificationsWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	redistest.Eventually(t, func() bool { return r.Ping(t.Context()) == nil })
	require.NoError(t, server.Pause())
	p := NewPublisher(r, time.Hour)
	for range 5 * maxPublished {
		p.Publish(event(first))
	}
	p.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Stop(ctx), context.DeadlineExceeded)
	p.events.running.Wait()
	require.Equal(t, 4.*maxPublished, notificationsOf(r, redisconn.ResultDropped))
}
