package ratelimit

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redistest"
)

const whole = minute + keepHeld + slotWidth

func TestABurstOfTheWholeLimitPasses(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 5, 60, 119, 1000, 6000} {
		w := newWorld(t)
		client := redistest.Task().JobID
		cfg := Config{PerMinute: limit}
		one := w.process(cfg, 0)
		require.Equal(t, limit, hammer(t, client, one), "one process")
		require.Zero(t, hammer(t, client, one))
		w.advance(whole)
		others := []*Limiter{one, w.process(cfg, time.Hour), w.process(cfg, -time.Hour), w.process(cfg, 0)}
		require.Equal(t, limit, hammer(t, client, others...), "limit %d, four processes", limit)
		require.Zero(t, hammer(t, client, others...))
		require.True(t, one.Allow(t.Context(), redistest.Task().JobID).OK, "another client has its own limit")
	}
}

func TestLimitsOfOtherThings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := redistest.Task().JobID
	requests := w.process(Config{PerMinute: 10}, 0)
	cfg := Config{Name: "deliveries", PerMinute: 5}
	a, b := w.process(cfg, 0), w.process(cfg, 0)
	require.Equal(t, 10, hammer(t, client, requests))
	require.Equal(t, 5, hammer(t, client, a, b))
	w.advance(whole)
	require.Equal(t, 5, hammer(t, client, b))
	require.Zero(t, hammer(t, client, a))
	require.Equal(t, 10, hammer(t, client, requests))
}

// Arrivals, processes and clocks are random.
func TestNoMinuteHasMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 2))
			limits := []int{1, 3, 60, 119, 120, 150, 600, 1200}
			limit := limits[random.IntN(len(limits))]
			w := newWorld(t)
			for range 1 + random.IntN(4) {
				w.process(Config{PerMinute: limit}, time.Duration(random.IntN(20_000)-10_000)*time.Millisecond)
			}
			client := redistest.Task().JobID
			passed := burstsAtRandom(w, random, client, limit)
			requireNoMinuteHasMore(t, passed, limit)
			w.advance(whole)
			require.Equal(t, limit, hammer(t, client, w.all...), "the whole limit is available again")
		})
	}
}

type passes struct {
	at time.Time
	n  int
}

func burstsAtRandom(w *world, random *rand.Rand, client job.ID, limit int) (passed []passes) {
	for end := w.now().Add(4 * time.Minute); w.now().Before(end); {
		l, n := w.all[random.IntN(len(w.all))], 0
		for range 1 + random.IntN(1+random.IntN(limit*3/2)) {
			if l.Allow(w.t.Context(), client).OK {
				n++
			}
			if items := 1 + random.IntN(limit); random.IntN(20) == 0 && l.AllowItems(w.t.Context(), client, items).OK {
				n += items - 1
			}
		}
		if n > 0 {
			passed = append(passed, passes{w.now(), n})
		}
		if random.IntN(3) == 0 {
			w.sweep()
		}
		if random.IntN(50) == 0 {
			_ = l.Stop(w.t.Context())
			i := random.IntN(len(w.all))
			for w.all[i] != l {
				i = (i + 1) % len(w.all)
			}
			w.all = append(w.all[:i], w.all[i+1:]...)
			w.process(l.cfg, 0)
		}
		w.advance(time.Duration(random.IntN(1+random.IntN(8_000_000))) * time.Microsecond)
	}
	return passed
}

func requireNoMinuteHasMore(t *testing.T, passed []passes, limit int) {
	t.Helper()
	require.NotEmpty(t, passed)
	first, within := 0, 0
	for _, p := range passed {
		within += p.n
		for p.at.Sub(passed[first].at) >= minute {
			within -= passed[first].n
			first++
		}
		require.LessOrEqual(t, within, limit, "in the minute until %v", p.at)
	}
}

func TestRetryAfterIsTrue(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 7, 60, 600} {
		w := newWorld(t)
		client := redistest.Task().JobID
		a, b := w.process(Config{PerMinute: limit}, 0), w.process(Config{PerMinute: limit}, time.Minute)
		passedBefore := 0
		for a.Allow(t.Context(), client).OK {
			passedBefore++
			if passedBefore%10 == 0 {
				w.advance(20 * time.Millisecond)
			}
		}
		require.Equal(t, limit, passedBefore)
		refused := b.Allow(t.Context(), client)
		require.False(t, refused.OK)
		require.Positive(t, refused.RetryAfter)
		require.LessOrEqual(t, refused.RetryAfter, refused.Reset)
		require.LessOrEqual(t, refused.Reset, whole)
		w.advance(refused.RetryAfter - time.Microsecond)
		again := b.Allow(t.Context(), client)
		require.Equal(t, job.Allowance{Policy: "minute", Limit: limit, Reset: again.Reset, RetryAfter: time.Microsecond}, again)
		w.advance(time.Microsecond)
		last := b.Allow(t.Context(), client)
		require.True(t, last.OK)
		w.advance(last.Reset)
		require.Equal(t, limit, hammer(t, client, b), "the whole limit is available after Reset")
	}
}

