package ratelimit

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestLimiterWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct {
		fault, heal func(*stack.Redis) error
		slack       int // requests that Redis counts although its response was lost
	}{
		"down":  {fault: (*stack.Redis).Kill, heal: func(s *stack.Redis) error { return s.Start(t.Context()) }},
		"hangs": {fault: (*stack.Redis).Pause, heal: (*stack.Redis).Resume, slack: 2 * 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Own(t)
			r := redistest.ConnectHanging(t, server.URL())
			cfg := Config{PerMinute: 100, PerDay: 1000}
			a, b := newLimiter(t, r, cfg), newLimiter(t, r, cfg)
			require.Equal(t, 100, hammer(t, redistest.Task().JobID, a, b), "shared")
			client := redistest.Task().JobID
			a.cfg.Wait, b.cfg.Wait = 50*time.Millisecond, 50*time.Millisecond
			openConnections(r, 10)

			require.NoError(t, how.fault(server))
			require.Equal(t, 100, hammer(t, client, a))
			require.Equal(t, 100, hammer(t, client, b))
			require.True(t, a.circuit.IsOpen())
			refused := a.Allow(t.Context(), client)
			require.Positive(t, refused.RetryAfter)
			require.LessOrEqual(t, refused.RetryAfter, minute+slotWidth)
			require.Equal(t, 1., testutil.ToFloat64(r.Metrics.RateLimitAlone))
			// Three requests to Redis fail: the first one of each process, and a probe. A hanging Redis executes these requests later.
			redistest.Eventually(t, func() bool {
				a.Allow(t.Context(), client)
				return testutil.ToFloat64(r.Metrics.Grants.WithLabelValues(redisconn.ResultFailed)) >= 3
			})

			require.NoError(t, how.heal(server))
			requireShared(t, a)
			requireShared(t, b)
			used := redistest.Must(r.Client.HGet(t.Context(), limiterKey(client), "used").Int())(t)
			require.GreaterOrEqual(t, used, 200, "the quota is corrected afterwards")
			require.LessOrEqual(t, used, 200+how.slack)
			a.cfg.Wait, b.cfg.Wait = redistest.Within, redistest.Within
			third := newLimiter(t, r, cfg)
			require.Zero(t, hammer(t, client, third), "requests that passed without Redis count for the minute")
			require.Equal(t, 100, hammer(t, redistest.Task().JobID, a, b, third), "shared again")
		})
	}
}

// openConnections makes connections before Redis hangs, because a hanging Redis later executes commands only from existing connections.
func openConnections(r *redisconn.Redis, n int) {
	var blocked sync.WaitGroup
	for range n {
		blocked.Go(func() { r.Client.BLPop(context.Background(), 200*time.Millisecond, "nothing") })
	}
	blocked.Wait()
}

func requireShared(t *testing.T, l *Limiter) {
	t.Helper()
	redistest.Eventually(t, func() bool {
		l.sweep()
		l.asking.Wait()
		reported := !l.circuit.IsOpen()
		l.mu.RLock()
		defer l.mu.RUnlock()
		for _, c := range l.clients {
			c.mu.Lock()
			reported = reported && c.bucket.owed == 0
			c.mu.Unlock()
		}
		return reported
	})
}

func TestLimiterDoesNotWaitForASlowRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	l := newLimiter(t, r, Config{PerMinute: 1000})
	require.NoError(t, server.Pause())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.True(t, l.Allow(ctx, job.ID{1}).OK, "a canceled request is decided immediately")
	require.False(t, l.circuit.IsOpen(), "a canceled request does not open the circuit")
	l.cfg.Wait = time.Millisecond
	require.True(t, l.Allow(t.Context(), job.ID{1}).OK)
	require.True(t, l.circuit.IsOpen())
	require.NoError(t, server.Resume())
	requireShared(t, l)
}

func TestLimiterAfterAFlush(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := redistest.Task().JobID
	a, b := w.process(Config{PerMinute: 300}, 0), w.process(Config{PerMinute: 300}, 0)
	require.Equal(t, 300, hammer(t, client, a))
	w.mini.FlushAll()
	require.Zero(t, hammer(t, client, a))
	require.Equal(t, 300, hammer(t, client, b))
	w.advance(whole)
	require.Equal(t, 300, hammer(t, client, a, b))
}

// If Redis' clock goes back, no additional requests pass, and refused requests do not have to wait longer.
func TestTheClockOfRedisGoesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := redistest.Task().JobID
	l := w.process(Config{PerMinute: 60}, 0)
	require.Equal(t, 60, hammer(t, client, l))
	w.mini.SetTime(noon.Add(-time.Hour))
	other := w.process(Config{PerMinute: 60}, 0)
	refused := other.Allow(t.Context(), client)
	require.False(t, refused.OK)
	require.LessOrEqual(t, refused.RetryAfter, whole)
	w.mini.SetTime(noon.Add(-time.Hour + whole))
	w.us.Add(whole.Microseconds())
	require.Equal(t, 60, hammer(t, client, other))
}

func TestReturnOfMissingTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := redistest.Task().JobID
	a, b := w.process(Config{PerMinute: 6000}, 0), w.process(Config{PerMinute: 6000}, 0)
	require.True(t, a.Allow(t.Context(), client).OK)
	w.advance(keepHeld)
	w.mini.FlushAll()
	require.Equal(t, 6000, hammer(t, client, b))
	w.sweep()
	require.Zero(t, hammer(t, client, b))

	require.True(t, a.Allow(t.Context(), redistest.Task().JobID).OK)
	w.advance(2 * whole)
	require.Equal(t, 6000, hammer(t, client, b))
	w.sweep()
	require.Zero(t, hammer(t, client, b))
}

func TestLimiterOnDamagedData(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := redistest.Task().JobID
	w.mini.HSet(limiterKey(client), "day", "-", "used", "NaN", "x", "5", "3786912000", "many", "99999999999999", "-4", "-1", "5")
	require.Equal(t, 50, hammer(t, client, w.process(Config{PerMinute: 50}, 0)))
}
