package ratelimit

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// clock is a clock that tests set.
type clock struct{ us atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.us.Store(noon.UnixMicro())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMicro(c.us.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.us.Add(d.Microseconds()) }

// newLimiter waits for Redis as long as it takes, so that a slow machine does
// not make it go on alone.
func newLimiter(t testing.TB, r *redisconn.Redis, cfg Config) *Limiter {
	t.Helper()
	if cfg.Wait == 0 {
		cfg.Wait = redistest.Within
	}
	l := New(r, cfg)
	t.Cleanup(func() { _ = l.Stop(context.Background()) })
	return l
}

// hammer sends requests from several goroutines to all limiters until each has
// refused, and counts those that passed.
func hammer(t testing.TB, client job.ID, limiters ...*Limiter) int {
	var passed atomic.Int64
	var senders sync.WaitGroup
	for _, l := range limiters {
		for range 8 {
			senders.Go(func() {
				for l.Allow(t.Context(), client).OK {
					passed.Add(1)
				}
			})
		}
	}
	senders.Wait()
	return int(passed.Load())
}

func TestLimiterLetsExactlyTheLimitPass(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 5, 60, 119, 1000, 6000, 12345} {
		clock := newClock()
		r := redistest.DB(t)
		client := redistest.Task().JobID
		one := newLimiter(t, r, Config{PerMinute: limit, Clock: clock.now})
		require.Equal(t, limit, hammer(t, client, one), "one process")
		require.Zero(t, hammer(t, client, one))
		clock.advance(time.Minute)
		others := []*Limiter{one}
		for range 3 {
			others = append(others, newLimiter(t, r, Config{PerMinute: limit, Clock: clock.now}))
		}
		require.Equal(t, limit, hammer(t, client, others...), "limit %d, four processes", limit)
		require.Zero(t, hammer(t, client, others...))
		require.True(t, one.Allow(t.Context(), redistest.Task().JobID).OK, "clients do not share")
	}
}

func TestLimiterRefills(t *testing.T) {
	t.Parallel()
	clock := newClock()
	r := redistest.DB(t)
	client := redistest.Task().JobID
	a := newLimiter(t, r, Config{PerMinute: 6000, Clock: clock.now})
	b := newLimiter(t, r, Config{PerMinute: 6000, Clock: clock.now})
	require.Equal(t, 6000, hammer(t, client, a, b))
	for range 20 {
		clock.advance(50 * time.Millisecond)
		require.Equal(t, 5, hammer(t, client, a, b))
	}
	clock.advance(time.Hour)
	require.Equal(t, 6000, hammer(t, client, a, b), "never more than a minute's")
}

// Without a clock of its own the shared bucket goes by Redis'.
func TestLimiterOnRealTime(t *testing.T) {
	t.Parallel()
	const limit = 600
	r := redistest.DB(t)
	client := redistest.Task().JobID
	var ls []*Limiter
	for range 4 {
		ls = append(ls, newLimiter(t, r, Config{PerMinute: limit}))
	}
	began, passed := time.Now(), 0
	for time.Since(began) < 500*time.Millisecond {
		passed += hammer(t, client, ls...)
	}
	elapsed := time.Since(began)
	require.GreaterOrEqual(t, passed, limit)
	require.LessOrEqual(t, float64(passed), limit*(1+elapsed.Minutes())+1)
	require.Positive(t, r.Client.PTTL(t.Context(), limiterKey(client)).Val(), "Redis forgets idle clients")
}

func TestAllowanceOfASmallLimit(t *testing.T) {
	t.Parallel()
	clock := newClock()
	l := newLimiter(t, redistest.DB(t), Config{PerMinute: 5, Clock: clock.now})
	client := redistest.Task().JobID
	for left := 4; left >= 0; left-- {
		want := job.Allowance{OK: true, Policy: "minute", Limit: 5, Remaining: left, Reset: time.Duration(5-left) * 12 * time.Second}
		require.Empty(t, cmp.Diff(want, l.Allow(t.Context(), client)))
	}
	refused := job.Allowance{Policy: "minute", Limit: 5, Reset: time.Minute, RetryAfter: 12 * time.Second}
	require.Empty(t, cmp.Diff(refused, l.Allow(t.Context(), client)))
	clock.advance(12*time.Second - time.Microsecond)
	require.False(t, l.Allow(t.Context(), client).OK)
	clock.advance(time.Microsecond)
	require.True(t, l.Allow(t.Context(), client).OK)
	require.False(t, l.Allow(t.Context(), client).OK)
}