func TestLimiterByDay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := redistest.Task().JobID
	cfg := Config{PerMinute: 6000, PerDay: 1000}
	a, b := w.process(cfg, 0), w.process(cfg, 13*time.Hour) // the clock of `b` shows another day, but only Redis' day counts
	require.Equal(t, 1000, hammer(t, client, a, b))
	w.advance(time.Hour)
	require.Zero(t, hammer(t, client, a, b))
	require.Equal(t, job.Allowance{Policy: "day", Limit: 1000, Reset: 11 * time.Hour, RetryAfter: 11 * time.Hour},
		a.Allow(t.Context(), client))
	require.Greater(t, w.mini.TTL(limiterKey(client)), 10*time.Hour)
	w.advance(11 * time.Hour)
	require.Equal(t, 1000, hammer(t, client, a, b), "a new day")
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	l := newWorld(t).process(Config{}, 0)
	for range 1000 {
		require.Equal(t, job.Allowance{OK: true}, l.Allow(t.Context(), job.ID{1}))
	}
	require.Empty(t, l.clients)
}

func TestUnusedTokensComeBackWithinASecond(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := redistest.Task().JobID
	cfg := Config{PerMinute: 6000, PerDay: 10_000}
	a, b := w.process(cfg, 0), w.process(cfg, 0)
	require.True(t, a.Allow(t.Context(), client).OK) // process `a` now has 99 tokens left
	require.Equal(t, 5900, hammer(t, client, b))
	w.advance(keepHeld + sweepEvery)
	w.sweep()
	w.advance(trust)
	require.Less(t, keepHeld+sweepEvery+trust, time.Second)
	require.Equal(t, 99, hammer(t, client, b))
	w.advance(whole)

	require.True(t, a.Allow(t.Context(), client).OK)
	require.NoError(t, a.Stop(t.Context()))
	require.Equal(t, strconv.Itoa(1+5900+99+1), w.mini.HGet(limiterKey(client), "used"), "Stop returns unused tokens")
	require.NoError(t, a.Stop(t.Context()))
	require.True(t, a.Allow(t.Context(), client).OK, "a stopped limiter still works")
}

func TestLimiterForgetsIdleClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.process(Config{PerMinute: 600}, 0)
	for _, task := range redistest.Tasks(100) {
		require.True(t, l.Allow(t.Context(), task.JobID).OK)
	}
	l.Start()
	l.Start()
	w.us.Add(whole.Microseconds())
	redistest.Eventually(t, func() bool {
		l.mu.RLock()
		defer l.mu.RUnlock()
		return len(l.clients) == 0
	})
	require.NoError(t, l.Stop(t.Context()))
	l.Start()
	w.advance(whole)
	require.Empty(t, w.mini.Keys(), "Redis has dropped the counts")
}

func TestCountsOfAClientAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, other := w.process(Config{PerMinute: 600_000}, 0), w.process(Config{PerMinute: 600_000}, 0)
	client := redistest.Task().JobID
	const fields = int(whole/slotWidth) + 3 // 3 more: the current slot, the day, and the number of tokens used on this day
	for range 260 {
		for range 10 {
			require.True(t, l.Allow(t.Context(), client).OK)
		}
		require.True(t, other.Allow(t.Context(), client).OK)
		w.advance(250 * time.Millisecond)
	}
	keys := redistest.Must(w.mini.HKeys(limiterKey(client)))(t)
	require.LessOrEqual(t, len(keys), fields)
	require.Less(t, fields, 128, "Redis stores small hashes compactly")
	c := l.lock(client)
	defer c.mu.Unlock()
	require.LessOrEqual(t, len(c.bucket.own.counts), fields)
	require.LessOrEqual(t, len(c.bucket.chunks)+len(c.bucket.unused), 10)
}

func TestItemsPassTogether(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{7, 60, 600, 6000} {
		w := newWorld(t)
		client := redistest.Task().JobID
		a, b := w.process(Config{PerMinute: limit}, 0), w.process(Config{PerMinute: limit}, time.Minute)
		batch := func(l *Limiter, items int) job.Allowance {
			if allowed := l.Allow(t.Context(), client); !allowed.OK {
				return allowed
			}
			return l.AllowItems(t.Context(), client, items)
		}
		half := limit/2 + 1
		require.True(t, batch(a, half).OK)
		w.advance(2 * keepHeld)
		w.sweep()
		refused := batch(b, half)
		require.False(t, refused.OK)
		require.Equal(t, limit, refused.Limit)
		require.Positive(t, refused.RetryAfter)
		w.advance(2 * keepHeld)
		w.sweep()
		require.Equal(t, limit-half-1, hammer(t, client, a, b), "a refused batch takes one token")
		w.advance(whole)
		require.True(t, batch(b, 10*limit+1).OK, "a batch above the limit can pass")
		require.False(t, a.Allow(t.Context(), client).OK, "it uses the whole limit")
		answer := batch(b, limit)
		require.False(t, answer.OK)
		for tries := 0; !answer.OK; tries++ { // at first the request itself is refused, later its items
			require.Less(t, tries, 2)
			w.advance(answer.RetryAfter)
			answer = batch(a, limit)
		}
	}
	quota := newWorld(t).process(Config{PerMinute: 100, PerDay: 10}, 0)
	require.True(t, quota.Allow(t.Context(), job.ID{1}).OK)
	require.True(t, quota.AllowItems(t.Context(), job.ID{1}, 8).OK)
	require.Equal(t, "day", quota.AllowItems(t.Context(), job.ID{1}, 4).Policy)
	require.True(t, quota.AllowItems(t.Context(), job.ID{1}, 3).OK)
	require.False(t, quota.Allow(t.Context(), job.ID{1}).OK)
}
