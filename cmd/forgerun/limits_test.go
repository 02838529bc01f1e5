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
	"time"

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
	for i, refusedInARow := 0, 0; refusedInARow < 6; i++ { // three times by each process
		a := u.call(apis[i%2], "GET", "/v1/jobs/"+unknownJob, "", "X-Forwarded-For", "203.0.113."+strconv.Itoa(i%256)) // changes nothing
		if a.status == http.StatusTooManyRequests {
			refusedInARow, last = refusedInARow+1, a
			continue
		}
		require.Equal(t, http.StatusNotFound, a.status, a.body)
		require.NotEmpty(t, a.header.Get("Ratelimit"))
		passed, refusedInARow = passed+1, 0
	}
	const held = 2 * limit / 60 // requests that processes may hold unused for a moment
	require.GreaterOrEqual(t, passed, limit-held)
	require.LessOrEqual(t, passed, limit)
	last.requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")

	other := s.newUser(apis[1])
	require.Equal(t, http.StatusNotFound, other.look(apis[0], other.key).status, "another client is not concerned")
}

// Promise: contract 17
func TestQueueLimitRefusesAndStillReplays(t *testing.T) {
	s := newStack(t, env{
		"FORGERUN_MAX_QUEUE_SIZE": "5", "FORGERUN_MAX_ACTIVE_JOBS": "7", "FORGERUN_CLIENT_MAX_ACTIVE": "7",
	})
	api := s.startLeader()
	u := s.newUser(api)
	first := execute("PAYLOAD_SMALL", `"idempotency_key":"first"`)
	// For a moment a job may count twice, as accepted here and as found in storage. A submission may be refused too early, but never accepted
	// beyond the limit.
	fill := func(body func() string) {
		eventually(t, "there is room", func() bool { return u.trySubmit(api, body()).status == http.StatusAccepted })
	}
	id := u.submit(api, first)
	for range 4 {
		fill(func() string { return execute("PAYLOAD_SMALL") })
	}
	u.trySubmit(api, execute("PAYLOAD_SMALL")).requireProblem(t, http.StatusServiceUnavailable, "RFA_EXEC_QUEUE_FULL")
	replayed := u.trySubmit(api, first)
	require.Equal(t, http.StatusAccepted, replayed.status, replayed.body)
	require.Equal(t, id, replayed.text("job_id"))
	require.Equal(t, "true", replayed.header.Get("Idempotency-Replayed"))

	later := func() string { return deferred(5 * time.Second) } // waits, but is not queued yet
	fill(later)
	fill(later)
	u.trySubmit(api, later()).requireProblem(t, http.StatusServiceUnavailable, "RFA_EXEC_QUEUE_FULL")
	require.Equal(t, 7, s.count(`SELECT count(*) FROM jobs`))

	s.startWorker()
	s.await("SUCCEEDED", s.acceptedIDs()...)
	eventually(t, "there is room again", func() bool { return u.trySubmit(api, execute("PAYLOAD_SMALL")).status == http.StatusAccepted })
	s.await("SUCCEEDED", s.acceptedIDs()...)
	s.checkInvariants()
}

// Every request with a job may set max_attempts up to the operator's limit. The refusal of a larger number names the limit.
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
			var problem struct {
				Status     int
				Violations []job.Violation
				Jobs       []struct{ Failure json.RawMessage }
			}
			require.NoError(t, json.Unmarshal([]byte(a.body), &problem), a.body)
			if r.pointer == item { // the item before it is accepted
				require.Equal(t, http.StatusAccepted, a.status, a.body)
				stored++
				require.NoError(t, json.Unmarshal(problem.Jobs[1].Failure, &problem), a.body)
			} else {
				a.requireProblem(t, http.StatusBadRequest, "RFA_JOB_VALIDATION_FAILED")
			}
			require.Equal(t, http.StatusBadRequest, problem.Status, a.body)
			require.Equal(t, []job.Violation{{Pointer: r.pointer,
				Detail: "This server allows at most 3 attempts, the first one included."}}, problem.Violations, "%s %s", r.path, n)
		}
		require.Equal(t, stored, s.count(`SELECT count(*) FROM jobs`), r.path)
	}
	fixture := u.expect(api, http.StatusBadRequest, "POST", "/v1/testbed/fixtures",
		`{"jobs":[{"state":"exhausted","retry":{"max_attempts":4}}]}`)
	require.Contains(t, fixture.body, `"pointer":"/jobs/0/retry"`, "a fixture has the attempts of the server")
	require.Equal(t, 3, s.count(`SELECT max(max_attempts) FROM jobs`))
}

