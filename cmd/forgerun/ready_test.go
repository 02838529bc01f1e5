package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// A worker is unready if Redis answers but refuses writes. If Redis may evict tasks, the worker stays ready and reports the problem.
func TestReadinessFollowsRedisMemory(t *testing.T) {
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
	for name, value := range map[string]string{"maxmemory": "1gb", "maxmemory-policy": "allkeys-lru"} {
		require.NoError(t, s.rdb.ConfigSet(t.Context(), name, value).Err())
	}
	eventually(t, "ready again, but degraded", func() bool {
		status, body := worker.admin("/readyz")
		return status == http.StatusOK && strings.Contains(body, "CONFIG SET maxmemory-policy noeviction")
	})
	_, report := s.doctor(nil)
	require.Contains(t, report, "allkeys-lru")
}

// Many connections with unfinished requests do not block health checks, scrapes or operators.
func TestUnauthenticatedConnectionsDoNotLockTheAdminListener(t *testing.T) {
	const token = "an-operators-long-token"
	s := newStack(t, env{"FORGERUN_ADMIN_TOKEN": token})
	s.secret(token)
	worker := s.startWorker()
	for range 300 { // more than the listener accepts
		c, err := net.Dial("tcp", strings.TrimPrefix(worker.adminURL(), "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = fmt.Fprintf(c, "POST /login HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\n"+
			"Content-Length: 40\r\n\r\nt", c.RemoteAddr())
		require.NoError(t, err)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		eventually(t, path, func() bool {
			status, _ := worker.admin(path)
			return status == http.StatusOK
		})
	}
	list := s.operator(token).call(worker, "GET", "/admin/v1/jobs", "")
	require.Equal(t, http.StatusOK, list.status, list.body)
}

// The admin listener refuses requests with an ambiguous length, because they allow request smuggling.
func TestFramingAtTheAdminListener(t *testing.T) {
	worker := newStack(t, nil).startWorker()
	host := strings.TrimPrefix(worker.adminURL(), "http://")
	first := "POST /readyz HTTP/1.1\r\nHost: " + host + "\r\n"
	second := "GET /healthz HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	for name, text := range map[string]string{
		"a bare LF": first + "A: b\n\r\n", "a folded line": first + "A: b\r\n c\r\n\r\n",
		"a length and a coding":  first + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"a bare LF in a trailer": first + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\n\r\n",
	} {
		c, err := net.Dial("tcp", host)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
		_, err = io.WriteString(c, text+second)
		require.NoError(t, err)
		answers, err := io.ReadAll(c)
		require.NoError(t, err, name)
		require.Equal(t, 1, strings.Count("\n"+string(answers), "\nHTTP/1.1 "), "%s: %q", name, answers)
		require.NotContains(t, string(answers), "HTTP/1.1 200", name)
	}
}

func TestReadinessWhileOtherTablesAreLocked(t *testing.T) {
	s, api, u := newService(t)
	ready := func() bool { return u.call(api, "GET", "/readyz", "").status == http.StatusOK }
	eventually(t, "ready", ready)
	tx, err := s.db.Begin(s.ctx())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(s.ctx(), `LOCK TABLE maintenance_state, goose_db_version, erasures, schedules IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	u.submit(api, execute("SUCCESS_FAST"))
	eventually(t, "ready while they are locked", ready)
}

// If asynq's tools pause the queues, clients and operators see the reason and how to resume.
func TestQueuesPausedInRedis(t *testing.T) {
	s, api, u := newDelivering(t)
	received := u.receive(api, nil)
	readiness := func(words ...string) func() bool {
		return func() bool {
			ready := u.call(api, "GET", "/readyz", "")
			return ready.status == http.StatusOK && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(ready.body, w) })
		}
	}
	for _, name := range []string{"jobs", "webhooks"} {
		require.NoError(t, s.rdb.Set(t.Context(), "asynq:{"+name+"}:paused", 1, 0).Err())
	}
	eventually(t, "readiness names the queues", readiness(`"degraded"`, "DEL 'asynq:{jobs}:paused'", "DEL 'asynq:{webhooks}:paused'"))
	id := u.submit(api, execute("WEBHOOK_SUCCESS"))
	eventually(t, "the client sees the reason", func() bool {
		waiting, _ := u.get(api, id).value("waiting").(map[string]any)
		return waiting["reason"] == "PAUSED"
	})
	_, shown := api.admin("/admin/v1/jobs/" + id)
	require.Contains(t, shown, `"reason":"PAUSED"`, "operators see the reason")
	for _, p := range s.procs {
		eventually(t, "the process reports the pause", func() bool {
			status, body := p.admin("/readyz")
			return status == http.StatusOK && strings.Contains(body, `"degraded"`) && strings.Contains(body, "paused in Redis")
		})
	}
	require.NoError(t, s.rdb.Del(t.Context(), "asynq:{jobs}:paused").Err())
	s.await("SUCCEEDED", id)
	require.Zero(t, s.count(`SELECT count(*) FROM deliveries WHERE state = 'DELIVERED'`))
	require.NoError(t, s.rdb.Del(t.Context(), "asynq:{webhooks}:paused").Err())
	s.requireAllDelivered(received, []string{id})
	eventually(t, "ready", readiness(`"status":"ok"`))
}
