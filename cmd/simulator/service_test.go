package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asServiceVar makes the test binary play forgerun dev, in the way that its
// value names.
const asServiceVar = "SIMULATOR_TEST_SERVICE"

// The ways.
const (
	goodService   = "good"
	brokenService = "broken"   // ends at once
	silentService = "silent"   // is never ready
	deafService   = "deaf"     // does not listen to SIGTERM
	badEndService = "bad end"  // ends with an error when asked to end
	amnesiac      = "amnesiac" // runs scheduled jobs without regard to their time
)

// serviceMain keeps to what forgerun dev promises: addresses from the
// environment, dev.json while ready, state across restarts, an end on SIGTERM.
func serviceMain() int {
	way, dir := os.Getenv(asServiceVar), os.Getenv("FORGERUN_DATA_DIR")
	fmt.Printf("service %q, time scale %s\n", way, os.Getenv("FORGERUN_TIME_SCALE"))
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	switch way {
	case brokenService:
		fmt.Fprintln(os.Stderr, "cannot find Postgres")
		return 3
	case silentService:
		<-terminate
		return 0
	}
	f := newFake(demoScale)
	if way == amnesiac {
		f.flaws.early = time.Hour
	}
	stateFile, ready := filepath.Join(dir, "state.json"), filepath.Join(dir, readyFile)
	if b, err := os.ReadFile(stateFile); err == nil {
		must(json.Unmarshal(b, &f.fakeState))
	}
	f.start()
	api, err := net.Listen("tcp", os.Getenv("FORGERUN_HTTP_ADDR"))
	must(err)
	admin, err := net.Listen("tcp", os.Getenv("FORGERUN_ADMIN_ADDR"))
	must(err)
	server := &http.Server{Handler: f.handler()}
	go func() { _ = server.Serve(api) }()
	info, err := json.Marshal(map[string]any{
		"url": "http://" + api.Addr().String(), "admin_url": "http://" + admin.Addr().String(), "pid": os.Getpid(),
	})
	must(err)
	must(os.WriteFile(ready+".new", info, 0o600))
	must(os.Rename(ready+".new", ready))
	<-terminate
	if way == deafService {
		<-make(chan struct{})
	}
	must(server.Close())
	f.stop()
	state, err := json.Marshal(f.fakeState)
	must(err)
	must(os.WriteFile(stateFile, state, 0o600))
	must(os.Remove(ready))
	if way == badEndService {
		return 4
	}
	return 0
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// newService gives a service that is played by this test binary.
func newService(t *testing.T, way string) *service {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	f, err := claimFolder(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(f.release)
	s := &service{
		binary: self, dir: f.path, lock: f.lock, stopPatience: 30 * time.Second,
		environ: devEnviron(append(os.Environ(), asServiceVar+"="+way), f.path, demoScale),
	}
	t.Cleanup(func() { _ = s.stop() })
	return s
}

func TestServiceKeepsItsAddressAcrossRestart(t *testing.T) {
	t.Parallel()
	s := newService(t, goodService)
	require.NoError(t, s.start(t.Context()))
	url, pid := s.url, s.child.cmd.Process.Pid
	until := time.Now().Add(100 * time.Millisecond)
	times, err := s.restart(t.Context(), until)
	require.NoError(t, err)
	require.Equal(t, url, s.url)
	require.NotEqual(t, pid, s.child.cmd.Process.Pid)
	require.False(t, times.Restarted.Before(until))
	require.True(t, times.Down.Before(times.Restarted) && times.Restarted.Before(times.Ready))
	require.NoError(t, s.stop())
	require.NoError(t, s.stop(), "a second stop does nothing")
	requireNoProcess(t, pid)
}

func TestServiceThatCannotStart(t *testing.T) {
	t.Parallel()
	s := newService(t, brokenService)
	require.ErrorContains(t, s.start(t.Context()), "forgerun dev ended before it was ready: exit status 3")
	require.Contains(t, s.lastLines(5), "cannot find Postgres")
	require.Error(t, s.stop())
}

func TestServiceThatDoesNotStop(t *testing.T) {
	t.Parallel()
	s := newService(t, deafService)
	require.NoError(t, s.start(t.Context()))
	s.stopPatience = 200 * time.Millisecond
	pid := s.child.cmd.Process.Pid
	require.ErrorContains(t, s.stop(), "had not ended 200ms after SIGTERM and was killed")
	requireNoProcess(t, pid)
}

// TestServiceHoldsTheFolder: a child that outlives its demo keeps the folder
// from being emptied under it.
func TestServiceHoldsTheFolder(t *testing.T) {
	t.Parallel()
	s := newService(t, goodService)
	require.NoError(t, s.start(t.Context()))
	require.NoError(t, s.lock.Close())
	_, err := claimFolder(filepath.Dir(s.dir))
	require.ErrorContains(t, err, fmt.Sprintf("still uses %s (process %d at %s)", s.dir, s.child.cmd.Process.Pid, s.url))
	require.NoError(t, s.stop())
	claimSoon(t, filepath.Dir(s.dir)).release()
}

func TestDevEnviron(t *testing.T) {
	t.Parallel()
	environ := devEnviron([]string{"PATH=/bin", "FORGERUN_DATABASE_URL=postgres://prod", "OTHER=FORGERUN_"}, "/data/demo", 0.02)
	require.Contains(t, environ, "PATH=/bin")
	require.Contains(t, environ, "OTHER=FORGERUN_")
	require.Contains(t, environ, "FORGERUN_DATA_DIR=/data/demo")
	require.Contains(t, environ, "FORGERUN_TIME_SCALE=0.02")
	require.Contains(t, environ, "FORGERUN_WEBHOOK_TIMEOUT=2s")
	require.Contains(t, environ, "FORGERUN_WEBHOOK_ALLOW_PRIVATE=true")
	require.NotContains(t, strings.Join(environ, " "), "postgres://prod")
}

// requireNoProcess checks that the process is gone and has been waited for.
func requireNoProcess(t *testing.T, pid int) {
	t.Helper()
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
}
