package tasks

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// requireProgress waits until the progress can be read.
func requireProgress(t *testing.T, q *Queue, id job.ID, attempt int, want *job.Progress) {
	t.Helper()
	eventually(t, func() bool {
		got := q.Progress(t.Context(), id, attempt)
		return got != nil && *got == *want
	})
}

func TestProgress(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := startQueue(t, r, QueueConfig{MaxTaskTime: 20 * time.Minute})
	ctx, key := t.Context(), progressKey(first)
	require.Nil(t, q.Progress(ctx, first, 1))
	p := &job.Progress{
		Percentage: 30, Phase: "RENDERING", StepsCompleted: 3, StepsTotal: 10, ItemsProcessed: 299, ItemsTotal: 1000,
		UpdatedAt: time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC),
	}
	n := job.Notification{ClientID: anna, JobID: first, Attempt: 2, Progress: p}
	q.Publish(n)
	requireProgress(t, q, first, 2, p)
	require.Nil(t, q.Progress(ctx, first, 1))
	require.Nil(t, q.Progress(ctx, first, 3))
	require.Nil(t, q.Progress(ctx, other, 2))
	require.InDelta(t, 1200, r.client.TTL(ctx, key).Val().Seconds(), 60)

	q.Publish(endNews(1)) // another process may tell late
	n.Progress = &job.Progress{Percentage: 29}
	q.Publish(n)
	eventually(t, func() bool { return newsOf(r, resultOK) == 3 })
	requireProgress(t, q, first, 2, p)
	require.Greater(t, r.client.TTL(ctx, key).Val(), time.Minute)

	q.Publish(endNews(2))
	eventually(t, func() bool { return r.client.TTL(ctx, key).Val() <= progressRest })
	requireProgress(t, q, first, 2, p)
	require.NoError(t, r.client.PExpire(ctx, key, time.Millisecond).Err())
	eventually(t, func() bool { return q.Progress(ctx, first, 2) == nil && r.client.Exists(ctx, key).Val() == 0 })
}

// The end that another process tells of, such as a cancel, changes no key.
func TestEndOfAnAttemptElsewhere(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	worker, api := startQueue(t, r, QueueConfig{}), startQueue(t, r, QueueConfig{})
	worker.Publish(progressNews(1, 10))
	requireProgress(t, worker, first, 1, &job.Progress{Percentage: 10})
	api.Publish(endNews(1))
	eventually(t, func() bool { return newsOf(r, resultOK) == 2 })
	require.Greater(t, r.client.TTL(t.Context(), progressKey(first)).Val(), time.Minute)
}

func TestGarbageIsNoProgress(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{})
	ctx, key := t.Context(), progressKey(first)
	for _, value := range []string{
		"", "1", "null", "{", `{"attempt":1}`, `{"attempt":1,"progress":null}`, `{"attempt":1,"progress":[]}`,
		`{"attempt":1,"progress":{"percentage":101}}`, `{"attempt":1,"progress":{"percentage":-1}}`,
		`{"attempt":1,"progress":{"percentage":"9"}}`, `{"attempt":"1","progress":{}}`, `{"attempt":1,"progress":{}}{}`,
	} {
		require.NoError(t, r.client.Set(ctx, key, value, 0).Err())
		require.Nil(t, q.Progress(ctx, first, 1), value)
	}
	require.NoError(t, r.client.Set(ctx, key, `{"attempt":1,"progress":{"percentage":7}}`, 0).Err())
	requireProgress(t, q, first, 1, &job.Progress{Percentage: 7})

	require.NoError(t, r.client.Del(ctx, key).Err())
	require.NoError(t, r.client.LPush(ctx, key, "x").Err())
	eventually(t, func() bool {
		require.Nil(t, q.Progress(ctx, first, 1))
		return value(r.metrics.errors.WithLabelValues("progress")) > 0
	})
}

func TestProgressAfterAFlush(t *testing.T) {
	t.Parallel()
	r := connect(t, ownRedis(t).URL())
	q := startQueue(t, r, QueueConfig{})
	q.Publish(progressNews(1, 10))
	requireProgress(t, q, first, 1, &job.Progress{Percentage: 10})
	require.NoError(t, r.client.FlushAll(t.Context()).Err())
	require.Nil(t, q.Progress(t.Context(), first, 1))
	q.Publish(progressNews(1, 20))
	requireProgress(t, q, first, 1, &job.Progress{Percentage: 20})
}

// A Redis that is gone or hangs costs the first reader a moment and the others
// nothing.
func TestProgressWithoutRedis(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	r := connectHanging(t, server.URL())
	q := startQueue(t, r, QueueConfig{})
	q.Publish(progressNews(1, 10))
	requireProgress(t, q, first, 1, &job.Progress{Percentage: 10})

	require.NoError(t, server.Pause())
	began := time.Now()
	const readers = 10_000
	for range readers {
		require.Nil(t, q.Progress(t.Context(), first, 1))
	}
	require.Less(t, time.Since(began), readers*progressWait/100)
	require.True(t, q.reading.isOpen())
	require.False(t, q.circuit.isOpen(), "slow reading does not end enqueueing")
	require.False(t, q.telling.isOpen())
	require.NoError(t, server.Resume())
	requireProgress(t, q, first, 1, &job.Progress{Percentage: 10})

	require.NoError(t, server.Kill())
	require.Nil(t, q.Progress(t.Context(), first, 1))
	require.NoError(t, server.Start(t.Context()))
	q.Publish(progressNews(1, 20))
	eventually(t, func() bool { // the one before may have been lost with the restart
		q.Publish(progressNews(1, 20))
		return q.Progress(t.Context(), first, 1) != nil
	})
}

// A reader who goes away says nothing about Redis.
func TestProgressForNobody(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	r := connectHanging(t, server.URL())
	q := NewQueue(r, QueueConfig{})
	eventually(t, func() bool { return r.Ping(t.Context()) == nil })
	require.NoError(t, server.Pause())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Nil(t, q.Progress(gone, first, 1))
	hasty, cancel := context.WithTimeout(t.Context(), progressWait/20)
	defer cancel()
	require.Nil(t, q.Progress(hasty, first, 1))
	require.False(t, q.reading.isOpen())
	require.NoError(t, server.Resume())
}
