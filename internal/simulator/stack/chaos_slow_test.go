//go:build slow

package stack

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/process"
)

// TestChaosHealsAndLeavesNothing does every kind of fault, all at once and far
// too often, while workers are scaled, and ends in the middle of it.
func TestChaosHealsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := startReal(t, Options{Faults: true, APIs: 2})
	requireAnswers(t, s)
	require.NoError(t, s.Scale(testContext(t), 2))
	require.Len(t, s.MetricsURLs(), 2+1+2)

	c, err := ParseChaos("kill=1s,stop=2s,term=2s,flush=1s,redis=3s,redis-pause=3s,redis-full=3s,postgres=3s," +
		"cut=300ms,lose=500ms,slow=1s,stall=2s")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(testContext(t), 6*time.Second)
	defer cancel()
	var faults []Fault
	var running sync.WaitGroup
	running.Go(func() { // a client, without which there is little to cut
		for process.Sleep(ctx, 10*time.Millisecond) {
			if answer, err := healthClient.Get(s.URL() + "/readyz"); err == nil {
				_ = answer.Body.Close()
			}
		}
	})
	running.Go(func() {
		for n := 1; ctx.Err() == nil; n = n%3 + 1 {
			_ = s.Scale(ctx, n) // it may be interrupted, and what a fault hits may end badly
		}
	})
	require.NoError(t, c.Run(ctx, s, 1, func(f Fault) { faults = append(faults, f) }))
	running.Wait()
	hit := map[string]int{}
	for _, f := range faults {
		hit[f.Kind] += f.Count
		require.NoError(t, f.Err, "%+v", f)
		require.Positive(t, f.Count)
		require.False(t, f.Until.Before(f.At))
	}
	t.Log(hit)
	require.GreaterOrEqual(t, len(hit), 8, "%v", hit)

	// Run has healed everything, but the number of workers is the caller's.
	require.NoError(t, s.Scale(testContext(t), 1))
	require.Len(t, s.MetricsURLs(), 2+1+1)
	requireAnswers(t, s)
	all := pids(s)
	require.NoError(t, s.Close())
	requireGone(t, all)
	left, err := filepath.Glob(filepath.Join(s.o.Dir, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{s.logDir()}, left)
	for _, name := range []string{"api-1", "api-2", "webhooks-1", "worker-1", "migrate", "postgres", "redis"} {
		require.FileExists(t, filepath.Join(s.logDir(), name+".log"))
	}
}
