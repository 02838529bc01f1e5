package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func after(d time.Duration) time.Time { return start.Add(d) }

var moves = Moves{
	{1, after(0), after(10 * time.Hour), 1},
	{2, after(time.Minute), after(10*time.Hour + time.Minute), 0},
	{3, after(2 * time.Minute), after(10*time.Hour + time.Minute), 60},
	{4, after(3 * time.Minute), after(11*time.Hour + time.Minute), 1},
}

func TestServiceTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ real, service time.Duration }{
		{-time.Second, -time.Second}, // before the first move
		{0, 10 * time.Hour},
		{time.Second, 10*time.Hour + time.Second},
		{90 * time.Second, 10*time.Hour + time.Minute},
		{2*time.Minute + time.Second, 10*time.Hour + 2*time.Minute},
		{3*time.Minute + time.Second, 11*time.Hour + time.Minute + time.Second},
	} {
		require.Equal(t, after(c.service), moves.At(after(c.real)), "%s", c.real)
		require.Equal(t, after(c.real), Moves(nil).At(after(c.real)))
	}
	require.Equal(t, after(10*time.Hour-time.Second), Moves{{0, start, after(10 * time.Hour), 1}}.At(after(-time.Second)),
		"a sample is not a move")
	require.Equal(t, 10*time.Hour+2*time.Second, moves.Most(time.Second))
	require.Equal(t, 2*time.Second, Moves(nil).Most(time.Second))
}

func TestLatestServiceTime(t *testing.T) {
	t.Parallel()
	latest := moves.Latest(10 * time.Second)
	for _, c := range []struct{ real, service time.Duration }{
		{-time.Second, -time.Second},
		{time.Second, 10*time.Hour + time.Second},                       // processes that missed the jump show an earlier time
		{90 * time.Second, 10*time.Hour + time.Minute + 10*time.Second}, // a process may learn of the freeze 10 s late
		{3*time.Minute + time.Second, 11*time.Hour + 11*time.Minute},    // a process may keep the fast rate for 10 s longer
		{time.Hour, 11*time.Hour + 58*time.Minute},
	} {
		require.Equal(t, after(c.service), latest(after(c.real)), "%s", c.real)
		require.Equal(t, after(c.real), Moves(nil).Latest(time.Second)(after(c.real)))
	}
	require.Equal(t, after(time.Hour+time.Second), Moves{{0, start, after(time.Hour), 1}}.Latest(time.Minute)(after(time.Second)))
}

func TestRealTimeOfEvents(t *testing.T) {
	t.Parallel()
	real, known := moves.Since(after(11*time.Hour + 2*time.Minute))
	require.True(t, known)
	require.Equal(t, after(4*time.Minute), real)
	_, known = moves.Since(after(11*time.Hour + time.Minute))
	require.False(t, known, "skipped events have this time but may happen later")
	_, known = moves[:3].Since(after(11 * time.Hour))
	require.False(t, known)
	real, known = Moves(nil).Since(start)
	require.True(t, known)
	require.Equal(t, start, real)
}

func TestPassed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		at     time.Duration
		exact  bool
		before time.Duration
	}{
		{"a jump", time.Hour, true, time.Second},
		{"the end of a jump", 10 * time.Hour, true, time.Second},
		{"the normal clock after a jump", 10*time.Hour + time.Second, false, time.Second},
		{"a fast clock", 10*time.Hour + 2*time.Minute, true, 10*time.Hour + time.Minute},
		{"the normal clock after a fast one", 12 * time.Hour, false, 11*time.Hour + 2*time.Minute},
	} {
		p := moves.Passed(after(c.at), time.Second)
		require.Equal(t, c.exact, p.Exact, c.name)
		require.Equal(t, after(c.before), p.Before, c.name)
	}
	require.Zero(t, moves.Passed(after(-time.Hour), time.Second), "before the first move")
	require.Zero(t, Moves(nil).Passed(start, time.Second))
	require.Zero(t, Moves{{0, start, after(time.Hour), 1}}.Passed(start, time.Second), "before the first sample")
}
