package notify

import (
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
	return redistest.Start(t, NewPublisher(r, progressTTL))
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
