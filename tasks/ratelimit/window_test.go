package ratelimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWindowCountsForAMinuteAtLeast(t *testing.T) {
	t.Parallel()
	for _, at := range []time.Duration{0, 1, slotWidth - 1, slotWidth, 12345678901} {
		var w window
		w.add(at, 1)
		require.Greater(t, w.wholeIn(at), minute)
		require.LessOrEqual(t, w.wholeIn(at), minute+slotWidth)
		require.Equal(t, w.wholeIn(at), w.freeIn(at, 1))
		require.Zero(t, w.freeIn(at, 2))
		w.advance(at + w.wholeIn(at) - 1)
		require.Equal(t, 1, w.total)
		w.advance(at + w.wholeIn(at))
		require.Zero(t, w.total)
		require.Zero(t, w.wholeIn(at))
	}
}

func TestWindowIsBounded(t *testing.T) {
	t.Parallel()
	var w window
	var now time.Duration
	for range 100_000 {
		now += 7 * time.Millisecond
		w.advance(now)
		w.add(now, 1)
	}
	require.LessOrEqual(t, len(w.counts), int(minute/slotWidth)+1)
	require.InDelta(t, minute/(7*time.Millisecond), w.total, 75)
	// What is earlier than the newest is counted with it.
	w.add(0, 1)
	require.LessOrEqual(t, len(w.counts), int(minute/slotWidth)+1)
}

func TestWindowIsFreeWhenEnoughHasEnded(t *testing.T) {
	t.Parallel()
	var w window
	for i := range 3 {
		for range 10 {
			w.add(time.Duration(i)*time.Second, 1)
		}
	}
	now := 2 * time.Second
	require.Equal(t, minute+slotWidth-now, w.freeIn(now, 30))
	require.Equal(t, minute+slotWidth-now, w.freeIn(now, 21))
	require.Equal(t, minute+slotWidth-time.Second, w.freeIn(now, 20))
	require.Equal(t, minute+slotWidth, w.freeIn(now, 10))
}
