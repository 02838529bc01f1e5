package main

import (
	"net/http"
	"sync"
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
	eventually(t, "a submission is accepted, without a restart", func() bool { // the API returns 503 until it has a lease on the job limits
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

func TestReadOnlyPostgres(t *testing.T) {
	s, api, u := newWorking(t)
	id := u.submitAndAwait(api, "SUCCEEDED", execute("SUCCESS_FAST"))
	database := s.text(`SELECT current_database()`)
	s.exec(`ALTER DATABASE "` + database + `" SET default_transaction_read_only = on`)
	s.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)

	eventually(t, "writes are refused", func() bool {
		a := u.trySubmit(api, execute("SUCCESS_FAST"))
		require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
		return a.text("code") == "RFA_STORAGE_UNAVAILABLE" && a.text("detail") == "The database accepts no writes at the moment."
	})
	const connections = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'forgerun api'`
	eventually(t, "the pool has several connections", func() bool {
		var readers sync.WaitGroup
		for range 32 {
			readers.Go(func() { u.call(api, "GET", "/v1/jobs/"+id, "") })
		}
		readers.Wait()
		return s.count(connections) > 1
	})
	began := s.text(`SELECT clock_timestamp()::text`)
	eventually(t, "refused writes close all connections, except the one that listens for key changes", func() bool {
		u.trySubmit(api, execute("SUCCESS_FAST"))
		return s.count(connections+` AND backend_start < $1::text::timestamptz`, began) <= 1
	})
	for range 20 { // some of these connections are older than the change to read-only
		require.Equal(t, http.StatusOK, u.call(api, "GET", "/v1/jobs/"+id, "").status)
	}
	s.writable(database)
	var next string
	eventually(t, "writes are accepted", func() bool {
		a := u.trySubmit(api, execute("SUCCESS_FAST"))
		next = a.text("job_id")
		return a.status == http.StatusAccepted
	})
	s.await("SUCCEEDED", next)
	require.Equal(t, 2, s.count(`SELECT count(*) FROM jobs`), "refused requests left nothing")
	s.checkInvariants()
}

// writable makes the database accept writes again. The test's own session may be read-only too, so writable changes that session first.
func (s *stack) writable(database string) {
	s.t.Helper()
	conn, err := s.db.Acquire(s.ctx())
	require.NoError(s.t, err)
	defer conn.Release()
	_, err = conn.Exec(s.ctx(), `SET default_transaction_read_only = off`)
	require.NoError(s.t, err)
	_, err = conn.Exec(s.ctx(), `ALTER DATABASE "`+database+`" RESET default_transaction_read_only`)
	require.NoError(s.t, err)
}

// Leases survive an exhausted pool, because the heartbeat has its own connection.
// Promise: contract 14b
func TestLeaseSurvivesExhaustedPool(t *testing.T) {
	s := newStack(t, env{
		"FORGERUN_LEASE_TIMEOUT": "4s",
		"FORGERUN_TIME_SCALE":    "0.06", "FORGERUN_LOG_FORMAT": "json", "FORGERUN_DATA_DIR": t.TempDir(), "FORGERUN_DB_TIMEOUT": "2s",
	})
	dev := s.start("dev") // api and worker share one pool
	dev.waitAPI()
	dev.logged("worker registered")
	u := s.newUser(dev)
	ended := u.submitAndAwait(dev, "FAILED", execute("FAIL_IMMEDIATE"))
	id := u.submit(dev, execute("SUCCESS_SLOW")) // takes 5.4 s
	s.await("RUNNING", id)
	unlock := s.lock(`LOCK TABLE reports IN ACCESS EXCLUSIVE MODE`)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 40 { // the pool has 16 connections, so most requests time out
		readers.Go(func() {
			for {
				// 503: no connection was free in time. 504: the request took too long.
				a := u.call(dev, "GET", "/v1/jobs/"+ended+"/report", "")
				if a.err == nil && a.status != http.StatusServiceUnavailable && a.status != http.StatusGatewayTimeout {
					t.Errorf("status %d: %s", a.status, a.body)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	beat := s.text(`SELECT heartbeat_at::text FROM workers`)
	for range 9 { // nine heartbeats take longer than a lease
		eventually(t, "the lease is renewed", func() bool {
			now := s.text(`SELECT heartbeat_at::text FROM workers`)
			defer func() { beat = now }()
			return now != beat
		})
	}
	require.NotContains(t, dev.log.String(), "heartbeat failed")
	require.Contains(t, dev.log.String(), "The database did not answer in time")
	close(stop)
	readers.Wait()
	unlock()
	s.await("SUCCEEDED", id)
	require.Equal(t, 1, s.count(`SELECT count(*) FROM workers`), "one lease, never lost")
	require.Equal(t, 1, s.count(`SELECT fence FROM jobs WHERE job_id = $1`, id))
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
			WHERE job_id = $1`,
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
