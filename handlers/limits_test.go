package handlers

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/internal/authlimit"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// fakeAdmission refuses while full, and records who left.
type fakeAdmission struct {
	full bool
	left []bool
}

func (f *fakeAdmission) Full() error { return f.Enter() }

func (f *fakeAdmission) Enter() error {
	if f.full {
		return &job.Error{Code: job.CodeQueueFull, RetryAfter: time.Second, Detail: "Too many wait."}
	}
	return nil
}

func (f *fakeAdmission) Leave(accepted bool) { f.left = append(f.left, accepted) }

func withAdmission(t *testing.T) (*world, *fakeAdmission) {
	a := &fakeAdmission{}
	return newWorld(t, func(_ *Config, d *Deps) { d.Admission, d.BatchAdmission = a, a }), a
}

func TestSubmissionsAreRefusedWhileTooManyWait(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/v1/jobs", "/v1/jobs/batch"} {
		w, a := withAdmission(t)
		a.full = true
		answer := w.send(http.MethodPost, path, `{"not even": `)
		answer.requireProblem(t, job.CodeQueueFull)
		require.Equal(t, "1", answer.Header.Get("Retry-After"))
		require.Empty(t, a.left, "who did not enter does not leave")
		require.Equal(t, 1.0, series(t, w.registry)["submissions_refused_total overload"])
		require.NotContains(t, w.log.String(), "request failed", "Admission tells of all of them")
		w.send(http.MethodPost, path, shortBody, "Authorization", "Bearer nobody's").requireProblem(t, job.CodeInvalidCredentials)
		require.Equal(t, http.StatusOK, w.send(http.MethodGet, "/v1/jobs", "").StatusCode, "reading goes on")

		a.full = false
		require.Equal(t, http.StatusBadRequest, w.send(http.MethodPost, path, `{"not even": `).StatusCode)
		require.Equal(t, []bool{false}, a.left)
	}
	w := newWorld(t)
	w.jobs.err = job.Errorf(job.CodeQueueFull, "Full.")
	w.send(http.MethodPost, "/v1/jobs", shortBody).requireProblem(t, job.CodeQueueFull)
	require.Equal(t, 1.0, series(t, w.registry)["submissions_refused_total queue_full"])
}

func TestSubmissionLeavesBeforeItsClientWaits(t *testing.T) {
	t.Parallel()
	w, a := withAdmission(t)
	w.jobs.await = func(context.Context, func(*job.Job) bool) (*job.Job, error) {
		require.Equal(t, []bool{true}, a.left, "what waits for a job does not wait for storage")
		return nil, nil
	}
	require.Equal(t, http.StatusAccepted, w.submit("", "Prefer", "wait=1").StatusCode)
	require.Equal(t, []bool{true}, a.left)
	w.jobs.submit = func(context.Context, job.Request) (job.Receipt, error) { panic("a fault") }
	w.submit("").requireProblem(t, job.CodeInternal)
	require.Len(t, a.left, 2, "after a panic too")
}

// Of one client's lists only few are read at once, however many it asks for;
// meanwhile another one's are, and submissions, single jobs and changes pass.
func TestOneClientsReadsLeaveOthersTheirs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.StorageConnections = 20 })
	reading, goOn := make(chan job.ID, 100), make(chan struct{})
	w.jobs.list = func(_ context.Context, client job.ID, _ job.Query) (job.Page, error) {
		reading <- client
		<-goOn
		return job.Page{}, nil
	}
	var all sync.WaitGroup
	list := func(key string) {
		all.Go(func() {
			if w.send("GET", "/v1/jobs", "", "Authorization", "Bearer "+key).StatusCode != 200 {
				t.Error("the list failed")
			}
		})
	}
	for range 50 {
		list(goodKey)
	}
	<-reading
	<-reading // of four slots a client gets as many as it leaves free
	list(otherKey)
	require.Equal(t, clientB, <-reading)
	require.Equal(t, 202, w.send("POST", "/v1/jobs", shortBody).StatusCode)
	require.Less(t, w.send("GET", jobSelf, "").StatusCode, 500)
	require.Less(t, w.send("POST", jobSelf+"/cancel", "").StatusCode, 500)
	close(goOn)
	all.Wait()
	require.Len(t, reading, 48)
	for range 2 { // every place was given back
		require.True(t, w.server.Slots.Lists.TryAcquire(clientA))
	}
}

// A stream waits for no place: all of a client's come back at once when a process
// was restarted.
func TestStreamsTakeNoSlots(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	for _, p := range []interface{ TryAcquire(client job.ID) bool }{th.server.Slots.Lists, th.server.Slots.Reads} {
		for p.TryAcquire(clientA) {
		}
	}
	th.open(clientStream) // which fails the test unless the stream begins
}

func TestGuessesAreSlowed(t *testing.T) {
	t.Parallel()
	clock, asked := now, 0
	w := newWorld(t, func(c *Config, d *Deps) {
		d.Attempts = authlimit.New(func() time.Time { return clock }, telemetry.In(nil))
		c.TrustedProxies = conn.Proxies{netip.MustParsePrefix("0.0.0.0/32")} // which Test sends from
	}).full()
	w.clients.seen = func(context.Context, string) { asked++ }
	ask := func(from, key string) *answer {
		return w.send("GET", jobSelf, "", "X-Forwarded-For", from, "Authorization", "Bearer "+key)
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
	require.Equal(t, 101, asked, "nothing is asked for the others")
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
	require.Contains(t, w.log.String(), `"omitted":{"RFA_AUTH_INVALID_CREDENTIALS":97,"RFA_REQUEST_RATE_LIMITED":101}`)
	require.NotContains(t, w.log.String(), "guess-")
}

func TestKeysThatEndedAreNoGuesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 110 {
		require.Equal(t, 401, w.send("GET", jobSelf, "", "Authorization", "Bearer renewable").StatusCode)
		require.Equal(t, 403, w.send("GET", jobSelf, "", "Authorization", "Bearer revoked").StatusCode)
		require.Equal(t, 401, w.send("GET", jobSelf, "", "Authorization", "-").StatusCode)
	}
	require.Equal(t, 200, w.send("POST", clientPath("/keys/renew"), "", "Authorization", "Bearer renewable").StatusCode)
}

// A target in absolute form has a host of its own, which counts.
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
