package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo/repotest"
)

// Whoever asks is told in time even while both stores hang, on every connection
// that there is.
func TestReadinessWhileStoresHang(t *testing.T) {
	t.Parallel()
	postgres := repotest.Server(t)
	s := newStackOn(t, postgres.URL())
	api := s.startLeader()
	resume := s.hang(postgres)
	require.NoError(t, s.redis.Pause())
	nobody := &user{s: s}
	best := time.Hour
	for tries := 0; tries < 3 && best > 2*readyPatience; tries++ { // the machine may be busy with other tests
		began := time.Now()
		a := nobody.call(api, "GET", "/readyz", "")
		best = min(best, time.Since(began))
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		require.Contains(t, a.body, `"redis":"unreachable"`)
		require.Contains(t, a.body, `"migrations":"unknown"`)
	}
	require.Less(t, best, 2*readyPatience, "one check does not wait for the other")
	resume()
	require.NoError(t, s.redis.Resume())
	eventually(t, "ready again", func() bool { return nobody.call(api, "GET", "/readyz", "").status == http.StatusOK })
}

// A Redis that answers and takes no writes gives no worker anything to do.
func TestReadinessWhileRedisRefusesWrites(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api, worker := s.startAPI(), s.startWorker()
	status := func() int { status, _ := worker.readyz(); return status }
	eventually(t, "ready", func() bool { return status() == http.StatusOK })
	require.NoError(t, s.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	eventually(t, "not ready", func() bool { return status() == http.StatusServiceUnavailable })
	_, body := worker.readyz()
	require.Contains(t, body, `"redis":"refuses writes"`)
	ready := (&user{s: s}).call(api, "GET", "/readyz", "")
	require.Equal(t, []any{http.StatusOK, "degraded"}, []any{ready.status, ready.text("status")}, "jobs are accepted")
	require.NoError(t, s.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	eventually(t, "ready again", func() bool { return status() == http.StatusOK })
}
