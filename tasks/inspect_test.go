package tasks_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func inspect(t *testing.T, url string) queue.Inspection {
	t.Helper()
	return redistest.Must(queue.Inspect(t.Context(), url))(t)
}

func TestInspectRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.Connect(t, server.URL())
	i := inspect(t, server.URL())
	s := i.Servers[0]
	require.Equal(t, queue.ServerFacts{
		Address: fmt.Sprint("127.0.0.1:", server.Port()), Product: s.Product, Version: s.Version, Release: s.Release, RunID: s.RunID,
		Role:       "master",
		AppendOnly: "1", AppendFsync: "everysec", Policy: "noeviction", Used: s.Used,
		ClockOffset: s.ClockOffset, RoundTrip: s.RoundTrip,
	}, s)
	require.NotEmpty(t, s.Version)
	require.Positive(t, s.Used)
	require.Positive(t, s.RoundTrip)
	require.Less(t, s.ClockOffset.Abs(), s.RoundTrip/2+time.Millisecond, "the server has the same clock")
	require.Empty(t, i.Paused)
	require.Empty(t, i.Wrong)
	require.Zero(t, r.Client.DBSize(t.Context()).Val(), "Inspect writes nothing")

	require.NoError(t, r.Inspector.PauseQueue("jobs"))
	require.NoError(t, r.Client.SAdd(t.Context(), "asynq:{webhooks}:paused", "a key of another type").Err())
	require.NoError(t, r.Client.Set(t.Context(), "asynq:{webhooks}:pending", "x", 0).Err())
	i = inspect(t, server.URL())
	require.Equal(t, []string{"jobs", "webhooks"}, i.Paused)
	require.Equal(t, map[string]string{"asynq:{webhooks}:pending": "string"}, i.Wrong)
}

// Hosting providers may forbid CONFIG and TIME.
func TestInspectWithFewRights(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.Connect(t, server.URL())
	require.NoError(t, r.Client.Do(t.Context(), "ACL", "SETUSER", "few", "on", ">pass", "~*", "+info", "+get", "+ping").Err())
	s := inspect(t, fmt.Sprintf("redis://few:pass@127.0.0.1:%d", server.Port())).Servers[0]
	require.Equal(t, "1", s.AppendOnly)
	require.Empty(t, s.AppendFsync)
	require.Zero(t, s.RoundTrip)
	require.NoError(t, r.Client.Do(t.Context(), "ACL", "SETUSER", "none", "on", ">pass", "~*").Err())
	_, err := queue.Inspect(t.Context(), fmt.Sprintf("redis://none:pass@127.0.0.1:%d", server.Port()))
	require.ErrorIs(t, err, queue.ErrUnread)
	require.ErrorContains(t, err, "NOPERM")
}

func TestInspectRedisObstacles(t *testing.T) {
	t.Parallel()
	guarded, _ := startRedis(t, nil)
	require.NoError(t, redistest.Connect(t, guarded.URL()).Client.ConfigSet(t.Context(), "requirepass", "right").Err())
	hanging := redistest.Own(t)
	require.NoError(t, hanging.Pause())
	t.Cleanup(func() { require.NoError(t, hanging.Resume()) })
	plain := fmt.Sprint("127.0.0.1:", redistest.Shared(t).Port())
	for _, c := range []struct {
		what, url string
		is        error
	}{
		{"away", "redis://127.0.0.1:1", queue.ErrAway},
		{"no such host", "redis://missing.invalid", queue.ErrAway},
		{"hangs", hanging.URL(), queue.ErrSilent},
		{"no password", guarded.URL(), queue.ErrLogin},
		{"wrong password", fmt.Sprintf("redis://:planted-secret@127.0.0.1:%d", guarded.Port()), queue.ErrLogin},
		{"unknown user", "redis://planted-user:planted-secret@" + plain, queue.ErrLogin},
		{"no such database", "redis://" + plain + "/20000", queue.ErrNoDatabase},
		{"no TLS there", "rediss://" + plain, queue.ErrSilent}, // Redis without TLS takes the handshake as an unfinished line and waits
		{"unknown certificate", "rediss://" + tlsProxy(t, plain), queue.ErrTLS},
		{"closes at once", proxy(t, 1, nil), queue.ErrClosed},
		{"bad address", "redis://:planted-secret@host:port", queue.ErrBadURL},
		{"no cluster", "redis-cluster://" + plain, queue.ErrUnread},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), redistest.Within)
			defer cancel()
			_, err := queue.Inspect(ctx, c.url)
			require.ErrorIs(t, err, c.is)
			require.NotContains(t, err.Error(), "planted-secret")
		})
	}
}
