package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

// Promise: contract 17, 18
func TestRateLimitIsSharedByAllProcesses(t *testing.T) {
	const limit = 120
	s := newStack(t, env{"FORGERUN_RATE_LIMIT_PER_MINUTE": strconv.Itoa(limit)})
	apis := []*proc{s.startAPI(), s.startAPI()}
	u := s.newUser(apis[0])
	passed, last := 0, answer{}
	for i, refusedInARow := 0, 0; refusedInARow < 6; i++ { // stop after six refusals in a row, three by each process
		a := u.call(apis[i%2], "GET", "/v1/jobs/"+unknownJob, "", "X-Forwarded-For", "203.0.113."+strconv.Itoa(i%256)) // header is ignored
		if a.status == http.StatusTooManyRequests {
			refusedInARow, last = refusedInARow+1, a
			continue
		}
		require.Equal(t, http.StatusNotFound, a.status, a.body)
		require.NotEmpty(t, a.header.Get("Ratelimit"))
		passed, refusedInARow = passed+1, 0
	}
	const held = 2 * limit / 60 // each process reserves requests in advance, and some may stay unused
	require.GreaterOrEqual(t, passed, limit-held)
	require.LessOrEqual(t, passed, limit)
	last.requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")

	other := s.newUser(apis[1])
	require.Equal(t, http.StatusNotFound, other.look(apis[0], other.key).status, "another client has its own limit")
}

