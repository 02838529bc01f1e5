package handlers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/internal/authlimit"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// countedClients count how often they are asked.
type countedClients struct {
	Clients
	asked atomic.Int64
}

func (c *countedClients) Authenticate(ctx context.Context, bearer string) (job.Caller, error) {
	c.asked.Add(1)
	return c.Clients.Authenticate(ctx, bearer)
}

func TestGuessesAreSlowed(t *testing.T) {
	t.Parallel()
	counted := &countedClients{}
	clock := now
	w := newWorld(t, func(c *Config, d *Deps) {
		counted.Clients, d.Clients = d.Clients, counted
		d.Attempts = authlimit.New(func() time.Time { return clock }, telemetry.In(nil))
		c.TrustedProxies = conn.Proxies{netip.MustParsePrefix("0.0.0.0/32")} // which Test sends from
	}).full()
	ask := func(from, key string) *answer {
		return w.send("GET", jobPath(jobID), "", "X-Forwarded-For", from, "Authorization", "Bearer "+key)
	}
	require.Equal(t, 200, ask("203.0.113.1", goodKey).StatusCode)
	refused := 0
	for i := range 1000 {
		if a := ask("203.0.113.1", fmt.Sprintf("guess-%d", i)); a.StatusCode != 401 {
			a.requireProblem(t, job.CodeRateLimited)
			wait, err := strconv.Atoi(a.Header.Get("Retry-After"))
			require.NoError(t, err)
			require.Positive(t, wait)
			refused++
		}
	}
	require.Equal(t, 900, refused)
	require.EqualValues(t, 101, counted.asked.Load(), "nothing is asked for the others")
	require.Equal(t, 200, ask("203.0.113.1", goodKey).StatusCode, "who was right before is served")
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
	require.Equal(t, 4, failures, "three a second")
	require.Equal(t, 4, requests)
	require.Contains(t, w.log.String(), `"omitted":998`)
	require.NotContains(t, w.log.String(), "guess-")
}

func TestKeysThatEndedAreNoGuesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 300 {
		require.Equal(t, 401, w.send("GET", jobPath(jobID), "", "Authorization", "Bearer renewable").StatusCode)
		require.Equal(t, 403, w.send("GET", jobPath(jobID), "", "Authorization", "Bearer revoked").StatusCode)
		require.Equal(t, 401, w.send("GET", jobPath(jobID), "", "Authorization", "-").StatusCode)
	}
	require.Equal(t, 200, w.send("POST", "/v1/clients/"+clientA.String()+"/keys/renew", "", "Authorization", "Bearer renewable").StatusCode)
}

// A target in absolute form has a host of its own, which counts.
func TestHostOfTheTargetCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.Hosts = func(host string) bool { return host == "localhost" } }).start()
	for head, status := range map[string]int{
		"GET /healthz HTTP/1.1\r\nHost: localhost":                         200,
		"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost":         200,
		"GET http://rebind.example/healthz HTTP/1.1\r\nHost: localhost":    421,
		"GET http://rebind.example/v1/nothing HTTP/1.1\r\nHost: localhost": 421,
		"GET http://localhost/healthz HTTP/1.1\r\nHost: rebind.example":    421,
		"GET /healthz HTTP/1.1\r\nHost: rebind.example":                    421,
		"GET /healthz HTTP/1.1\r\nHost: ":                                  400,
		"GET /healthz HTTP/1.0":                                            421,
		"GET /healthz HTTP/1.1\r\nNo field":                                400,
	} {
		c := w.dial()
		_, err := io.WriteString(c, head+"\r\n\r\n")
		require.NoError(t, err)
		require.Equal(t, status, w.read(bufio.NewReader(c)).StatusCode, head)
	}
}

func TestForeignHostsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.Hosts = func(host string) bool { return host != "forgerun.test" } })
	for _, path := range []string{"/healthz", "/docs", "/v1/jobs", "/v1/nothing"} {
		a := w.send("GET", path, "", "X-Forwarded-Host", "localhost")
		require.Equal(t, 421, a.StatusCode, path)
		p := a.problem(t)
		require.Equal(t, job.CodeMalformed, p.Code)
		require.Contains(t, p.Detail, "forgerun.test")
		require.Contains(t, p.Detail, "FORGERUN_PUBLIC_URL")
	}
}
