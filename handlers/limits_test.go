package handlers

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/internal/authlimit"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

func backlogs(b *jobs.Backlog) func(*Config, *Deps) {
	return func(_ *Config, d *Deps) { d.Admission, d.BatchAdmission = b, b }
}

func TestSubmissionsAreRefusedWhileTooManyWait(t *testing.T) {
	t.Parallel()
	s := backend.New(t)
	for _, path := range []string{"/v1/jobs", "/v1/jobs/batch"} {
		backlog := jobs.NewBacklog(1, func() time.Time { return now }, nil, slog.New(slog.DiscardHandler))
		w := newWorldOn(t, s, backlogs(backlog))
		require.NoError(t, backlog.Enter())
		answer := w.send(http.MethodPost, path, `{"not even": `)
		answer.requireProblem(t, job.CodeQueueFull)
		require.Equal(t, "1", answer.Header.Get("Retry-After"))
		require.Equal(t, 1.0, series(t, w.registry)["submissions_refused_total overload"])
		require.NotContains(t, w.log.String(), "request failed", "Admission logs these")
		w.send(http.MethodPost, path, leastBody, "Authorization", "Bearer nobody's").requireProblem(t, job.CodeInvalidCredentials)
		require.Equal(t, http.StatusOK, w.send(http.MethodGet, "/v1/jobs", "").StatusCode, "reads still work")
		backlog.Leave(false)
		require.Equal(t, http.StatusBadRequest, w.send(http.MethodPost, path, `{"not even": `).StatusCode)
		require.NoError(t, backlog.Full(), "the slot was released")
	}
	w := newKit(t, func(*httpkit.Request) error { return job.Errorf(job.CodeQueueFull, "Full.") })
	w.submit("").requireProblem(t, job.CodeQueueFull)
	require.Equal(t, 1.0, series(t, w.registry)["submissions_refused_total queue_full"])
}

// A panic must release the backlog slot.
func TestWaitingClientHoldsNoBacklogSlot(t *testing.T) {
	t.Parallel()
	backlog := jobs.NewBacklog(1, func() time.Time { return now }, nil, slog.New(slog.DiscardHandler))
	s := backend.New(t, func(s *backend.Service) { s.Targets = func(string) string { panic("a fault") } })
	w := newWorldOn(t, s, backlogs(backlog))
	answers := w.waiting("POST", "/v1/jobs", leastBody, "Prefer", "wait=20")
	require.NoError(t, backlog.Full())
	w.Move(w.Newest(), job.Canceled)
	require.Equal(t, http.StatusOK, within(t, answers).StatusCode)
	w.submit(`,"callback":"https://example.com"`).requireProblem(t, job.CodeInternal)
	require.NoError(t, backlog.Enter())
}

func TestListsOfOneClientDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.StorageConnections = 20 })
	lists := w.server.Slots.Lists
	release := w.Lock("batches")
	var answers []chan *reply
	for range 20 {
		answers = append(answers, w.inBackground("GET", batchSelf+"/jobs", ""))
	}
	testkit.Eventually(t, "the client holds all of its slots", func() bool {
		if lists.TryAcquire(backend.ClientA) {
			lists.Release(backend.ClientA)
			return false
		}
		return true
	})
	require.Equal(t, 200, w.send("GET", "/v1/jobs", "", "Authorization", "Bearer "+otherKey).StatusCode)
	require.Equal(t, 202, w.submit("").StatusCode)
	require.Equal(t, 200, w.send("GET", jobSelf, "").StatusCode)
	require.Equal(t, 200, w.send("POST", jobSelf+"/cancel", "").StatusCode)
	release()
	for _, a := range answers {
		require.Equal(t, 200, within(t, a).StatusCode)
	}
	for range 2 {
		require.True(t, lists.TryAcquire(backend.ClientA))
	}
}

// Streams take no slots, because all streams of a client may reconnect together after a restart.
func TestStreamsTakeNoSlots(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	for _, p := range []interface{ TryAcquire(client job.ID) bool }{th.server.Slots.Lists, th.server.Slots.Reads} {
		for p.TryAcquire(backend.ClientA) {
		}
	}
	th.open(clientStream)
}