// Every route that accepts a job limits max_attempts. The error for a larger number names the operator's limit.
// Promise: contract 11
func TestEveryRouteLimitsMaxAttempts(t *testing.T) {
	s, api, u := newService(t, withTestbed, env{"FORGERUN_MAX_RETRIES": "2", "FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken})
	asking := func(n string) string { return execute("SUCCESS_FAST", `"retry":{"max_attempts":`+n+`}`) }
	schedule, _ := u.schedule(api, `{"interval":"24h","job":`+asking("3")+`}`)
	ann := s.operator(operatorsToken)
	const single, inside, item = "/retry/max_attempts", "/job/retry/max_attempts", "/jobs/1/retry/max_attempts"
	for _, r := range []struct {
		by                          *user
		method, path, body, pointer string
	}{
		{u, "POST", "/v1/jobs", `JOB`, single},
		{u, "POST", "/v1/jobs/batch", `{"jobs":[` + asking("3") + `,JOB]}`, item},
		{u, "POST", "/v1/schedules", `{"interval":"24h","job":JOB}`, inside},
		{u, "PATCH", schedule, `{"job":JOB}`, inside},
		{ann, "POST", "/admin/v1/jobs", `{"client_id":"` + u.id + `","job":JOB}`, inside},
	} {
		ask := func(n string) answer {
			return r.by.call(api, r.method, r.path, strings.ReplaceAll(r.body, "JOB", asking(n)))
		}
		require.Less(t, ask("3").status, 300, r.path)
		stored := s.count(`SELECT count(*) FROM jobs`)
		for _, n := range []string{"4", "100", "101", "102", "4294967297", "1e15"} {
			a := ask(n)
			problem := parsed[struct {
				Status     int
				Violations []job.Violation
				Jobs       []struct{ Failure json.RawMessage }
			}](t, a.body)
			if r.pointer == item { // only this item of the batch is refused
				require.Equal(t, http.StatusAccepted, a.status, a.body)
				stored++
				require.NoError(t, json.Unmarshal(problem.Jobs[1].Failure, &problem), a.body)
			} else {
				a.requireProblem(t, http.StatusBadRequest, "RFA_JOB_VALIDATION_FAILED")
			}
			require.Equal(t, http.StatusBadRequest, problem.Status, a.body)
			require.Equal(t, []job.Violation{{Pointer: r.pointer,
				Detail: "This server allows at most 3 attempts, including the first."}}, problem.Violations, "%s %s", r.path, n)
		}
		require.Equal(t, stored, s.count(`SELECT count(*) FROM jobs`), r.path)
	}
	fixture := u.expect(api, http.StatusBadRequest, "POST", "/v1/testbed/fixtures",
		`{"jobs":[{"state":"exhausted","retry":{"max_attempts":4}}]}`)
	require.Contains(t, fixture.body, `"pointer":"/jobs/0/retry"`, "fixtures cannot set max_attempts")
	require.Equal(t, 3, s.count(`SELECT max(max_attempts) FROM jobs`))
}

const operatorsToken = "the-operators-own-token"

// heldAtOnce returns the largest number of the client's jobs that were ASSIGNED or RUNNING at the same time.
func (s *stack) heldAtOnce(client string) int {
	s.t.Helper()
	return s.count(`SELECT coalesce(max(held), 0)::int FROM (
		SELECT sum(change) OVER (ORDER BY occurred_at, change ROWS UNBOUNDED PRECEDING) AS held FROM (
			SELECT occurred_at, CASE WHEN event_name = 'job.assigned' THEN 1 ELSE -1 END AS change FROM events
			WHERE client_id::text = $1 AND (event_name = 'job.assigned'
				OR prev_state IN ('ASSIGNED', 'RUNNING') AND next_state NOT IN ('ASSIGNED', 'RUNNING'))
		) changes
	) sums`, client)
}

// A client never runs more jobs than its limit, even with several workers, a killed worker or an emptied Redis. Jobs over the limit report
// why they wait, and later run. Other clients' jobs do not wait for them.
func TestOneClientRunsNoMoreThanItsLimit(t *testing.T) {
	const most, jobs = 3, 30
	s := newStack(t, env{"FORGERUN_CLIENT_MAX_RUNNING": fmt.Sprint(most), "FORGERUN_TIME_SCALE": "0.5"}, quickLease)
	api := s.startLeader()
	greedy, other := s.newUser(api), s.newUser(api)
	body := `{"type":"EXECUTE","work_kind":"SUCCESS_FAST","auto_retry":true}`
	workers := []*proc{s.startWorker(), s.startWorker(), s.startWorker()} // start first, so that jobs wait only because of the limit
	ids := greedy.submitMany(api, jobs, body)

	throttled := func() int {
		return s.count(`SELECT count(*) FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL AND run_at > now() + interval '1 year'`)
	}
	eventually(t, "jobs over the limit wait only in Postgres", func() bool { return throttled() >= jobs/2 })
	waits := s.text(`SELECT job_id::text FROM jobs WHERE run_at > now() + interval '1 year' ORDER BY job_id DESC LIMIT 1`)
	require.Equal(t, map[string]any{"reason": "CLIENT_LIMIT", "until": nil}, greedy.get(api, waits).value("waiting"))

	quick := other.submitMany(api, 5, execute("PAYLOAD_SMALL"))
	s.awaitFinal(quick...)
	require.Positive(t, throttled(), "the other client's jobs did not wait for these jobs")

	eventually(t, "free slots are used again", func() bool { return s.countJobs(ids, "SUCCEEDED") > most })
	require.NoError(t, s.rdb.FlushAll(s.ctx()).Err())
	workers[0].kill()
	s.awaitFinal(ids...)
	require.Equal(t, jobs, s.countJobs(ids, "SUCCEEDED"))
	require.Equal(t, most, s.heldAtOnce(greedy.id))
	s.checkInvariants()
}

// Clients open more idle connections than the process may have open files. The process and its active connections survive. The test covers
// the API's listener and the admin listener.
func TestIdleConnectionsBeyondFileLimit(t *testing.T) {
	const files, attempts = 256, 2000
	s := newStack(t)
	self := testkit.Program(t, "forgerun")
	shell, err := exec.LookPath("sh")
	require.NoError(t, err)
	p := startProgram(t, shell, s.env, s.knownSecrets, "-c", fmt.Sprintf("ulimit -n %d; exec %s api", files, self))
	s.procs = append(s.procs, p)
	p.waitAPI()
	admin := p.logged("admin listening")["address"].(string)
	u := s.newUser(p)
	for _, addr := range []string{strings.TrimPrefix(p.url, "http://"), admin} {
		established, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		in := bufio.NewReader(established)
		ask := func() {
			_, err := fmt.Fprint(established, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
			require.NoError(t, err)
			response, err := http.ReadResponse(in, nil)
			require.NoError(t, err)
			_, err = in.Discard(int(response.ContentLength))
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, response.StatusCode)
		}
		for n := range attempts {
			silent, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			defer func() { _ = silent.Close() }()
			if n%100 == 0 {
				ask()
			}
		}
		ask()
		require.NoError(t, established.Close())
		u.submit(p, `{"type":"EXECUTE"}`)
	}
	require.Greater(t, p.metric(`connections_refused_total{reason="idle"}`), float64(attempts))
	p.stop()
}

func TestLargeSubmissionsCostMoreRequests(t *testing.T) {
	s := newStack(t, env{"FORGERUN_RATE_LIMIT_PER_MINUTE": "20"})
	api := s.startAPI()
	large := func(bytes int) string {
		return execute("PAYLOAD_SMALL", `"params":{"a":"`+strings.Repeat("x", bytes)+`"}`)
	}
	u := s.newUser(api)
	u.submit(api, large(15<<10))
	u.submit(api, large(200<<10)) // counts as 13 requests
	refused := u.trySubmit(api, large(110<<10))
	refused.requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
	require.Contains(t, refused.body, "This submission counts as 7")
	require.Equal(t, 2, s.count(`SELECT count(*) FROM jobs`))
}