func TestLimiterByDay(t *testing.T) {
	t.Parallel()
	clock := newClock()
	r := redistest.DB(t)
	client := redistest.Task().JobID
	cfg := Config{PerMinute: 6000, PerDay: 1000, Clock: clock.now}
	a, b := newLimiter(t, r, cfg), newLimiter(t, r, cfg)
	require.Equal(t, 1000, hammer(t, client, a, b))
	clock.advance(time.Hour)
	require.Zero(t, hammer(t, client, a, b))
	require.Equal(t, job.Allowance{Policy: "day", Limit: 1000, Reset: 11 * time.Hour, RetryAfter: 11 * time.Hour},
		a.Allow(t.Context(), client))
	require.Greater(t, r.Client.PTTL(t.Context(), limiterKey(client)).Val(), 10*time.Hour)
	clock.advance(11 * time.Hour)
	require.Equal(t, 1000, hammer(t, client, a, b), "a new day")
}

func TestLimiterByDayAlone(t *testing.T) {
	t.Parallel()
	clock := newClock()
	l := newLimiter(t, redistest.DB(t), Config{PerDay: 7, Clock: clock.now})
	client := redistest.Task().JobID
	first := l.Allow(t.Context(), client)
	require.Equal(t, job.Allowance{OK: true, Policy: "day", Limit: 7, Remaining: 6, Reset: 12 * time.Hour}, first)
	require.Equal(t, 6, hammer(t, client, l))
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, redistest.DB(t), Config{})
	for range 1000 {
		require.Equal(t, job.Allowance{OK: true}, l.Allow(t.Context(), job.ID{1}))
	}
	require.Empty(t, l.clients)
}

// Tokens that one process holds and does not use come back to the others.
func TestLimiterReturnsUnusedTokens(t *testing.T) {
	t.Parallel()
	clock := newClock()
	r := redistest.DB(t)
	client := redistest.Task().JobID
	cfg := Config{PerMinute: 6000, PerDay: 10_000, Clock: clock.now}
	a, b := newLimiter(t, r, cfg), newLimiter(t, r, cfg)
	require.True(t, a.Allow(t.Context(), client).OK) // and holds 99
	require.Equal(t, 5900, hammer(t, client, b))
	clock.advance(keepHeld)
	a.sweep()
	a.asking.Wait()
	require.Equal(t, 99+100, hammer(t, client, b), "and a second's refill")
	clock.advance(time.Hour)

	require.True(t, a.Allow(t.Context(), client).OK)
	require.NoError(t, a.Stop(t.Context()))
	used, err := r.Client.HGet(t.Context(), limiterKey(client), "used").Int()
	require.NoError(t, err)
	require.Equal(t, 1+5900+199+1, used, "a process that ends gives everything back")
	require.NoError(t, a.Stop(t.Context()))
	require.True(t, a.Allow(t.Context(), client).OK, "and goes on alone")
}

func TestLimiterForgetsIdleClients(t *testing.T) {
	t.Parallel()
	clock := newClock()
	l := newLimiter(t, redistest.DB(t), Config{PerMinute: 600, Clock: clock.now})
	for _, task := range redistest.Tasks(100) {
		require.True(t, l.Allow(t.Context(), task.JobID).OK)
	}
	l.Start()
	l.Start()
	clock.advance(time.Minute)
	redistest.Eventually(t, func() bool {
		l.mu.RLock()
		defer l.mu.RUnlock()
		return len(l.clients) == 0
	})
	require.NoError(t, l.Stop(t.Context()))
	l.Start()
}

// Without Redis each process applies the limit by itself. Nobody waits, save
// the few requests that find out.
func TestLimiterWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct {
		fault, heal func(*devstack.Redis) error
		slack       int // requests that Redis counts though nobody got the answer
	}{
		"down":  {fault: (*devstack.Redis).Kill, heal: func(s *devstack.Redis) error { return s.Start(t.Context()) }},
		"hangs": {fault: (*devstack.Redis).Pause, heal: (*devstack.Redis).Resume, slack: 2 * 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Own(t)
			r := redistest.ConnectHanging(t, server.URL())
			clock := newClock()
			cfg := Config{PerMinute: 100, PerDay: 1000, Clock: clock.now}
			a, b := newLimiter(t, r, cfg), newLimiter(t, r, cfg)
			client := redistest.Task().JobID
			require.Equal(t, 100, hammer(t, client, a, b))
			clock.advance(time.Minute)
			a.cfg.Wait, b.cfg.Wait = 50*time.Millisecond, 50*time.Millisecond
			openConnections(r, 10)

			require.NoError(t, how.fault(server))
			require.Equal(t, 100, hammer(t, client, a))
			require.Equal(t, 100, hammer(t, client, b))
			require.True(t, a.circuit.IsOpen())
			require.Equal(t, 1., testutil.ToFloat64(r.Metrics.Alone))
			// The first exchange of each, and a probe. A Redis that hangs executes all
			// that later, and must not count again what is owed.
			redistest.Eventually(t, func() bool {
				a.Allow(t.Context(), client)
				return testutil.ToFloat64(r.Metrics.Grants.WithLabelValues(redisconn.ResultFailed)) >= 3
			})

			require.NoError(t, how.heal(server))
			requireShared(t, a)
			requireShared(t, b)
			used, err := r.Client.HGet(t.Context(), limiterKey(client), "used").Int()
			require.NoError(t, err)
			require.GreaterOrEqual(t, used, 300, "the quota is corrected afterwards")
			require.LessOrEqual(t, used, 300+how.slack)
			clock.advance(time.Minute)
			a.cfg.Wait, b.cfg.Wait = redistest.Within, redistest.Within
			require.Equal(t, 100, hammer(t, client, a, b), "shared again")
		})
	}
}

