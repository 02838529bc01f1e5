package ratelimit

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

var noon = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

func TestRates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ perMinute, perDay, chunk int }{
		{1, 0, 1}, {59, 0, 1}, {60, 0, 1}, {120, 0, 2}, {6000, 0, 100}, {1 << 40, 0, 100},
		{6000, 10, 1}, {6000, 1000, 10}, {0, 1000, 10}, {0, 1_000_000, 100},
	} {
		require.Equal(t, c.chunk, newRates(c.perMinute, c.perDay).chunk, "%+v", c)
	}
}

func TestLevelRefillsExactly(t *testing.T) {
	t.Parallel()
	for _, perMinute := range []int{1, 7, 6000, maxPerMinute} {
		r := newRates(perMinute, 0)
		l := level{0, noon}
		// In steps that are no whole number of microseconds.
		for range 70_000 {
			l.refill(l.at.Add(1_234_567*time.Nanosecond), r)
		}
		require.Equal(t, r.full(), l.units)
		l = level{0, noon}
		l.refill(noon.Add(time.Minute-time.Microsecond), r)
		require.Equal(t, r.full()-int64(perMinute), l.units)
		l.refill(noon.Add(time.Minute-time.Microsecond+999), r)
		require.Equal(t, r.full()-int64(perMinute), l.units)
		l.refill(noon.Add(time.Minute), r)
		require.Equal(t, r.full(), l.units)
		l.refill(noon.Add(24*365*time.Hour), r)
		require.Equal(t, r.full(), l.units)
		l.refill(noon, r)
		require.Equal(t, r.full(), l.units, "time that goes back changes nothing")
	}
}

func TestBucketAlone(t *testing.T) {
	t.Parallel()
	b := newBucket(newRates(5, 0), noon)
	for left := 4; left >= 0; left-- {
		require.Equal(t, passed, b.take(noon, true))
		want := job.Allowance{OK: true, Policy: "minute", Limit: 5, Remaining: left, Reset: time.Duration(5-left) * 12 * time.Second}
		require.Empty(t, cmp.Diff(want, b.allowance(noon, passed, true)))
	}
	require.Equal(t, tooFast, b.take(noon, true))
	require.Empty(t, cmp.Diff(
		job.Allowance{Policy: "minute", Limit: 5, Reset: time.Minute, RetryAfter: 12 * time.Second},
		b.allowance(noon, tooFast, true)))
	next := noon.Add(12*time.Second - time.Microsecond)
	require.Equal(t, tooFast, b.take(next, true))
	require.Equal(t, time.Microsecond, b.allowance(next, tooFast, true).RetryAfter)
	require.Equal(t, passed, b.take(noon.Add(12*time.Second), true))
	require.Equal(t, tooFast, b.take(noon.Add(12*time.Second), true))
}

func TestBucketAloneByDay(t *testing.T) {
	t.Parallel()
	b := newBucket(newRates(100, 3), noon)
	b.receive(noon, answer{day: dayOf(noon), left: b.rates.full(), used: 1})
	require.Equal(t, passed, b.take(noon, true))
	require.Equal(t, "day", b.allowance(noon, passed, true).Policy)
	require.Equal(t, 1, b.allowance(noon, passed, true).Remaining)
	require.Equal(t, passed, b.take(noon, true))
	require.Equal(t, quotaUsed, b.take(noon, true))
	require.Empty(t, cmp.Diff(
		job.Allowance{Policy: "day", Limit: 3, Reset: 12 * time.Hour, RetryAfter: 12 * time.Hour},
		b.allowance(noon, quotaUsed, true)))
	midnight := noon.Add(12 * time.Hour)
	require.Equal(t, quotaUsed, b.take(midnight.Add(-time.Microsecond), true))
	require.Equal(t, passed, b.take(midnight, true))
	require.Equal(t, 2, b.allowance(midnight, passed, true).Remaining)
}

