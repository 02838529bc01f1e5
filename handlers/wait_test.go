package handlers

import (
	"bufio"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

var queuedReport, queuedResult = queuedSelf + "/report", views.ResultPath(backend.QueuedJob)

func (w *world) waiting(method, path, body string, headers ...string) chan *reply {
	w.t.Helper()
	answers := w.inBackground(method, path, body, headers...)
	testkit.Eventually(w.t, "the request waits", func() bool { return w.held() == 1 })
	return answers
}

func (w *world) watchKeys() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Clients.WatchKeys(ctx)
	}()
	w.t.Cleanup(func() { cancel(); <-ended })
	testkit.Eventually(w.t, "the service listens for key changes", func() bool {
		return repotest.Count(w.t, w.URL(), `pg_stat_activity WHERE datname = current_database() AND query ILIKE 'listen %'`) > 0
	})
}

// A request for a job waits for the next change of its state. A request for a report or result waits for the job's end.
// Promise: patterns Submission
func TestGetWaitsForAChangeOfState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, test := range []struct {
		path, match string
		to          []job.State
		status      int
	}{
		{queuedSelf, "-", []job.State{job.Assigned}, 200}, {queuedSelf, "TAG", []job.State{job.Canceled}, 200},
		{queuedSelf, `"1", TAG`, []job.State{job.Assigned}, 200}, {queuedSelf, `*`, []job.State{job.Assigned}, 304},
		{queuedReport, "-", []job.State{job.Assigned, job.Running, job.Succeeded}, 200},
		{queuedReport + "?attempt=1", "-", []job.State{job.Assigned, job.Running, job.Failed}, 200},
		{queuedResult, "-", []job.State{job.Assigned, job.Running, job.Succeeded}, 200}, {queuedResult, "-", []job.State{job.Canceled}, 404},
	} {
		w.Seed()
		match := strings.Replace(test.match, "TAG", w.send("GET", queuedSelf, "").Header.Get("ETag"), 1)
		answers := w.waiting("GET", test.path, "", "Prefer", "wait=20", "If-None-Match", match)
		for _, state := range test.to {
			require.Empty(t, answers, test)
			w.Move(backend.QueuedJob, state)
		}
		a := within(t, answers)
		require.Equal(t, test.status, a.StatusCode, a.text)
		require.Equal(t, "wait=20", a.Header.Get("Preference-Applied"))
		ended := test.to[len(test.to)-1]
		waits := ended == job.Assigned || ended == job.Failed // the state of a failed job may change, because the job may be retried
		require.Equal(t, waits, a.Header.Get("Retry-After") == "1", "only if the job may still change")
	}
}

func TestGetDoesNotWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, test := range []struct{ path, prefer, match, applied string }{
		{jobSelf, "wait=20", "-", "wait=20"}, {failedSelf, "wait=20", "-", "wait=20"}, {queuedSelf, "-", "-", ""},
		{queuedSelf, "wait=soon", "-", ""}, {queuedSelf, "wait=0", "-", "wait=0"},
		{queuedSelf, "wait=20", `W/"1"`, "wait=20"},          // tag of an outdated version
		{queuedSelf, "wait=20", `W/"2-document"`, "wait=20"}, // tag of another representation
	} {
		a := w.send("GET", test.path, "", "Prefer", test.prefer, "If-None-Match", test.match)
		require.Equal(t, 200, a.StatusCode, test)
		require.Equal(t, test.applied, a.Header.Get("Preference-Applied"), test)
	}
	a := w.send("GET", jobSelf, "", "Prefer", "x", "Prefer", "respond-async, wait=40", "Prefer", "wait=3")
	require.Equal(t, "wait=30", a.Header.Get("Preference-Applied"), "header lines form one list")
}

// Promise: patterns Submission
func TestSubmitWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *Config, d *Deps) { d.Clock = nil })
	a := w.submit("", "Prefer", "wait=1, respond-async").requireStatus(t, 202)
	require.Equal(t, "respond-async, wait=1", a.Header.Get("Preference-Applied"))
	require.Contains(t, a.text, `"state":"QUEUED"`, "the last known state")
	require.Equal(t, "1", a.Header.Get("Retry-After"))

	for accept, text := range map[string]string{
		"application/json": `"state":"SUCCEEDED"`, "application/problem+json": `"jobStatus":"COMPLETED"`,
	} {
		answers := w.waiting("POST", "/v1/jobs", leastBody, "Prefer", "wait=60, respond-async", "Accept", accept)
		id := w.Newest()
		w.Move(id, job.Assigned, job.Running, job.Succeeded)
		a = within(t, answers)
		self := views.JobPath(id)
		require.Equal(t, 200, a.StatusCode)
		require.Equal(t, "wait=30", a.Header.Get("Preference-Applied"))
		require.Equal(t, self, a.Header.Get("Location"))
		require.Equal(t, "<"+self+`>; rel="status", <`+self+`/result>; rel="https://forgerun.example/rels/job-result"`, a.Header.Get("Link"))
		require.Contains(t, a.text, text)
		get := w.send("GET", self, "", "Accept", accept)
		require.Equal(t, get.text, a.text)
		for _, name := range []string{"ETag", "Vary", "Content-Type", "Retry-After", "Cache-Control"} {
			require.Equal(t, get.Header.Values(name), a.Header.Values(name), name)
		}
	}

	// An accepted job is acknowledged, whatever happens during the wait.
	answers := w.waiting("POST", "/v1/jobs", leastBody, "Prefer", "wait=20")
	id := w.Newest()
	w.Exec(`DELETE FROM jobs WHERE job_id = $1`, id.String())
	w.Changed(backend.ClientA, id)
	a = within(t, answers)
	require.Equal(t, 202, a.StatusCode)
	require.Equal(t, views.JobPath(id), a.Header.Get("Location"))
}

func TestNoWaitBeyondTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.MaxStreamsPerClient = 1 })
	release, err := w.server.Waits.Acquire(backend.ClientA)
	require.NoError(t, err)
	a := w.send("GET", queuedSelf, "", "Prefer", "wait=5").requireStatus(t, 200)
	require.Empty(t, a.Header.Get("Preference-Applied"))
	a = w.submit("", "Prefer", "wait=5, respond-async").requireStatus(t, 202)
	require.Equal(t, "respond-async", a.Header.Get("Preference-Applied"))
	release()
	for range 2 { // the wait of the first request has ended, so it no longer counts toward the limit
		a = w.send("GET", queuedSelf, "", "Prefer", "wait=1")
		require.Equal(t, "wait=1", a.Header.Get("Preference-Applied"))
	}
}

// Promise: contract 8, 15
func TestUnfinishedJobHasRetryAfter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{queuedReport, queuedResult} {
		w.Seed()
		for prefer, applied := range map[string]string{"-": "", "wait=soon": "", "wait=0": "wait=0"} {
			a := w.send("GET", path, "", "Prefer", prefer)
			require.Contains(t, a.requireProblem(t, job.CodeJobNotFinished).Detail, "QUEUED")
			require.Equal(t, []string{"1", applied}, []string{a.Header.Get("Retry-After"), a.Header.Get("Preference-Applied")}, prefer)
		}
		// After a timeout the response has the current state, not the state at the start of the wait.
		answers := w.waiting("GET", path, "", "Prefer", "wait=1")
		w.Move(backend.QueuedJob, job.Assigned, job.Running)
		late := within(t, answers)
		require.Contains(t, late.requireProblem(t, job.CodeJobNotFinished).Detail, "RUNNING")
		require.Equal(t, []string{"1", "wait=1"}, []string{late.Header.Get("Retry-After"), late.Header.Get("Preference-Applied")})

		w.Exec(scheduled+`, worker_id = NULL WHERE job_id = $1`, backend.QueuedJob.String())
		require.Equal(t, "10", w.send("GET", path, "").Header.Get("Retry-After"), "scheduled for later")
		w.Exec(`DELETE FROM jobs`)
		w.send("GET", path, "").requireProblem(t, job.CodeJobNotFound)
	}
}

var waitingGet = "GET " + queuedSelf + " HTTP/1.1\r\nHost: x\r\nPrefer: wait=30\r\nAuthorization: Bearer " + goodKey + "\r\n\r\n"

func (w *world) held() int {
	total, _ := w.server.Waits.Held()
	return total
}

func TestWaitEndsWithItsClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	for range 3 {
		c := w.dial()
		w.write(c, waitingGet)
		testkit.Eventually(t, "the request waits", func() bool { return w.held() == 1 })
		require.NoError(t, c.Close())
		testkit.Eventually(t, "the wait is no longer counted", func() bool { return w.held() == 0 })
	}
	c := w.dial() // a client that has closed its sending side still gets its response
	w.write(c, waitingGet)
	testkit.Eventually(t, "the request waits", func() bool { return w.held() == 1 })
	require.NoError(t, c.CloseWrite())
	require.Equal(t, 200, w.read(bufio.NewReader(c)).StatusCode)
}

// A client may send its next request while it waits. The next request is answered after the wait, completely and on the same connection.
func TestWaitWithPipelinedRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	c := w.dial()
	in := bufio.NewReader(c)
	for range 3 {
		w.Seed()
		w.write(c, waitingGet)
		testkit.Eventually(t, "the request waits", func() bool { return w.held() == 1 })
		for _, part := range []string{getHealth[:1], getHealth[1:], waitingGet} {
			w.write(c, part)
		}
		w.Move(backend.QueuedJob, job.Canceled)
		for range 3 {
			require.Equal(t, 200, w.read(in).StatusCode)
		}
		w.write(c, getHealth)
		require.Equal(t, 200, w.read(in).StatusCode)
	}
}
