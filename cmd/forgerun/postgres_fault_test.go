package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPostgresCrashUnderLoad(t *testing.T) {
	s, postgres := newStackWithPostgres(t, env{"FORGERUN_TIME_SCALE": "0.01", "FORGERUN_WORKER_CONCURRENCY": "8"})
	api := s.startLeader()
	u := s.newUser(api)
	s.startWorker(quickLease)
	load := u.startLoad(func() *proc { return api }, 8, func(key string) string {
		return execute("PAYLOAD_SMALL", `"idempotency_key":"`+key+`"`)
	})
	for range 2 {
		before := len(s.acceptedIDs())
		eventually(t, "jobs are accepted", func() bool { return len(s.acceptedIDs()) > before+50 })
		refused := load.refusals()
		require.NoError(t, postgres.Kill())
		eventually(t, "requests are refused", func() bool { return load.refusals() > refused+8 })
		require.NoError(t, postgres.Start(t.Context()))
		s.db.Reset()
	}
	before := len(s.acceptedIDs())
	eventually(t, "jobs are accepted again", func() bool { return len(s.acceptedIDs()) > before+50 })
	for _, a := range load.stop() {
		require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
		require.Nil(t, a.value("job_id"), a.body)
	}
	s.awaitFinal(s.acceptedIDs()...)
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE state = 'FAILED' AND failure_reason <> 'worker-lost'`))
	s.awaitCount("jobs whose submission got no response end too", 0, `SELECT count(*) FROM jobs WHERE finished_at IS NULL`)
	require.Equal(t, s.count(`SELECT count(*) FROM jobs`), s.count(`SELECT count(*) FROM idempotency_keys`), "one job per key")
	s.checkInvariants()
}

func TestPostgresDownAtTheStart(t *testing.T) {
	s, postgres := newStackWithPostgres(t)
	require.NoError(t, postgres.Stop())
	api := s.startAPI()
	worker := s.start("worker")
	require.Equal(t, http.StatusServiceUnavailable, (&user{s: s}).call(api, "GET", "/readyz", "").status)
	require.Equal(t, http.StatusOK, (&user{s: s}).call(api, "GET", "/healthz", "").status)
	require.NoError(t, postgres.Start(t.Context()))
	worker.logged("worker registered")
	u, submitted := s.newUser(api), answer{}
	eventually(t, "a submission is accepted, without a restart", func() bool { // the API returns 503 until its lease is renewed
		submitted = u.trySubmit(api, execute("SUCCESS_FAST"))
		return submitted.status == http.StatusAccepted
	})
	s.await("SUCCEEDED", submitted.text("job_id"))
	s.checkInvariants()
}

// Promise: contract 14b
func TestLockedTable(t *testing.T) {
	s, api, u := newWorking(t, env{"FORGERUN_DB_TIMEOUT": "1s"})
	body := execute("SUCCESS_FAST", `"idempotency_key":"once"`)
	unlock := s.lock(`LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE`)
	refused := u.trySubmit(api, body)
	refused.requireProblem(t, http.StatusServiceUnavailable, "RFA_STORAGE_DB_ERROR")
	unlock()
	require.Zero(t, s.count(`SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM events) + (SELECT count(*) FROM idempotency_keys)`),
		"nothing is half-written")
	s.await("SUCCEEDED", u.submit(api, body))
	s.checkInvariants()
}

// The API never serves a damaged result, and logs the damage.
// Promise: patterns Results
func TestChangedResultIsNotServed(t *testing.T) {
	s, api, u := newWorking(t, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken})
	id := u.submitAndAwait(api, "SUCCEEDED", execute("SUCCESS_FAST"))
	path := "/v1/jobs/" + id + "/result"
	good := u.expect(api, http.StatusOK, "GET", path, "")
	tag := good.header.Get("ETag")
	u.expect(api, http.StatusNotModified, "GET", path, "", "If-None-Match", tag)
	for i, change := range []string{
		`UPDATE results SET body = set_byte(body, 100, get_byte(body, 100) # 1) WHERE job_id = $1`,
		`UPDATE results SET body = set_byte(body, 100, get_byte(body, 100) # 1), sha256 = set_byte(sha256, 0, get_byte(sha256, 0) # 1)
			WHERE job_id = $1`, // only the digest is wrong
	} {
		s.exec(change, id)
		before := sum(api.scrape(), "results_damaged_total")
		for _, r := range []struct {
			by            *user
			method, path  string
			header, value string
		}{
			{u, "GET", path, "Accept", "*/*"},
			{u, "GET", path, "Accept", "application/octet-stream;q=0.5, */*;q=0.1"},
			{u, "GET", path, "Range", "bytes=0-9"},
			{u, "GET", path, "Range", "bytes=999999-"},
			{u, "GET", path, "If-None-Match", tag},
			{u, "GET", path, "If-None-Match", "*"},
			{u, "GET", path, "If-Match", tag},
			{u, "GET", path, "Prefer", "wait=1"},
			{u, "HEAD", path, "Accept", "*/*"},
			{u, "HEAD", path, "If-None-Match", tag},
			{s.operator(operatorsToken), "GET", "/admin" + path, "Accept", "*/*"},
			{s.operator(operatorsToken), "GET", "/admin" + path, "If-None-Match", tag},
		} {
			a := r.by.call(api, r.method, r.path, "", r.header, r.value)
			require.Equal(t, http.StatusInternalServerError, a.status, "%s %s %s: %s", r.method, r.header, r.value, a.body)
			require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
			for _, name := range []string{"ETag", "Repr-Digest", "Content-Digest", "Content-Range", "Expires"} {
				require.Empty(t, a.header.Get(name), "%s of %s %s", name, r.header, r.value)
			}
			if r.method == "GET" {
				a.requireProblem(t, http.StatusInternalServerError, "RFA_INTERNAL")
				require.NotContains(t, a.body, good.body[:50])
			}
			before++
			require.InDelta(t, before, sum(api.scrape(), "results_damaged_total"), 0, "%d: %s %s %s", i, r.method, r.header, r.value)
		}
	}
	require.Contains(t, api.logged("request failed", `"level":"ERROR"`)["error_message"], "damaged result of job "+id)
	u.get(api, id) // the job itself can be read
	require.Equal(t, 1, s.count(`SELECT count(*) FROM results WHERE body IS NOT NULL AND sha256 <> sha256(body)`))
	s.exec(`UPDATE results SET sha256 = sha256(body)`)
	require.Equal(t, http.StatusOK, u.call(api, "GET", path, "").status, "a restored result is served")
	s.checkInvariants()
}