func TestBucketUsesWhatItHolds(t *testing.T) {
	t.Parallel()
	b := newBucket(newRates(600, 0), noon) // 10 a second, chunks of 10
	require.Equal(t, mustAsk, b.take(noon, false))
	b.receive(noon, answer{taken: 10, left: b.rates.full() - 10*token, day: dayOf(noon)})
	for i := range 10 {
		require.Equal(t, passed, b.take(noon, false))
		require.Equal(t, i > 4, b.wants(), "asks again in time: %d", i)
		require.Equal(t, 599-i, b.allowance(noon, passed, false).Remaining)
	}
	require.Equal(t, mustAsk, b.take(noon, false))
	b.receive(noon, answer{left: token - 1, day: dayOf(noon)})
	require.Equal(t, tooFast, b.take(noon, false), "what is known to be empty is not asked")
	require.Equal(t, mustAsk, b.take(noon.Add(time.Microsecond), false), "until it has refilled")
}

func TestBucketGivesBackWhatItDoesNotUse(t *testing.T) {
	t.Parallel()
	b := newBucket(newRates(600, 0), noon)
	b.receive(noon, answer{taken: 10, left: b.rates.full(), day: dayOf(noon)})
	require.Equal(t, passed, b.take(noon.Add(keepHeld-1), false))
	require.Equal(t, mustAsk, b.take(noon.Add(keepHeld), false))
	require.False(t, b.idle(noon.Add(keepHeld)))
	s := b.report(noon.Add(keepHeld))
	require.Equal(t, report{returned: 9, level: 9, day: dayOf(noon)}, s)
	b.takeBack(s)
	require.True(t, b.report(noon.Add(keepHeld)).none(), "what may have arrived is not given back twice")
	require.True(t, b.idle(noon.Add(2*keepHeld)))
}

// A bucket that has refilled must not get tokens on top.
func TestBucketGivesBackTooLate(t *testing.T) {
	t.Parallel()
	b := newBucket(newRates(600, 1000), noon)
	b.receive(noon, answer{taken: 10, left: b.rates.full(), day: dayOf(noon), used: 10})
	require.Equal(t, report{returned: 10, level: 0, day: dayOf(noon)}, b.report(noon.Add(lateReturn)))
}

func TestBucketReportsWhatPassedAlone(t *testing.T) {
	t.Parallel()
	b := newBucket(newRates(600, 1000), noon) // 10 a second
	for range 3 {
		require.Equal(t, passed, b.take(noon, true))
	}
	s := b.report(noon)
	require.Equal(t, report{owed: 3, level: -3, day: dayOf(noon)}, s)
	b.takeBack(s)
	require.Equal(t, passed, b.take(noon, true))
	later := noon.Add(150 * time.Millisecond)
	s = b.report(later)
	require.Equal(t, report{owed: 4, level: -3, day: dayOf(noon)}, s, "some have refilled")
	// After midnight nobody asks any more.
	midnight := noon.Add(12 * time.Hour)
	require.Equal(t, passed, b.take(midnight, true))
	b.takeBack(s)
	require.Equal(t, 1, b.report(midnight).owed)
}

// Even if Redis forgets everything again and again, one process never lets more
// pass than the limit.
func TestBucketIsBoundedByItself(t *testing.T) {
	t.Parallel()
	b := newBucket(newRates(600, 0), noon)
	count := 0
	for range 5000 {
		switch b.take(noon, false) {
		case passed:
			count++
		case mustAsk:
			b.receive(noon, answer{taken: 10, left: b.rates.full(), day: dayOf(noon)})
		default:
		}
	}
	require.Equal(t, 600, count)
}

func TestBucketIdle(t *testing.T) {
	t.Parallel()
	b := newBucket(newRates(60, 0), noon)
	require.True(t, b.idle(noon))
	require.Equal(t, passed, b.take(noon, true))
	b.report(noon)
	require.False(t, b.idle(noon.Add(time.Second-time.Microsecond)))
	require.True(t, b.idle(noon.Add(time.Second)))
}
