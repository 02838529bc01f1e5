package stack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

type subject struct {
	*server
	url func() string
}

func (s subject) storeValue(t *testing.T) {
	t.Helper()
	if s.name == "postgres" {
		query(t, s.url(), "CREATE TABLE kept AS SELECT 'yes' AS value")
		return
	}
	require.Equal(t, "+OK", ask(t, s.server, "SET kept yes")[0])
}

func (s subject) requireKept(t *testing.T) {
	t.Helper()
	if s.name == "postgres" {
		require.Equal(t, "yes", query(t, s.url(), "SELECT value FROM kept"))
		return
	}
	require.Contains(t, ask(t, s.server, "GET kept"), "yes")
}

func forBothServers(t *testing.T, test func(t *testing.T, start func(ServerOptions) subject)) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, func(o ServerOptions) subject {
			p := newPostgres(t, o)
			return subject{p.server, p.URL}
		})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, func(o ServerOptions) subject {
			r := newRedis(t, o)
			return subject{r.server, r.URL}
		})
	})
}

func (s subject) requireIsolated(t *testing.T) {
	t.Helper()
	require.ErrorContains(t, (&home{dir: s.home.dir}).acquire(), "in use by another forgerun process")
	if os.Geteuid() == 0 {
		require.NotNil(t, s.home.user)
		require.NotZero(t, s.home.user.Uid)
		require.EqualValues(t, s.home.user.Uid, userOf(t, s.home.path(dataName)))
		require.Zero(t, userOf(t, s.home.dir), "the home belongs to root")
	}
	if runtime.GOOS == "linux" {
		process := fmt.Sprintf("/proc/%d/", s.PID())
		stat, err := os.ReadFile(process + "stat")
		require.NoError(t, err)
		_, numbers, _ := strings.Cut(string(stat), ") ")
		require.Equal(t, strconv.Itoa(s.PID()), strings.Fields(numbers)[2], "a process group of its own")
		require.NotEmpty(t, os.Getenv("HOME"))
		env, err := os.ReadFile(process + "environ")
		require.NoError(t, err)
		require.NotContains(t, string(env), "HOME=")
		if os.Geteuid() == 0 {
			require.EqualValues(t, s.home.user.Uid, userOf(t, process))
		}
	}
}

func TestDataSurvivesStopsAndCrashes(t *testing.T) {
	forBothServers(t, func(t *testing.T, start func(ServerOptions) subject) {
		text, log := newLogger()
		s := start(ServerOptions{Logger: log})
		s.requireIsolated(t)
		url, port, pid := s.url(), s.Port(), s.PID()
		s.storeValue(t)
		startedAgain := func() {
			t.Helper()
			require.Zero(t, s.PID())
			require.NoError(t, s.Start(testContext(t)))
			require.Equal(t, []any{url, port}, []any{s.url(), s.Port()})
			s.requireKept(t)
		}

		require.NoError(t, s.Stop())
		require.NoError(t, s.Stop(), "a second stop")
		require.NoError(t, s.Kill(), "killing a stopped server")
		require.True(t, hasEnded(pid))
		startedAgain()
		require.NotContains(t, s.current.Load().Output(), "recovery", "a clean stop needs no recovery")
		again := s.PID()
		require.NoError(t, s.Start(testContext(t)), "starting a running server")
		require.Equal(t, again, s.PID())

		require.NoError(t, s.Kill())
		startedAgain()
		require.False(t, text.contains("ended unexpectedly"))

		require.NoError(t, signalTo(s.PID(), syscall.SIGKILL))
		testkit.Eventually(t, "the death is reported", func() bool { return text.contains("ended unexpectedly") })
		startedAgain()

		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if i%4 == 0 {
					_ = s.Start(testContext(t))
				}
				_ = s.PID()
				if err := s.Kill(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.NoError(t, s.Kill())
		require.Zero(t, s.PID())
	})
}

func TestOrphanIsStoppedFirst(t *testing.T) {
	for _, paused := range []bool{false, true} {
		t.Run(fmt.Sprint("paused ", paused), func(t *testing.T) {
			forBothServers(t, func(t *testing.T, start func(ServerOptions) subject) {
				first := start(ServerOptions{})
				first.storeValue(t)
				orphan := runOrphan(t, first)
				if paused {
					require.NoError(t, orphan.Pause())
				}
				text, log := newLogger()
				second := start(ServerOptions{Dir: first.home.dir, Logger: log})
				testkit.Eventually(t, "the orphan is gone", orphan.HasExited)
				require.True(t, text.contains("the previous server is still running"))
				second.requireKept(t)

				orphan = runOrphan(t, second)
				parent := &home{dir: filepath.Dir(second.home.dir)}
				require.NoError(t, parent.removeServers())
				testkit.Eventually(t, "the orphan is gone", orphan.HasExited)
				require.NoDirExists(t, parent.dir)
			})
		})
	}
}

// runOrphan stops a server and starts its program unsupervised. On a system without death signals, a killed parent leaves such servers.
func runOrphan(t *testing.T, s subject) *Process {
	t.Helper()
	require.NoError(t, s.Stop())
	c := s.command(s.path, s.arguments()...)
	running, err := s.home.claim(testContext(t), s.log)
	require.NoError(t, err)
	c.DeathSignal, c.Files = syscall.SIGKILL, []*os.File{running}
	p, err := StartProcess(c)
	require.NoError(t, err)
	require.NoError(t, running.Close())
	t.Cleanup(p.Kill)
	require.NoError(t, s.home.noteRunning(p.PID()))
	require.NoError(t, p.Await(testContext(t), func(ctx context.Context) bool { return s.ready(ctx, p.PID()) }))
	return p
}

func TestPortInUse(t *testing.T) {
	forBothServers(t, func(t *testing.T, start func(ServerOptions) subject) {
		other := start(ServerOptions{})
		s := start(ServerOptions{})
		require.NoError(t, s.Stop())
		s.port = other.Port()
		err := s.Start(testContext(t))
		require.ErrorContains(t, err, "Address already in use")
		require.ErrorContains(t, err, strconv.Itoa(other.Port()))
	})
}

func TestRedisConfiguration(t *testing.T) {
	t.Parallel()
	r := newRedis(t, ServerOptions{Settings: map[string]string{"maxmemory": "64mb", "bind": "0.0.0.0"}})
	require.Equal(t, "redis://127.0.0.1:"+strconv.Itoa(r.Port())+"/0", r.URL())
	for name, want := range map[string]string{
		"maxmemory": strconv.Itoa(64 << 20), "appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction",
		"save": "", "bind": "127.0.0.1", "port": strconv.Itoa(r.Port()), "unixsocket": "",
	} {
		require.Equal(t, want, ask(t, r.server, "CONFIG GET "+name)[4], name)
	}
}
