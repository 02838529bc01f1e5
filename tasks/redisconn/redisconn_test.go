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
	require.True(t, c.Allow(), "a closed circuit allows all calls")
	c.Report(failure)
	c.Report(failure)
	require.True(t, c.IsOpen())
	require.False(t, c.Allow())

	pause := FirstPause
	for range 6 {
		now = now.Add(pause - time.Nanosecond)
		require.False(t, c.Allow())
		now = now.Add(time.Nanosecond)
		require.True(t, c.Allow(), "one probe after %v", pause)
		require.False(t, c.Allow(), "only one probe")
		c.Report(failure)
		pause = min(2*pause, MaxPause)
	}
	now = now.Add(MaxPause)
	require.True(t, c.Allow())
	c.Report(nil)
	require.False(t, c.IsOpen())
	require.True(t, c.Allow())
	require.Equal(t, []bool{true, false}, changes)
	require.Equal(t, 2, strings.Count(log.String(), "\n"), "one line when it breaks, one when it is whole: %s", &log)

	for range 100 { // intermittent failures
		now = now.Add(logEvery / 20)
		c.Report(failure)
		c.Report(nil)
	}
	require.Equal(t, 2+2*5, strings.Count(log.String(), "\n"), "%s", &log)
}

func TestAsynqLogDoesNotRepeatItself(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := NewAsynqLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})))
	for range 50 {
		l.Warn("Could not remove task id=", 1, " from queue")
		l.Error("Failed to forward scheduled tasks: ", "x")
		l.Info("Starting processing")
		l.Warn("Retry exhausted for task id=", "of a job that failed")
		l.Debug("All queues are empty")
	}
	l.Error("x")
	l.Fatal("it goes on")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 4)
	require.Contains(t, lines[0], "level=WARN")
	require.Contains(t, lines[0], "component=asynq")

	for i := range 1000 {
		l.Warn(i)
	}
	require.LessOrEqual(t, len(l.(*asynqLog).kinds), 101, "memory is bounded")
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	type want struct {
		addrs            []string
		db               int
		user, password   string
		tls, skip        bool
		cluster          bool
		master, sentinel string
	}
	for url, w := range map[string]want{
		"redis://localhost":                               {addrs: []string{"localhost:6379"}},
		"redis://":                                        {addrs: []string{"localhost:6379"}},
		"redis://h:1/3":                                   {addrs: []string{"h:1"}, db: 3},
		"redis://h?db=4":                                  {addrs: []string{"h:6379"}, db: 4},
		"redis://:p%40ss@h:1/":                            {addrs: []string{"h:1"}, password: "p@ss"},
		"redis://u:p@[::1]:7":                             {addrs: []string{"[::1]:7"}, user: "u", password: "p"},
		"redis://[::1]":                                   {addrs: []string{"[::1]:6379"}},
		"redis://::1":                                     {addrs: []string{"[::1]:6379"}},
		"rediss://h":                                      {addrs: []string{"h:6379"}, tls: true},
		"rediss://h?skip_verify=true":                     {addrs: []string{"h:6379"}, tls: true, skip: true},
		"unix:///run/r.sock?db=2":                         {addrs: []string{"/run/r.sock"}, db: 2},
		"redis-socket://:p@/run/r.sock":                   {addrs: []string{"/run/r.sock"}, password: "p"},
		"redis-cluster://u:p@a:1,b:2,c":                   {addrs: []string{"a:1", "b:2", "c:6379"}, user: "u", password: "p", cluster: true},
		"redis-cluster://a?tls=true":                      {addrs: []string{"a:6379"}, cluster: true, tls: true},
		"redis-sentinel://a:1,b/5?master=m":               {addrs: []string{"a:1", "b:26379"}, db: 5, master: "m"},
		"redis-sentinel://:p@a?master=m&tls=true":         {addrs: []string{"a:26379"}, password: "p", master: "m", tls: true},
		"redis-sentinel://a?master=m&sentinel_password=s": {addrs: []string{"a:26379"}, master: "m", sentinel: "s"},
	} {
		o, err := parseURL(url)
		require.NoError(t, err, url)
		got := want{
			addrs: o.Addrs, db: o.DB, user: o.Username, password: o.Password, tls: o.TLSConfig != nil,
			skip:    o.TLSConfig != nil && o.TLSConfig.InsecureSkipVerify,
			cluster: o.IsClusterMode, master: o.MasterName, sentinel: o.SentinelPassword,
		}
		require.Equal(t, w, got, url)
	}
}

// The error is logged, so it must not contain the password.
func TestParseURLRefuses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "localhost:6379", "http://:geheim@h", "redis://:geheim@h:0", "redis://:geheim@h:65536", "redis://:geheim@h:x",
		"redis://:geheim@h:1:2", "redis://:geheim@a,b", "redis://:geheim@h/x", "redis://:geheim@h/-1", "redis://:geheim@h/1/2",
		"redis://:geheim@h?pool_size=3", "redis://:geheim@h?master=m", "redis://:geheim@h?db=x", "redis://:geheim@h#f",
		"redis://:ge/heim@h", "redis://:geheim%zz@h", "redis://:geheim@h?%zz", "unix://:geheim@", "unix://h/run/r.sock",
		"unix:///r?tls=true", "redis-sentinel://:geheim@h", "redis-cluster://:geheim@h/1", "redis-cluster://:geheim@h?db=1",
	} {
		_, err := parseURL(url)
		require.Error(t, err, url)
		require.NotContains(t, err.Error(), "geheim", url)
		_, err = Connect(url, Options{})
		require.Error(t, err, url)
	}
	_, err := parseURL("redis://h?pool_size=3")
	require.ErrorContains(t, err, `a redis:// address has no parameter "pool_size"`)
}
