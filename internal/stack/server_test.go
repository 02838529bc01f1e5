package stack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// subject is what is tested of both servers.
type subject struct {
	*server
	url         func() string
	stop, crash func() error
}

func (s subject) put(t *testing.T) {
	t.Helper()
	if s.name == "postgres" {
		query(t, s.url(), "CREATE TABLE kept AS SELECT 'yes' AS value")
		return
	}
	require.NoError(t, redisClient(t, s.url()).Set(testContext(t), "kept", "yes", 0).Err())
}

func (s subject) requireKept(t *testing.T) {
	t.Helper()
	if s.name == "postgres" {
		require.Equal(t, "yes", query(t, s.url(), "SELECT value FROM kept"))
		return
	}
	require.Equal(t, "yes", redisClient(t, s.url()).Get(testContext(t), "kept").Val())
}

// ofBoth runs a test for each of the two servers.
func ofBoth(t *testing.T, test func(t *testing.T, start func(ServerOptions) (subject, error))) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, func(o ServerOptions) (subject, error) {
			if o.Dir == "" {
				o.Dir = postgresDir(t)
			}
			p, err := StartPostgres(testContext(t), o)
			if err != nil {
				return subject{}, err
			}
			crash := func() error { return p.Stop(Immediate) }
			t.Cleanup(func() { require.NoError(t, crash()) })
			return subject{p.server, p.URL, func() error { return p.Stop(Fast) }, crash}, nil
		})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, func(o ServerOptions) (subject, error) {
			if o.Dir == "" {
				o.Dir = filepath.Join(tempDir(t), "redis")
			}
			r, err := StartRedis(testContext(t), o)
			if err != nil {
				return subject{}, err
			}
			t.Cleanup(func() { require.NoError(t, r.Kill()) })
			return subject{r.server, r.URL, r.Stop, r.Kill}, nil
		})
	})
}

func TestDataIsKeptOverStopsAndCrashes(t *testing.T) {
	ofBoth(t, func(t *testing.T, start func(ServerOptions) (subject, error)) {
		text, log := newLogger()
		s, err := start(ServerOptions{Logger: log})
		require.NoError(t, err)
		url, port, pid := s.url(), s.Port(), s.PID()
		s.put(t)
		startedAgain := func() {
			t.Helper()
			require.Zero(t, s.PID())
			require.NoError(t, s.Start(testContext(t)))
			require.Equal(t, []any{url, port}, []any{s.url(), s.Port()})
			s.requireKept(t)
		}

		require.NoError(t, s.stop())
		require.NoError(t, s.stop(), "a second stop")
		require.NoError(t, s.crash(), "a stop of what is stopped")
		require.True(t, hasEnded(pid))
		startedAgain()
		require.NotContains(t, s.current.Load().Output(), "recovery", "it was stopped in order")
		again := s.PID()
		require.NoError(t, s.Start(testContext(t)), "a start of what runs")
		require.Equal(t, again, s.PID())

		require.NoError(t, s.crash())
		startedAgain()
		require.False(t, text.contains("although nobody stopped it"))

		require.NoError(t, syscall.Kill(s.PID(), syscall.SIGKILL))
		testkit.Eventually(t, "the death is reported", func() bool { return text.contains("although nobody stopped it") })
		startedAgain()

		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if i%4 == 0 {
					_ = s.Start(testContext(t))
				}
				_ = s.PID()
				if err := s.crash(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.NoError(t, s.crash())
		require.Zero(t, s.PID())
	})
}

// A server has its folder for itself, is out of the terminal's reach, and sees nothing of this process's environment.
func TestServersAreOnTheirOwn(t *testing.T) {
	ofBoth(t, func(t *testing.T, start func(ServerOptions) (subject, error)) {
		s, err := start(ServerOptions{})
		require.NoError(t, err)
		_, err = start(ServerOptions{Dir: s.home.dir})
		require.ErrorContains(t, err, "in use by another running stack")
		require.ErrorContains(t, Remove(s.home.dir), "in use")
		s.put(t)
		s.requireKept(t)
		group, err := syscall.Getpgid(s.PID())
		require.NoError(t, err)
		require.Equal(t, s.PID(), group, "a process group of its own")
		if runtime.GOOS == "linux" {
			require.NotEmpty(t, os.Getenv("HOME"))
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.PID()))
			require.NoError(t, err)
			require.NotContains(t, string(env), "HOME=")
		}
		require.NoError(t, s.stop())
		require.NoError(t, Remove(s.home.dir))
		require.NoDirExists(t, s.home.dir)
		require.NoError(t, Remove(s.home.dir), "a second removal")
	})
}

