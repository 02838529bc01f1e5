package tasks

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCircuit(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var changes []bool
	now := time.Unix(1000, 0)
	c := newCircuit("testing", slog.New(slog.NewTextHandler(&log, nil)), func(open bool) { changes = append(changes, open) })
	c.now = func() time.Time { return now }
	failure := errors.New("connection refused")

	require.True(t, c.allow())
	c.report(nil)
	require.True(t, c.allow())
	require.True(t, c.allow(), "a closed circuit lets everybody try")
	c.report(failure)
	c.report(failure) // one that was on its way
	require.True(t, c.isOpen())
	require.False(t, c.allow())

	pause := firstPause
	for range 6 {
		now = now.Add(pause - time.Nanosecond)
		require.False(t, c.allow())
		now = now.Add(time.Nanosecond)
		require.True(t, c.allow(), "one probe after %v", pause)
		require.False(t, c.allow(), "only one")
		c.report(failure)
		pause = min(2*pause, maxPause)
	}
	now = now.Add(maxPause)
	require.True(t, c.allow())
	c.abandon()
	require.True(t, c.isOpen())
	require.True(t, c.allow(), "another probe")
	c.report(nil)
	require.False(t, c.isOpen())
	require.True(t, c.allow())
	require.Equal(t, []bool{true, false}, changes)
	require.Equal(t, 2, strings.Count(log.String(), "\n"), "one line when it breaks, one when it is whole: %s", &log)

	for range 100 { // trouble that comes and goes
		now = now.Add(logEvery / 20)
		c.report(failure)
		c.report(nil)
	}
	require.Equal(t, 2+2*5, strings.Count(log.String(), "\n"), "%s", &log)
}
