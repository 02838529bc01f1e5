package ratelimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/tasks/redistest"
)

// If the clock of Redis goes back, nobody is let through for it, and nobody waits for longer than otherwise.
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

// What was forgotten, or ended, cannot be given back: it would take from others.
func TestGivingBackWhatIsNotThere(t *testing.T) {
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

// What passed without a token counts like the others, and is not counted below nothing.
func TestScriptCountsWhatIsOwed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.process(Config{PerMinute: 100, PerDay: 1000}, 0)
	id := redistest.Task().JobID
	a := redistest.Must(l.grant(id, 5, report{owed: 130, counting: 130, owedToday: 130, day: dayOf(noon)}))(t)
	require.Equal(t, answer{
		available: 0, slot: noon.UnixMicro() / slotWidth.Microseconds(), free: whole, whole: whole, day: dayOf(noon),
		dayLeft: 12 * time.Hour, used: 130,
	}, a)
	w.advance(time.Second)
	a = redistest.Must(l.grant(id, 5, report{unused: []chunk{{n: 40, slot: a.slot, day: a.day}, {n: 7, slot: 1}}, day: dayOf(noon)}))(t)
	require.Equal(t, [4]int{5, 5, 95, int(whole)}, [4]int{a.taken, a.available, a.used, int(a.whole)})
	a = redistest.Must(l.grant(id, 0, report{unused: []chunk{{n: 1000, slot: a.slot, day: a.day}}, day: dayOf(noon)}))(t)
	require.Equal(t, [2]int{10, 0}, [2]int{a.available, a.used})
	require.Equal(t, whole-time.Second, a.whole)
}

// What somebody else put under the key must not stop a client for ever.
func TestLimiterOnDamagedData(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := redistest.Task().JobID
	w.mini.HSet(limiterKey(client), "day", "-", "used", "NaN", "x", "5", "3786912000", "many", "99999999999999", "-4", "-1", "5")
	require.Equal(t, 50, hammer(t, client, w.process(Config{PerMinute: 50}, 0)))
}

// A real Redis runs the same script, by its own clock.
func TestLimiterOnRealRedis(t *testing.T) {
	t.Parallel()
	const limit = 600
	r := redistest.DB(t)
	client := redistest.Task().JobID
	var ls []*Limiter
	for range 4 {
		ls = append(ls, newLimiter(t, r, Config{PerMinute: limit}))
	}
	began, passed := time.Now(), 0
	for passed < limit || time.Since(began) < 500*time.Millisecond {
		passed += hammer(t, client, ls...)
		for _, l := range ls { // unused for half a second on a slow machine
			l.sweep()
			l.asking.Wait()
		}
	}
	require.Equal(t, limit, passed)
	require.Positive(t, r.Client.PTTL(t.Context(), limiterKey(client)).Val(), "Redis forgets idle clients")
}