func TestOrphanIsStoppedFirst(t *testing.T) {
	for _, paused := range []bool{false, true} {
		t.Run(fmt.Sprint("paused ", paused), func(t *testing.T) {
			ofBoth(t, func(t *testing.T, start func(ServerOptions) (subject, error)) {
				first, err := start(ServerOptions{})
				require.NoError(t, err)
				first.put(t)
				orphan := runOrphan(t, first)
				if paused {
					require.NoError(t, orphan.Pause())
				}
				text, log := newLogger()
				second, err := start(ServerOptions{Dir: first.home.dir, Logger: log})
				require.NoError(t, err)
				testkit.Eventually(t, "the orphan is gone", orphan.HasExited)
				require.True(t, text.contains("a former parent left behind"))
				require.False(t, text.contains("signal=killed"), "it ended in order")
				second.requireKept(t)

				orphan = runOrphan(t, second)
				require.NoError(t, Remove(second.home.dir))
				testkit.Eventually(t, "the orphan is gone", orphan.HasExited)
				require.NoDirExists(t, second.home.dir)
			})
		})
	}
}

// runOrphan stops a server and runs its program with neither lock nor owner, as when its parent was killed on a system that
// does not end it.
func runOrphan(t *testing.T, s subject) *Process {
	t.Helper()
	require.NoError(t, s.stop())
	c := s.command(s.path, s.arguments(s.port)...)
	c.DeathSignal = syscall.SIGKILL
	p, err := StartProcess(c)
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	require.NoError(t, s.home.noteRunning(p.PID(), s.port))
	require.NoError(t, p.Await(testContext(t), func(ctx context.Context) (bool, error) { return s.ready(ctx, p.PID(), s.port), nil }))
	return p
}

// Another server on the port may answer: it must not pass for ours.
func TestPortThatIsTaken(t *testing.T) {
	ofBoth(t, func(t *testing.T, start func(ServerOptions) (subject, error)) {
		other, err := start(ServerOptions{})
		require.NoError(t, err)
		s, err := start(ServerOptions{})
		require.NoError(t, err)
		require.NoError(t, s.stop())
		s.port, s.fixed = other.Port(), true
		err = s.Start(testContext(t))
		require.ErrorIs(t, err, errPortTaken)
		require.ErrorContains(t, err, strconv.Itoa(other.Port()))
		s.fixed = false
		require.NoError(t, s.Start(testContext(t)))
		require.NotEqual(t, other.Port(), s.Port(), "its own choice is no promise")
	})
}

func TestRedisConfiguration(t *testing.T) {
	t.Parallel()
	r := newRedis(t, ServerOptions{Settings: map[string]string{"maxmemory": "64mb", "bind": "0.0.0.0"}})
	require.Equal(t, "redis://127.0.0.1:"+strconv.Itoa(r.Port())+"/0", r.URL())
	client := redisClient(t, r.URL())
	for name, want := range map[string]string{
		"maxmemory": strconv.Itoa(64 << 20), "appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction",
		"save": "", "bind": "127.0.0.1", "port": strconv.Itoa(r.Port()), "unixsocket": "",
	} {
		require.Equal(t, want, client.ConfigGet(testContext(t), name).Val()[name], name)
	}
}

func TestMiniredisTimeGoesOn(t *testing.T) {
	t.Parallel()
	m, err := StartMiniredis()
	require.NoError(t, err)
	client := redisClient(t, m.URL)
	require.NoError(t, client.Set(testContext(t), "short", "1", 300*time.Millisecond).Err())
	require.NoError(t, client.Set(testContext(t), "long", "1", time.Hour).Err())
	testkit.Eventually(t, "the key expires", func() bool { return client.Exists(testContext(t), "short").Val() == 0 })
	require.EqualValues(t, 1, client.Exists(testContext(t), "long").Val())
	require.Greater(t, client.TTL(testContext(t), "long").Val(), 58*time.Minute, "no faster than real time")
	require.NoError(t, m.Stop())
	require.NoError(t, m.Stop(), "a second stop")
	require.Error(t, client.Ping(testContext(t)).Err())
}