func TestGuessesAreSlowed(t *testing.T) {
	t.Parallel()
	clock := now
	w := newWorld(t, func(c *Config, d *Deps) {
		d.Attempts = authlimit.New(func() time.Time { return clock }, telemetry.In(nil))
		c.TrustedProxies = conn.Proxies{netip.MustParsePrefix("0.0.0.0/32")} // Kit.Test sends requests from this address
	})
	ask := func(from, key string) *reply {
		return w.send("GET", "/v1/jobs", "", "X-Forwarded-For", from, "Authorization", "Bearer "+key)
	}
	require.Equal(t, 200, ask("203.0.113.1", goodKey).StatusCode)
	refused := 0
	for i := range 200 {
		if a := ask("203.0.113.1", fmt.Sprintf("guess-%d", i)); a.StatusCode != 401 {
			a.requireProblem(t, job.CodeRateLimited)
			wait, err := strconv.Atoi(a.Header.Get("Retry-After"))
			require.NoError(t, err)
			require.Positive(t, wait)
			refused++
		}
	}
	require.Equal(t, 100, refused)
	require.Equal(t, 200, ask("203.0.113.1", goodKey).StatusCode, "a key that succeeded before still works")
	require.Equal(t, 429, ask("203.0.113.1", otherKey).StatusCode)
	require.Equal(t, 200, ask("203.0.113.2", otherKey).StatusCode, "another address")
	clock = clock.Add(time.Second)
	require.Equal(t, 401, ask("203.0.113.1", "guess").StatusCode)

	var failures, requests int
	for line := range strings.Lines(w.log.String()) {
		switch {
		case strings.Contains(line, `"msg":"authentication failed"`):
			failures++
			require.Contains(t, line, `"remote_address":"203.0.113.1"`)
		case strings.Contains(line, `"error_code"`):
			requests++
		}
	}
	require.Equal(t, 4, failures, "three log lines per second")
	require.Equal(t, 4, requests)
	require.Contains(t, w.log.String(), `"omitted":{"RFA_AUTH_INVALID_CREDENTIALS":97,"RFA_REQUEST_RATE_LIMITED":101}`)
	require.NotContains(t, w.log.String(), "guess-")
}

func TestEndedKeysDoNotCountAsGuesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 110 {
		require.Equal(t, 401, w.send("GET", jobSelf, "", "Authorization", "Bearer "+backend.RenewableKey).StatusCode)
		require.Equal(t, 403, w.send("GET", jobSelf, "", "Authorization", "Bearer "+backend.RevokedKey).StatusCode)
		require.Equal(t, 401, w.send("GET", jobSelf, "", "Authorization", "-").StatusCode)
	}
	require.Equal(t, 200, w.send("POST", clientPath("/keys/renew"), "", "Authorization", "Bearer "+backend.RenewableKey).StatusCode)
}

// If the request target is an absolute URL, its host takes precedence over the Host header.
func TestForeignHostsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.Hosts = func(host string) bool { return host == "localhost" } }).start()
	for status, heads := range map[int][]string{
		200: {"GET /healthz HTTP/1.1\r\nHost: localhost", "GET http://localhost/healthz HTTP/1.1\r\nHost: localhost"},
		421: {"GET http://rebind.example/healthz HTTP/1.1\r\nHost: localhost", "GET http://rebind.example/v1/nothing HTTP/1.1\r\nHost: localhost",
			"GET http://localhost/healthz HTTP/1.1\r\nHost: rebind.example", "GET /docs HTTP/1.1\r\nHost: rebind.example",
			"GET /v1/jobs HTTP/1.1\r\nHost: rebind.example\r\nX-Forwarded-Host: localhost", "GET /healthz HTTP/1.0"},
		400: {"GET /healthz HTTP/1.1\r\nHost: ", "GET /healthz HTTP/1.1\r\nNo field"},
	} {
		for _, head := range heads {
			a, _ := w.raw(head + "\r\n\r\n")
			require.Equal(t, status, a.StatusCode, head)
			if status == 421 {
				require.Contains(t, a.problem(t).Detail, "FORGERUN_PUBLIC_URL")
			}
		}
	}
}
