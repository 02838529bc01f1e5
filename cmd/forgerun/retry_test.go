package main

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A request says how often its job is tried, how long it waits, and which failures the service retries; the service says the same in
// the job and in the failure. A worker that is killed is a failure like others.
func TestRetriesAsTheRequestSays(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_RETRY_BACKOFF_BASE": "1h", "FORGERUN_RETRY_BACKOFF_MAX": "1h", "FORGERUN_TIME_SCALE": "0.5"})
	api := s.startLeader()
	worker := s.startWorker()
	u := s.newUser(api)
	const list = `{"max_attempts":3,"backoff":{"strategy":"LIST","delays":["1.2s","0s"]}}`
	exhausted := u.submit(api, execute("RETRY_LIMIT_REACHED", `"retry":`+list))
	succeeds := u.submit(api, execute("RETRY_ON_FAIL", `"retry":{"backoff":{"strategy":"CONSTANT","delay":"0s"}}`))
	once := u.submit(api, execute("RETRY_ON_FAIL", `"retry":{"max_attempts":1}`))
	others := u.submit(api, execute("RETRY_ON_FAIL", `"retry":{"codes":["RFA_EXEC_TIMEOUT"],"backoff":{"strategy":"CONSTANT","delay":"0s"}}`))
	asked := u.submit(api, execute("RETRY_ON_FAIL", `"auto_retry":false,"retry":{"backoff":{"strategy":"CONSTANT","delay":"0s"}}`))
	s.await("FAILED", exhausted, once, others, asked)
	s.await("SUCCEEDED", succeeds)

	j := u.get(api, exhausted)
	said, err := json.Marshal(j.value("retry"))
	require.NoError(t, err)
	require.JSONEq(t, list, string(said))
	require.InDelta(t, 3, j.value("max_attempts"), 0)
	require.InDelta(t, 3, j.value("attempt"), 0)
	require.Equal(t, 1, s.count(`SELECT count(*) FROM events WHERE job_id = $1 AND event_name = 'job.retries_exhausted'`, exhausted))
	require.GreaterOrEqual(t, s.waitAfter(exhausted, 1), 1200*time.Millisecond)
	require.Equal(t, 2, s.count(`SELECT failure_retry_after FROM reports WHERE job_id = $1 AND attempt = 1`, exhausted), "in whole seconds")
	require.InDelta(t, 1, u.get(api, once).value("attempt"), 0)
	require.InDelta(t, 1, u.get(api, others).value("attempt"), 0, "the service does not retry that code")
	for _, id := range []string{others, asked} { // the client may, and waits as it said
		a := u.call(api, "POST", "/v1/jobs/"+id+"/retry", "")
		require.Equal(t, http.StatusOK, a.status, a.body)
	}
	s.await("SUCCEEDED", others, asked)

	running := u.submit(api, execute("RUNS_LONG", `"retry":{"backoff":{"strategy":"CONSTANT","delay":"0s"}}`))
	s.await("RUNNING", running)
	worker.kill()
	s.startWorker()
	eventually(t, "it is tried again", func() bool {
		return s.count(`SELECT count(*) FROM events WHERE job_id = $1 AND attempt = 2 AND event_name = 'job.running'`, running) == 1
	})
	u.call(api, "POST", "/v1/jobs/"+running+"/cancel", "")
	s.awaitFinal(s.acceptedIDs()...)
	s.checkInvariants()
}

// waitAfter is the time from the end of an attempt to the start of the next one.
func (s *stack) waitAfter(id string, attempt int) time.Duration {
	s.t.Helper()
	ms := s.count(`SELECT (extract(epoch FROM n.started_at - r.finished_at) * 1000)::int FROM reports r
		JOIN reports n ON n.job_id = r.job_id AND n.attempt = r.attempt + 1 WHERE r.job_id = $1 AND r.attempt = $2`, id, attempt)
	return time.Duration(ms) * time.Millisecond
}
