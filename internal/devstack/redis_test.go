package devstack

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/process"
	"github.com/forgerun/forgerun/internal/testkit"
)

func TestRedisKeepsDataOverKillAndStop(t *testing.T) {
	t.Parallel()
	text, log := newLogBuffer()
	r := startRedis(t, RedisOptions{Logger: log})
	url, port := r.URL(), r.Port()
	require.Equal(t, "redis://127.0.0.1:"+strconv.Itoa(port)+"/0", url)
	client := redisClient(t, url)
	require.NoError(t, client.Set(testContext(t), "first", "1", 0).Err())

	require.NoError(t, r.Kill())
	require.NoError(t, r.Kill(), "a second kill")
	require.Zero(t, r.PID())
	require.Error(t, client.Ping(testContext(t)).Err())
	require.NoError(t, r.Start(testContext(t)))
	require.Equal(t, url, r.URL())
	require.Equal(t, "1", client.Get(testContext(t), "first").Val())

	require.NoError(t, client.Set(testContext(t), "second", "2", 0).Err())
	require.NoError(t, r.Stop())
	require.NoError(t, r.Stop(), "a second stop")
	require.NoError(t, r.Start(testContext(t)))
	pid := r.PID()
	require.NoError(t, r.Start(testContext(t)), "a start of what runs")
	require.Equal(t, pid, r.PID())
	require.Equal(t, "2", client.Get(testContext(t), "second").Val())

	require.False(t, text.contains("although nobody stopped it"))
	require.NoError(t, syscall.Kill(r.PID(), syscall.SIGKILL))
	testkit.Eventually(t, "the report", func() bool { return text.contains("although nobody stopped it") })
	require.NoError(t, r.Start(testContext(t)))
}

func TestRedisConfiguration(t *testing.T) {
	t.Parallel()
	r := startRedis(t, RedisOptions{Settings: map[string]string{"maxmemory": "64mb", "bind": "0.0.0.0"}})
	client := redisClient(t, r.URL())
	for name, want := range map[string]string{
		"maxmemory":        strconv.Itoa(64 << 20),
		"appendonly":       "yes",
		"appendfsync":      "everysec",
		"maxmemory-policy": "noeviction",
		"save":             "",
		"bind":             "127.0.0.1",
		"port":             strconv.Itoa(r.Port()),
		"unixsocket":       "",
	} {
		require.Equal(t, want, client.ConfigGet(testContext(t), name).Val()[name], name)
	}
	requirePrivate(t, r.PID())
}

func TestRedisPauseAndResume(t *testing.T) {
	t.Parallel()
	r := startRedis(t, RedisOptions{})
	client := redisClient(t, r.URL())
	require.NoError(t, r.Pause())
	short, cancel := context.WithTimeout(testContext(t), 200*time.Millisecond)
	defer cancel()
	require.Error(t, client.Ping(short).Err())
	require.NoError(t, r.Resume())
	require.NoError(t, client.Ping(testContext(t)).Err())

	require.NoError(t, r.Pause())
	require.NoError(t, r.Stop(), "a paused server is stopped too")
	require.ErrorIs(t, r.Pause(), process.ErrNotRunning)
	require.ErrorIs(t, r.Resume(), process.ErrNotRunning)
}

func TestRedisOrphanIsStoppedFirst(t *testing.T) {
	t.Parallel()
	for _, paused := range []bool{false, true} {
		first := startRedis(t, RedisOptions{})
		require.NoError(t, redisClient(t, first.URL()).Set(testContext(t), "kept", "yes", 0).Err())
		require.NoError(t, first.Stop())
		orphan := runOrphan(t, first.server)
		if paused {
			require.NoError(t, orphan.Pause())
		}
		text, log := newLogBuffer()
		second := startRedis(t, RedisOptions{Dir: first.server.home.dir, Logger: log})
		testkit.Eventually(t, "the orphan is gone", orphan.HasExited)
		require.True(t, text.contains("a former parent left behind"))
		require.False(t, text.contains("signal=killed"), "it ended in order")
		require.Equal(t, "yes", redisClient(t, second.URL()).Get(testContext(t), "kept").Val())
	}
}

func TestRedisPIDFileOfAnotherRedisIsNoOrphan(t *testing.T) {
	t.Parallel()
	other := startRedis(t, RedisOptions{})
	r := startRedis(t, RedisOptions{})
	own := r.server.program.(*redisProgram)
	pid, found := own.orphan(testContext(t))
	require.True(t, found, "its own process is recognised")
	require.Equal(t, r.PID(), pid)
	foreign := &redisProgram{home: other.server.home}
	require.NoError(t, r.Stop())
	require.NoError(t, other.server.home.writePort(r.Port()))
	_, found = foreign.orphan(testContext(t))
	require.False(t, found)
}

// Another Redis on the chosen port answers PING: it must not pass for ours.
func TestRedisTakesAnotherPortWhenItsChoiceIsTaken(t *testing.T) {
	t.Parallel()
	other := startRedis(t, RedisOptions{})
	_, err := StartRedis(testContext(t), RedisOptions{Dir: filepath.Join(tempDir(t), "redis"), Port: other.Port()})
	require.ErrorIs(t, err, errPortTaken)

	r := startRedis(t, RedisOptions{})
	require.NoError(t, r.Stop())
	r.server.port, r.server.fixed = other.Port(), false
	require.NoError(t, r.Start(testContext(t)))
	require.NotEqual(t, other.Port(), r.Port())
}

func TestReservedPortIsNotChosenTwice(t *testing.T) {
	t.Parallel()
	held, err := reservePort()
	require.NoError(t, err)
	_, err = net.ListenPacket("udp4", address(held.number))
	require.Error(t, err)
	require.True(t, portIsFree(held.number), "the server itself can have it")
	held.release()
	again, err := net.ListenPacket("udp4", address(held.number))
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestMiniredisTimeGoesOn(t *testing.T) {
	t.Parallel()
	m, err := StartMiniredis(testContext(t))
	require.NoError(t, err)
	client := redisClient(t, m.URL())
	require.NoError(t, client.Set(testContext(t), "short", "1", 300*time.Millisecond).Err())
	require.NoError(t, client.Set(testContext(t), "long", "1", time.Hour).Err())
	testkit.Eventually(t, "the key expires", func() bool { return client.Exists(testContext(t), "short").Val() == 0 })
	require.EqualValues(t, 1, client.Exists(testContext(t), "long").Val())
	require.Greater(t, client.TTL(testContext(t), "long").Val(), 58*time.Minute, "no faster than real time")
	require.NoError(t, m.Stop())
	require.NoError(t, m.Stop(), "a second stop")
	require.Error(t, client.Ping(testContext(t)).Err())
}
