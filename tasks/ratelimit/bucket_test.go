package ratelimit

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

var noon = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

func at(taken, available, used int) answer {
	return answer{taken: taken, available: available, slot: 7, day: dayOf(noon), dayLeft: 12 * time.Hour, used: used}
}

func TestBucketAloneByDay(t *testing.T) {
	t.Parallel()
	b := newBucket(newRates(100, 3), noon)
	b.receive(noon, noon, at(0, 100, 1))
	require.Equal(t, passed, b.take(noon, 1, 1))
	require.Equal(t, "day", b.allowance(noon, 1, passed, 1).Policy)
	require.Equal(t, 1, b.allowance(noon, 1, passed, 1).Remaining)
	require.Equal(t, passed, b.take(noon, 1, 1))
	require.Equal(t, quotaUsed, b.take(noon, 1, 1))
	require.Empty(t, cmp.Diff(
		job.Allowance{Policy: "day", Limit: 3, Reset: 12 * time.Hour, RetryAfter: 12 * time.Hour},
		b.allowance(noon, 1, quotaUsed, 1)))
	midnight := noon.Add(12 * time.Hour)
	require.Equal(t, quotaUsed, b.take(midnight.Add(-time.Microsecond), 1, 1))
	require.Equal(t, passed, b.take(midnight, 1, 1))
	require.Equal(t, 2, b.allowance(midnight, 1, passed, 1).Remaining)
	require.Equal(t, dayOf(noon)+3, func() int64 { b.advance(midnight.Add(50 * time.Hour)); return b.day }())
}

// A busy process asks early enough that a response after a quarter of a second delays no request.
func TestABusyBucketAsksInTimeForASlowRedis(t *testing.T) {
	t.Parallel()
	const each = 5 * time.Millisecond
	b := newBucket(newRates(6_000_000, 0), noon)
	b.receive(noon, noon, at(10_000, 1_000_000, 0))
	var sent time.Time
	for now := noon; now.Before(noon.Add(10 * time.Second)); now = now.Add(each) {
		if !sent.IsZero() && now.Sub(sent) >= keepHeld/2-each {
			b.report(now)
			b.receive(now, sent, at(b.chunk(now)-b.ready(now), 1_000_000, 0))
			sent = time.Time{}
		}
		require.Equal(t, passed, b.take(now, 20, 0), now.Sub(noon))
		if sent.IsZero() && b.wants(now) {
			sent = now
		}
	}
}

// A token expires keepHeld after the process asked Redis for it. So Redis counts each used token for at least a minute after its use.
func TestBucketDoesNotUseLateTokens(t *testing.T) {
	t.Parallel()
	b := newBucket(newRates(600, 0), noon)
	b.receive(noon.Add(keepHeld), noon, at(10, 590, 10))
	require.Zero(t, b.held)
	require.Equal(t, mustAsk, b.take(noon.Add(keepHeld), 1, 0))
	require.Equal(t, 10, b.report(noon.Add(keepHeld)).unused[0].n)
}

func TestBucketAtMidnight(t *testing.T) {
	t.Parallel()
	b := newBucket(newRates(600, 1000), noon)
	midnight := noon.Add(12 * time.Hour)
	last := at(10, 590, 10)
	last.dayLeft = time.Millisecond
	b.receive(midnight.Add(-time.Millisecond), midnight.Add(-time.Millisecond), last)
	require.Equal(t, mustAsk, b.take(midnight, 1, 0))
	r := b.report(midnight)
	require.Equal(t, 10, r.unused[0].n)
	require.Zero(t, r.usedChange())
}
