package notify

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// requireProgress waits until the progress can be read.
func requireProgress(t *testing.T, p *Publisher, id job.ID, attempt int, want *job.Progress) {
	t.Helper()
	redistest.Eventually(t, func() bool {
		got := p.Progress(t.Context(), id, attempt)
		return got != nil && *got == *want
	})
}

func TestProgress(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	p := startPublisherFor(t, r, 20*time.Minute)
	ctx, key := t.Context(), progressKey(first)
	require.Nil(t, p.Progress(ctx, first, 1))
	want := &job.Progress{
		Percentage: 30, Phase: "RENDERING", StepsCompleted: 3, StepsTotal: 10, ItemsProcessed: 299, ItemsTotal: 1000,
		UpdatedAt: time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC),
	}
	n := job.Notification{ClientID: anna, JobID: first, Attempt: 2, Progress: want}
	p.Publish(n)
	requireProgress(t, p, first, 2, want)
	require.Nil(t, p.Progress(ctx, first, 1))
	require.Nil(t, p.Progress(ctx, first, 3))
	require.Nil(t, p.Progress(ctx, other, 2))
	require.InDelta(t, 1200, r.Client.TTL(ctx, key).Val().Seconds(), 60)

	p.Publish(end(1)) // another process may tell late
	n.Progress = &job.Progress{Percentage: 29}
	p.Publish(n)
	redistest.Eventually(t, func() bool { return notificationsOf(r, redisconn.ResultOK) == 3 })
	requireProgress(t, p, first, 2, want)
	require.Greater(t, r.Client.TTL(ctx, key).Val(), time.Minute)

	p.Publish(end(2))
	redistest.Eventually(t, func() bool { return r.Client.TTL(ctx, key).Val() <= progressRest })
	requireProgress(t, p, first, 2, want)
	require.NoError(t, r.Client.PExpire(ctx, key, time.Millisecond).Err())
	redistest.Eventually(t, func() bool { return p.Progress(ctx, first, 2) == nil && r.Client.Exists(ctx, key).Val() == 0 })
}

// The end that another process tells of, such as a cancel, changes no key.
func TestEndOfAnAttemptElsewhere(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	worker, api := startPublisher(t, r), startPublisher(t, r)
	worker.Publish(progressOf(1, 10))
	requireProgress(t, worker, first, 1, &job.Progress{Percentage: 10})
	api.Publish(end(1))
	redistest.Eventually(t, func() bool { return notificationsOf(r, redisconn.ResultOK) == 2 })
	require.Greater(t, r.Client.TTL(t.Context(), progressKey(first)).Val(), time.Minute)
}

func TestGarbageIsNoProgress(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	p := NewPublisher(r, time.Hour)
	ctx, key := t.Context(), progressKey(first)
	for _, value := range []string{
		"", "1", "null", "{", `{"attempt":1}`, `{"attempt":1,"progress":null}`, `{"attempt":1,"progress":[]}`,
		`{"attempt":1,"progress":{"percentage":101}}`, `{"attempt":1,"progress":{"percentage":-1}}`,
		`{"attempt":1,"progress":{"percentage":"9"}}`, `{"attempt":"1","progress":{}}`, `{"attempt":1,"progress":{}}{}`,
	} {
		require.NoError(t, r.Client.Set(ctx, key, value, 0).Err())
		require.Nil(t, p.Progress(ctx, first, 1), value)
	}
	require.NoError(t, r.Client.Set(ctx, key, `{"attempt":1,"progress":{"percentage":7}}`, 0).Err())
	requireProgress(t, p, first, 1, &job.Progress{Percentage: 7})

	require.NoError(t, r.Client.Del(ctx, key).Err())
	require.NoError(t, r.Client.LPush(ctx, key, "x").Err())
	redistest.Eventually(t, func() bool {
		require.Nil(t, p.Progress(ctx, first, 1))
		return testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("progress")) > 0
	})
}

// A Redis that is gone or hangs costs the first reader a moment and the others
// nothing.
func TestProgressWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	p := startPublisher(t, r)
	p.Publish(progressOf(1, 10))
	requireProgress(t, p, first, 1, &job.Progress{Percentage: 10})

	require.NoError(t, server.Pause())
	for range 1000 {
		require.Nil(t, p.Progress(t.Context(), first, 1))
	}
	require.Less(t, testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("progress")), 10., "few ask")
	require.True(t, p.reading.IsOpen())
	require.False(t, p.events.cfg.Circuit.IsOpen(), "slow reading does not end publishing")
	require.False(t, p.signals.cfg.Circuit.IsOpen())
	require.NoError(t, server.Resume())
	requireProgress(t, p, first, 1, &job.Progress{Percentage: 10})

	require.NoError(t, server.Kill())
	require.Nil(t, p.Progress(t.Context(), first, 1))
	require.NoError(t, server.Start(t.Context()))
	p.Publish(progressOf(1, 20))
	redistest.Eventually(t, func() bool { // the one before may have been lost with the restart
		p.Publish(progressOf(1, 20))
		return p.Progress(t.Context(), first, 1) != nil
	})
}

// A reader who goes away says nothing about Redis.
func TestProgressForNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	p := NewPublisher(r, time.Hour)
	redistest.Eventually(t, func() bool { return r.Ping(t.Context()) == nil })
	require.NoError(t, server.Pause())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Nil(t, p.Progress(gone, first, 1))
	hasty, cancel := context.WithTimeout(t.Context(), progressWait/20)
	defer cancel()
	require.Nil(t, p.Progress(hasty, first, 1))
	require.False(t, p.reading.IsOpen())
	require.NoError(t, server.Resume())
}
