package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo/repotest"
)

// Whoever asks is told while both stores hang, on every connection that there is.
func TestReadinessWhileStoresHang(t *testing.T) {
	t.Parallel()
	postgres := repotest.Server(t)
	s := newStackOn(t, postgres.URL())
	api := s.startLeader()
	resume := s.hang(postgres)
	require.NoError(t, s.redis.Pause())
	nobody := &user{s: s}
	a := nobody.call(api, "GET", "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Contains(t, a.body, `"redis":"unreachable"`)
	require.Contains(t, a.body, `"migrations":"unknown"`)
	resume()
	require.NoError(t, s.redis.Resume())
	eventually(t, "ready again", func() bool { return nobody.call(api, "GET", "/readyz", "").status == http.StatusOK })
}

// A Redis that answers and takes no writes gives no worker anything to do.
func TestReadinessWhileRedisRefusesWrites(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api, worker := s.startAPI(), s.startWorker()
	status := func() int { status, _ := worker.admin("/readyz"); return status }
	eventually(t, "ready", func() bool { return status() == http.StatusOK })
	require.NoError(t, s.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	eventually(t, "not ready", func() bool { return status() == http.StatusServiceUnavailable })
	_, body := worker.admin("/readyz")
	require.Contains(t, body, `"redis":"refuses writes"`)
	eventually(t, "degraded: jobs are accepted", func() bool {
		ready := (&user{s: s}).call(api, "GET", "/readyz", "")
		return ready.status == http.StatusOK && ready.text("status") == "degraded"
	})
	require.NoError(t, s.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	eventually(t, "ready again", func() bool { return status() == http.StatusOK })
}