// openConnections fills the pool: only on a connection that is already there
// does a hanging Redis find a command to execute later.
func openConnections(r *redisconn.Redis, n int) {
	var blocked sync.WaitGroup
	for range n {
		blocked.Go(func() { r.Client.BLPop(context.Background(), 200*time.Millisecond, "nothing") })
	}
	blocked.Wait()
}

// requireShared waits until the limiter works with Redis again and has reported all.
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
	require.True(t, l.Allow(ctx, job.ID{1}).OK, "a request that is given up is decided at once")
	require.False(t, l.circuit.IsOpen(), "and says nothing about Redis")
	l.cfg.Wait = time.Millisecond
	require.True(t, l.Allow(t.Context(), job.ID{1}).OK)
	require.True(t, l.circuit.IsOpen())
	require.NoError(t, server.Resume())
	requireShared(t, l)
}

// What others took counts only while Redis can tell.
func TestLimiterAloneKnowsOnlyItself(t *testing.T) {
	t.Parallel()
	clock := newClock()
	r := redistest.DB(t)
	client := redistest.Task().JobID
	a := newLimiter(t, r, Config{PerMinute: 50, Clock: clock.now})
	b := newLimiter(t, r, Config{PerMinute: 50, Clock: clock.now})
	require.Equal(t, 50, hammer(t, client, b))
	require.Zero(t, hammer(t, client, a))
	a.circuit.Report(errSlow)
	require.True(t, a.Allow(t.Context(), client).OK)
}

func TestLimiterAsksForAllWhoWait(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, redistest.DB(t), Config{PerMinute: 60, Clock: newClock().now})
	c := l.lock(job.ID{1})
	c.waiting = 10
	answered := l.askForTokens(c)
	require.Equal(t, answered, l.askForTokens(c), "one question at a time")
	c.mu.Unlock()
	redistest.Receive(t, answered, "the answer")
	require.Equal(t, 10, c.bucket.held)
}

// A flushed Redis forgets, but what passed one process is not forgotten there.
func TestLimiterAfterAFlush(t *testing.T) {
	t.Parallel()
	clock := newClock()
	r := redistest.DB(t)
	client := redistest.Task().JobID
	a := newLimiter(t, r, Config{PerMinute: 300, Clock: clock.now})
	b := newLimiter(t, r, Config{PerMinute: 300, Clock: clock.now})
	require.Equal(t, 300, hammer(t, client, a))
	require.NoError(t, r.Client.FlushDB(t.Context()).Err())
	require.Zero(t, hammer(t, client, a))
	require.Equal(t, 300, hammer(t, client, b))
	clock.advance(time.Minute)
	require.Equal(t, 300, hammer(t, client, a, b))
}

// What somebody else put under the key must not stop a client for ever.
func TestLimiterOnDamagedData(t *testing.T) {
	t.Parallel()
	clock := newClock()
	r := redistest.DB(t)
	client := redistest.Task().JobID
	require.NoError(t, r.Client.HSet(t.Context(), limiterKey(client), "level", "x", "at", "", "day", "-", "used", "NaN").Err())
	require.Equal(t, 50, hammer(t, client, newLimiter(t, r, Config{PerMinute: 50, Clock: clock.now})))
}

// The embedded Redis runs the same script.
func TestLimiterOnMiniredis(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	require.Equal(t, 20, hammer(t, redistest.Task().JobID, newLimiter(t, r, Config{PerMinute: 20, PerDay: 100, Clock: newClock().now})))
	require.True(t, newLimiter(t, r, Config{PerMinute: 20}).Allow(t.Context(), redistest.Task().JobID).OK)
	require.Zero(t, testutil.ToFloat64(r.Metrics.Grants.WithLabelValues(redisconn.ResultFailed)))
}
