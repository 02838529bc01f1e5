package redisconn

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
	c := NewCircuit("testing", slog.New(slog.NewTextHandler(&log, nil)), func(open bool) { changes = append(changes, open) })
	c.now = func() time.Time { return now }
	failure := errors.New("connection refused")

	require.True(t, c.Allow())
	c.Report(nil)
	require.True(t, c.Allow())
	require.True(t, c.Allow(), "a closed circuit lets everybody try")
	c.Report(failure)
	c.Report(failure) // one that was on its way
	require.True(t, c.IsOpen())
	require.False(t, c.Allow())

	pause := FirstPause
	for range 6 {
		now = now.Add(pause - time.Nanosecond)
		require.False(t, c.Allow())
		now = now.Add(time.Nanosecond)
		require.True(t, c.Allow(), "one probe after %v", pause)
		require.False(t, c.Allow(), "only one")
		c.Report(failure)
		pause = min(2*pause, MaxPause)
	}
	now = now.Add(MaxPause)
	require.True(t, c.Allow())
	c.Abandon()
	require.True(t, c.IsOpen())
	require.True(t, c.Allow(), "another probe")
	c.Report(nil)
	require.False(t, c.IsOpen())
	require.True(t, c.Allow())
	require.Equal(t, []bool{true, false}, changes)
	require.Equal(t, 2, strings.Count(log.String(), "\n"), "one line when it breaks, one when it is whole: %s", &log)

	for range 100 { // trouble that comes and goes
		now = now.Add(logEvery / 20)
		c.Report(failure)
		c.Report(nil)
	}
	require.Equal(t, 2+2*5, strings.Count(log.String(), "\n"), "%s", &log)
}