const operatorsToken = "the-operators-own-token"

// asOperator sends a request with the operator's token.
func (s *stack) asOperator(api *proc, method, path, body string) answer {
	return (&user{s: s, key: operatorsToken}).call(api, method, path, body)
}

func TestOneClientCannotFillTheService(t *testing.T) {
	s := newStack(t, env{
		"FORGERUN_MAX_ACTIVE_JOBS": "40", "FORGERUN_MAX_QUEUE_SIZE": "40", "FORGERUN_MAX_SCHEDULE_AHEAD": "24h",
		"FORGERUN_ADMIN_TOKEN": operatorsToken,
	})
	one, two := s.startLeader(), s.startAPI()
	greedy, other := s.newUser(one), s.newUser(one)

	const never = `{"type":"DEFERRED","work_kind":"SCHEDULED_ON_TIME","execution_at":"9999-01-01T00:00:00Z"}`
	problem := greedy.trySubmit(one, never)
	problem.requireProblem(t, http.StatusBadRequest, "RFA_JOB_VALIDATION_FAILED")
	require.Contains(t, problem.body, `"pointer":"/execution_at"`)

	greedy.submitBatch(one, `{"jobs":[`+strings.Repeat(deferred(time.Hour)+",", 9)+deferred(time.Hour)+`]}`) // a quarter of 40
	refused := greedy.trySubmit(one, deferred(time.Hour))
	refused.requireProblem(t, http.StatusServiceUnavailable, "RFA_EXEC_QUEUE_FULL")
	require.Contains(t, refused.body, "limit of 10 jobs that are not final")
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	eventually(t, "the other process knows, too", func() bool {
		return greedy.trySubmit(two, execute("PAYLOAD_SMALL")).status == http.StatusServiceUnavailable
	})
	var accepted []string
	for range 8 {
		accepted = append(accepted, other.submit(one, execute("PAYLOAD_SMALL")))
	}

	cancel := "/v1/clients/" + greedy.id + "/jobs/cancel"
	greedy.call(one, "POST", cancel, "").requireProblem(t, http.StatusForbidden, "RFA_AUTH_FORBIDDEN")
	canceled := s.asOperator(one, "POST", cancel, "")
	require.Equal(t, http.StatusOK, canceled.status, canceled.body)
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE client_id = $1 AND finished_at IS NULL`, greedy.id))
	require.Equal(t, 8, s.count(`SELECT count(*) FROM jobs WHERE client_id = $1 AND finished_at IS NULL`, other.id))
	require.JSONEq(t, `{"canceled":0,"more":false}`, s.asOperator(two, "POST", cancel, "").body)
	eventually(t, "there is room again", func() bool {
		return greedy.trySubmit(one, execute("PAYLOAD_SMALL")).status == http.StatusAccepted
	})
	s.startWorker()
	s.await("SUCCEEDED", accepted...)
	s.checkInvariants()
}

// heldAtOnce returns the largest number of a client's jobs that workers held at once, according to the events.
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

// TestOneClientRunsNoMoreThanItsLimit: the limit holds over several workers, one of which is killed, and with an emptied Redis. The
// client's other jobs show why they wait, jobs of other clients overtake them, and all jobs run in the end.
func TestOneClientRunsNoMoreThanItsLimit(t *testing.T) {
	const most, jobs = 3, 30
	s := newStack(t, env{"FORGERUN_CLIENT_MAX_RUNNING": fmt.Sprint(most), "FORGERUN_TIME_SCALE": "0.5"}, quickLease)
	api := s.startLeader()
	greedy, other := s.newUser(api), s.newUser(api)
	body := `{"type":"EXECUTE","work_kind":"SUCCESS_FAST","auto_retry":true}`
	workers := []*proc{s.startWorker(), s.startWorker(), s.startWorker()} // start workers first, so that most jobs wait at the same time
	ids := greedy.submitMany(api, jobs, body)

	throttled := func() int {
		return s.count(`SELECT count(*) FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL AND run_at > now() + interval '1 year'`)
	}
	eventually(t, "what does not fit waits in Postgres alone", func() bool { return throttled() >= jobs/2 })
	waits := s.text(`SELECT job_id::text FROM jobs WHERE run_at > now() + interval '1 year' ORDER BY job_id DESC LIMIT 1`)
	require.Equal(t, map[string]any{"reason": "CLIENT_LIMIT", "until": nil}, greedy.get(api, waits).value("waiting"))

	quick := other.submitMany(api, 5, execute("PAYLOAD_SMALL"))
	s.awaitFinal(quick...)
	require.Positive(t, throttled(), "others did not wait for the greedy one's jobs")

	eventually(t, "slots were given anew", func() bool { return s.countJobs(ids, "SUCCEEDED") > most })
	require.NoError(t, s.rdb.FlushAll(s.ctx()).Err())
	workers[0].kill()
	s.awaitFinal(ids...)
	require.Equal(t, jobs, s.countJobs(ids, "SUCCEEDED"))
	require.Equal(t, most, s.heldAtOnce(greedy.id))
	s.checkInvariants()
}

// More idle connections than the process may open files do not end the process or its clients, on the API and on the admin listener.
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

// A submission counts as one request for each 16 KiB of params, and a batch as one for each job. It is accepted as a whole or refused. If
// it costs more than the limit, it uses the whole limit.
func TestLargeSubmissionsCostMoreRequests(t *testing.T) {
	s := newStack(t, env{"FORGERUN_RATE_LIMIT_PER_MINUTE": "20"})
	api := s.startAPI()
	large := func(bytes int) string {
		return execute("PAYLOAD_SMALL", `"params":{"a":"`+strings.Repeat("x", bytes)+`"}`)
	}
	batch := func(n int) string {
		return `{"jobs":[` + strings.Repeat(execute("PAYLOAD_SMALL")+",", n-1) + execute("PAYLOAD_SMALL") + `]}`
	}
	u, other := s.newUser(api), s.newUser(api)
	u.submit(api, large(15<<10))  // one
	u.submit(api, large(200<<10)) // and thirteen
	refused := u.trySubmit(api, large(110<<10))
	refused.requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
	require.Contains(t, refused.body, "This submission counts as 7")
	u.call(api, "POST", "/v1/jobs/batch", batch(7)).requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
	u.submitBatch(api, batch(3)) // refused requests count as well
	require.Equal(t, 2+3, s.count(`SELECT count(*) FROM jobs`))
	other.submitBatch(api, batch(100))
	other.trySubmit(api, execute("PAYLOAD_SMALL")).requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
}

// Results are stored for a day, and count for the limit for a day, over all processes.
func TestLargeResultsCountForTheDay(t *testing.T) {
	s := newStack(t, env{"FORGERUN_CLIENT_DAILY_STORAGE": "1"})
	apis := []*proc{s.startAPI(), s.startAPI()}
	u, other := s.newUser(apis[0]), s.newUser(apis[0])
	const n = (1 << 20) / (240 << 10) // results of 256 KiB, less what each job has
	for i := range n {
		u.submit(apis[i%2], execute("LARGE_OUTPUT"))
	}
	for _, api := range apis {
		a := u.trySubmit(api, execute("LARGE_OUTPUT"))
		a.requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
		require.Contains(t, a.body, "1 MiB a day")
		u.call(api, "POST", "/v1/jobs/batch", `{"jobs":[`+execute("LARGE_OUTPUT")+`]}`).
			requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
		u.submit(api, execute("SUCCESS_FAST"))
		other.submit(api, execute("LARGE_OUTPUT"))
	}
	require.Equal(t, n+4, s.count(`SELECT count(*) FROM jobs`))
}
