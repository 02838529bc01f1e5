package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// output is a writer that lets a test wait for what is written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	want string
	seen chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.text.Write(p)
	if o.want != "" && strings.Contains(o.text.String(), o.want) {
		o.want = ""
		close(o.seen)
	}
	return n, err
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// newDemo gives a demo of a few kinds whose service this test binary plays.
func newDemo(t *testing.T, way string, kinds ...string) (d *demo, stdout, stderr *output) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	stdout, stderr = &output{}, &output{}
	return &demo{
		binary: self, dataDir: filepath.Join(t.TempDir(), "data"), environ: append(os.Environ(), asServiceVar+"="+way),
		kinds: kinds, stdout: stdout, stderr: stderr,
	}, stdout, stderr
}

func TestDemo(t *testing.T) {
	t.Parallel()
	d, stdout, stderr := newDemo(t, goodService, "SUCCESS_FAST", "RETRY_ON_FAIL", "WEBHOOK_5XX", "SCHEDULED_LATE_RECOVERY")
	require.Equal(t, exitOK, d.run(t.Context()), stdout.String()+stderr.String())
	require.Contains(t, stdout.String(), "All 4 kinds behaved as the catalogue says")
	require.NotContains(t, stderr.String(), "last lines")

	entries, err := os.ReadDir(d.dataDir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing but the demo folder")
	require.NoFileExists(t, filepath.Join(d.dataDir, "demo", readyFile))
	log, err := os.ReadFile(filepath.Join(d.dataDir, "demo", logFile))
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(log), "time scale 0.02"), "the service was started twice")
	d.requireStopped(t)
}

func TestDemoFindsDifferences(t *testing.T) {
	t.Parallel()
	d, stdout, stderr := newDemo(t, amnesiac, "SUCCESS_FAST", "SCHEDULED_LATE_RECOVERY")
	require.Equal(t, exitDifferent, d.run(t.Context()))
	require.Contains(t, stdout.String(), "1 of 2 kinds differ: SCHEDULED_LATE_RECOVERY.")
	require.Contains(t, stdout.String(), "before the service was started again")
	require.Contains(t, stderr.String(), "The last lines of "+filepath.Join(d.dataDir, "demo", logFile))
	d.requireStopped(t)
}

func TestDemoServiceCannotStart(t *testing.T) {
	t.Parallel()
	d, stdout, stderr := newDemo(t, brokenService, "SUCCESS_FAST")
	require.Equal(t, exitUnusable, d.run(t.Context()))
	require.Empty(t, stdout.String())
	require.Contains(t, stderr.String(), "forgerun dev ended before it was ready: exit status 3")
	require.Contains(t, stderr.String(), "\ncannot find Postgres\n")
}

func TestDemoServiceEndsBadly(t *testing.T) {
	t.Parallel()
	d, stdout, stderr := newDemo(t, badEndService, "SUCCESS_FAST")
	require.Equal(t, exitDifferent, d.run(t.Context()))
	require.Contains(t, stdout.String(), "All 1 kinds behaved")
	require.Contains(t, stderr.String(), "did not end cleanly: exit status 4")
	d.requireStopped(t)
}

// TestDemoInterrupted stops demos while the service starts and while it is
// toured: neither leaves a process.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	for way, sign := range map[string]string{silentService: "Starting a service", goodService: "kinds finished"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			d, _, stderr := newDemo(t, way, "SCHEDULED_ON_TIME")
			stderr.want, stderr.seen = sign, make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				select {
				case <-stderr.seen:
				case <-time.After(30 * time.Second): // a demo that never says so is interrupted all the same
				}
				cancel()
			}()
			require.Equal(t, exitInterrupted, d.run(ctx), stderr.String())
			require.Contains(t, stderr.String(), sign)
			d.requireStopped(t)
		})
	}
}

func TestDemoRefusesAForeignFolder(t *testing.T) {
	t.Parallel()
	d, _, stderr := newDemo(t, goodService, "SUCCESS_FAST")
	kept := filepath.Join(d.dataDir, "demo", "thesis.txt")
	require.NoError(t, os.MkdirAll(filepath.Dir(kept), 0o700))
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	require.Equal(t, exitUnusable, d.run(t.Context()))
	require.Contains(t, stderr.String(), "nothing was deleted; choose another --data-dir")
	require.FileExists(t, kept)
}

// requireStopped checks that no process of the demo is left: each would hold
// the lock on the folder.
func (d *demo) requireStopped(t *testing.T) {
	t.Helper()
	claimSoon(t, d.dataDir).release()
}
