package stack

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

func TestScaleUpAndDown(t *testing.T) {
	t.Parallel()
	s := startFake(t, "")
	require.Zero(t, s.Workers())
	require.Empty(t, s.MetricsURLs())
	var before []int
	for _, n := range []int{1, 3, 1, 0, 2} {
		require.NoError(t, s.Scale(testContext(t), n))
		require.Equal(t, n, s.Workers())
		require.Len(t, s.MetricsURLs(), n)
		now := pids(s)
		require.Len(t, now, n)
		require.Subset(t, append(now, before...), before[:min(n, len(before))])
		if n < len(before) {
			requireGone(t, before[n:])
		}
		before = now
	}
	require.Equal(t, 3, s.Scaling().Stopped)
	require.Positive(t, s.Scaling().Slowest)
	require.ErrorContains(t, s.Scale(testContext(t), -1), "the number must be from 0 to 32")
	require.ErrorContains(t, s.Scale(testContext(t), 33), "the number must be from 0 to 32")
	require.NoError(t, s.Close())
	requireGone(t, before)
	require.NoError(t, s.Close(), "a second close")
	require.ErrorIs(t, s.Scale(testContext(t), 1), errClosed)
	require.ErrorIs(t, s.Heal(testContext(t)), errClosed)
}

func TestPauseEndsEarly(t *testing.T) {
	t.Parallel()
	s := startFake(t, "")
	s.o.Lease = time.Hour
	for name, end := range map[string]func(cancel func()){
		"its context": func(cancel func()) { cancel() },
		"its process": func(func()) { require.NoError(t, s.Scale(testContext(t), 0)) },
	} {
		require.NoError(t, s.Scale(testContext(t), 1))
		pid := pids(s)[0]
		ctx, cancel := context.WithCancel(testContext(t))
		defer cancel()
		ended := make(chan Fault)
		go func() {
			f, _ := kindNamed(t, "stop").do(ctx, s, 1)
			ended <- f
		}()
		testkit.Eventually(t, "it is paused", func() bool { return isPaused(pid) })
		_, another := kindNamed(t, "kill").do(testContext(t), s, 2)
		require.False(t, another, "a process has one fault at a time")
		end(cancel)
		f := <-ended
		require.NoError(t, f.Err, name)
		require.Equal(t, "stop", f.Kind)
		require.False(t, isPaused(pid), name)
	}
	require.NoError(t, s.Heal(testContext(t)))
}

func isPaused(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && strings.Contains(string(stat), ") T ")
}

func TestProcessThatNeverGetsReady(t *testing.T) {
	t.Parallel()
	s := startFake(t, "crash")
	err := s.Scale(testContext(t), 1)
	require.ErrorIs(t, err, ErrExited)
	require.ErrorContains(t, err, "exit status 1")
	require.ErrorContains(t, err, "something is missing")
	require.NoError(t, s.Close())

	s = startFake(t, "refuse")
	err = s.Scale(testContext(t), 1)
	require.ErrorIs(t, err, errRefused)
	require.ErrorContains(t, err, "FORGERUN_FAKE must not be refuse")
	text, readErr := os.ReadFile(filepath.Join(s.Logs(), "worker-1.log"))
	require.NoError(t, readErr)
	require.Equal(t, 1, strings.Count(string(text), "bad configuration"), "the worker is not restarted")
}
