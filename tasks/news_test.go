package tasks

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// newsOf is how many news of a result were counted.
func newsOf(r *Redis, result string) float64 { return value(r.metrics.news.WithLabelValues(result)) }

// What waits for the queue goes as one message a client.
func TestNewsAreMerged(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	clients := [2]job.ID{newTask().JobID, newTask().JobID}
	pubsub := r.client.Subscribe(t.Context(), newsChannel(clients[0]), newsChannel(clients[1]))
	t.Cleanup(func() { _ = pubsub.Close() })
	for range clients {
		_, err := pubsub.Receive(t.Context())
		require.NoError(t, err)
	}
	q := NewQueue(r, QueueConfig{})
	ids := [3]job.ID{newTask().JobID, newTask().JobID, newTask().JobID}
	for percentage := range 100 {
		for i, id := range ids {
			q.Publish(job.Notification{ClientID: clients[i%2], JobID: id, Attempt: 1, Progress: &job.Progress{Percentage: percentage}})
		}
	}
	q.Start()
	t.Cleanup(func() { _ = q.Stop(context.Background()) })
	for i, jobs := range [][]job.ID{{ids[0], ids[2]}, {ids[1]}} {
		m, err := pubsub.ReceiveMessage(t.Context())
		require.NoError(t, err)
		require.Equal(t, newsChannel(clients[i]), m.Channel)
		lines := strings.Split(strings.TrimSuffix(m.Payload, "\n"), "\n")
		require.Len(t, lines, len(jobs))
		for k, line := range lines {
			n, err := parseNews(clients[i], line)
			require.NoError(t, err)
			require.Equal(t, jobs[k], n.JobID)
			require.Equal(t, 99, n.Progress.Percentage)
		}
	}
	eventually(t, func() bool { return newsOf(r, resultOK) == 300 })
}

// Nobody reads the buffer of a queue that was not started, so a call that waited
// would wait for ever.
func TestAnnounceNeverWaits(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{})
	for range newsBuffer + 3 {
		q.Publish(eventNews(first))
	}
	require.Equal(t, 3., newsOf(r, resultDropped))
	require.NoError(t, q.Stop(t.Context()))
	q.Publish(eventNews(first))
	require.Equal(t, 4., newsOf(r, resultDropped))
}

func TestAnnounceWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	require.NoError(t, server.Stop())
	r := connect(t, server.URL())
	q := startQueue(t, r, QueueConfig{})
	const total = 5 * newsBuffer
	for range total {
		q.Publish(eventNews(newTask().JobID))
	}
	accounted := func() float64 {
		return newsOf(r, resultFailed) + newsOf(r, resultSkipped) + newsOf(r, resultDropped)
	}
	eventually(t, func() bool { return accounted() == total }, "nothing waits for Redis")
	require.Positive(t, newsOf(r, resultFailed))
	require.Positive(t, newsOf(r, resultSkipped))
	require.False(t, q.circuit.isOpen(), "enqueueing has its own troubles")

	require.NoError(t, server.Start(t.Context()))
	eventually(t, func() bool {
		q.Publish(eventNews(first))
		return newsOf(r, resultOK) > 0
	})
}

func TestAnnounceWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	r := connectHanging(t, server.URL())
	q := startQueue(t, r, QueueConfig{})
	require.NoError(t, server.Pause())
	for range 2 * maxNews {
		q.Publish(eventNews(newTask().JobID))
	}
	eventually(t, func() bool { return newsOf(r, resultFailed)+newsOf(r, resultSkipped) == 2*maxNews })
	require.NoError(t, server.Resume())
	eventually(t, func() bool {
		q.Publish(eventNews(first))
		return newsOf(r, resultOK) > 0
	})
}

// A Redis that takes no more data still passes news on.
func TestNewsWhileRedisIsFull(t *testing.T) {
	t.Parallel()
	r := connect(t, ownRedis(t).URL())
	q := startQueue(t, r, QueueConfig{})
	client := newTask().JobID
	h := hear(t, r, client)
	require.NoError(t, r.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	n := progressNews(1, 10)
	n.ClientID = client
	q.Publish(n)
	require.Equal(t, n, receive(t, h.news, "progress"))
	eventually(t, func() bool { return newsOf(r, resultOK) == 1 })
	require.Equal(t, 1., value(r.metrics.errors.WithLabelValues("progress")))
	require.Nil(t, q.Progress(t.Context(), first, 1))
	require.False(t, q.telling.isOpen())
}

func TestQueueStopSendsNews(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	client := newTask().JobID
	h := hear(t, r, client)
	q := NewQueue(r, QueueConfig{})
	const total = 2*maxNews + 7
	for range total {
		q.Publish(job.Notification{ClientID: client, JobID: newTask().JobID, Attempt: 1, Progress: &job.Progress{}})
	}
	q.Start()
	require.NoError(t, q.Stop(t.Context()))
	require.Equal(t, float64(total), newsOf(r, resultOK))
	for range total {
		receive(t, h.news, "news")
	}
	require.Equal(t, int64(total+1), r.client.DBSize(t.Context()).Val(), "and the set of queues")
}

func TestQueueStopDropsNewsWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	r := connectHanging(t, server.URL())
	eventually(t, func() bool { return r.Ping(t.Context()) == nil })
	require.NoError(t, server.Pause())
	q := NewQueue(r, QueueConfig{})
	for range 5 * maxNews {
		q.Publish(eventNews(first))
	}
	q.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, q.Stop(ctx), context.DeadlineExceeded)
	q.running.Wait()
	require.Equal(t, 4.*maxNews, newsOf(r, resultDropped))
}
