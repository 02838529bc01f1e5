package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGCPercent(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	for _, c := range []struct {
		name        string
		heap, roots uint64
		want        int
	}{
		{"nothing yet", 0, 0, maxGCPercent},
		{"small", 8 * mb, 1 * mb, maxGCPercent},
		{"medium", 30 * mb, 2 * mb, 150},
		{"large stacks", 50 * mb, 110 * mb, 30},
		{"large heap", 1000 * mb, 0, 50},
		{"nearly only stacks", 10 * mb, 2000 * mb, minGCPercent},
	} {
		require.Equal(t, c.want, gcPercent(garbageAllowed, c.heap, c.roots), c.name)
	}
}

func TestAllowedGarbage(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	require.EqualValues(t, garbageAllowed, allowedGarbage([]string{missing}))
	for content, want := range map[string]int{
		"max\n": garbageAllowed, "9223372036854771712\n": garbageAllowed, "1073741824\n": garbageAllowed,
		"67108864\n": 64 << 20 / garbageShare, "": garbageAllowed,
	} {
		file := filepath.Join(t.TempDir(), "memory.max")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		require.EqualValues(t, want, allowedGarbage([]string{missing, file}), "%q", content)
	}
}

func TestAfterEachCollection(t *testing.T) {
	t.Parallel()
	called := make(chan struct{}, 100)
	afterEachCollection(func() {
		heap, roots := measureMemory()
		if heap > 0 && roots > 0 {
			called <- struct{}{}
		}
	})
	for range 3 {
		runtime.GC()
		select {
		case <-called:
		case <-time.After(time.Minute):
			t.Fatal("no call after a collection")
		}
	}
}
