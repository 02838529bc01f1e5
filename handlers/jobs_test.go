package handlers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

// Promise: patterns Polling
func TestRetryAfterOfAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	get := func() string { return w.send("GET", jobSelf, "").Header.Get("Retry-After") }
	for in, want := range map[string]string{"-1 hour": "1", "0": "1", "1.5 s": "2", "10 s": "10", "1 hour": "60"} {
		w.Exec(scheduled+` WHERE job_id = $1`, backend.Job.String())
		w.Exec(`UPDATE jobs SET execution_at = $2::timestamptz + $3::interval, run_at = $2::timestamptz + $3::interval WHERE job_id = $1`,
			backend.Job.String(), now, in)
		require.Equal(t, want, get(), in)
	}
	w.Exec(running+`, type = 'EXECUTE', execution_at = NULL, queued_at = run_at, started_at = run_at WHERE job_id = $1`, backend.Job.String())
	require.Equal(t, "1", get(), "running")
}

// Promise: contract 8b
// Promise: patterns Retry API
func TestChangesOfAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, change := range []struct {
		method, path, answer string
		status               int
	}{
		{"POST", queuedSelf + "/cancel", `"state":"CANCELED"`, 200}, {"POST", failedSelf + "/retry", `"changed":true,"attempt":3}`, 200},
		{"DELETE", jobSelf, "", 204},
	} {
		for _, body := range []string{"", "{}", " { } \n"} {
			w.Seed()
			a := w.send(change.method, change.path, body).requireStatus(t, change.status)
			require.Contains(t, a.text, change.answer)
		}
		for _, body := range []string{`{"a":1}`, `[]`, `null`, `{`, `{}{}`, ` `, "\x00"} {
			w.send(change.method, change.path, body).requireProblem(t, job.CodeMalformed)
		}
	}
	w.send("DELETE", queuedSelf, "").requireProblem(t, job.CodeConflict)
	w.send("GET", jobSelf, "").requireProblem(t, job.CodeJobGone)
}

// Promise: draft 3.6, 3.7, 6.7
func TestReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for query, attempt := range map[string]string{"": `"attempt":2`, "?attempt=1": `"attempt":1`, "?attempt=2": `"attempt":2`} {
		a := w.send("GET", failedSelf+"/report"+query, "").requireStatus(t, 200)
		require.Contains(t, a.text, attempt)
		require.Equal(t, query != "?attempt=1", a.Header.Get("Retry-After") == "2", "only for a retryable failure")
	}
	require.Equal(t, 404, w.send("GET", failedSelf+"/report?attempt=999999999", "").StatusCode)
	for _, n := range []string{"0", "-1", "+1", "01", "1.0", "x", "1x", "1e1", "9999999999", "%31%00", "٣"} {
		w.send("GET", jobSelf+"/report?attempt="+n, "").requireProblem(t, job.CodeMalformed)
		w.send("GET", jobSelf+"/attempts/"+n, "").requireProblem(t, job.CodeRequestNotFound)
	}
	w.send("GET", jobSelf+"/attempts/4", "").requireProblem(t, job.CodeJobNotFound)
}

func TestClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Equal(t, 201, w.send("POST", "/v1/clients", "", "Authorization", "-").StatusCode)
	keys := clientPath("/keys")
	for body, fresh := range map[string]bool{"": false, "{}": false, `{"rotate":true}`: true, `{"rotate":null}`: false,
		`{"scope":"read"}`: true} {
		w.Seed()
		a := w.send("POST", keys, body).requireStatus(t, 201)
		require.Equal(t, fresh, strings.Contains(a.text, `"api_key":"frk_`), body)
		require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	}
	w.send("POST", keys, "", "Authorization", "Bearer "+otherKey).requireProblem(t, job.CodeClientNotFound)
	a := w.send("POST", keys+"/revoke", `{"key_id":"\u0061`+backend.SomeKey[1:]+`"}`, "Authorization", "Bearer "+adminKey)
	require.Equal(t, 200, a.StatusCode, a.text)
	require.Equal(t, 1, repotest.Count(t, w.URL(), `api_keys WHERE revoked_at IS NOT NULL AND client_id::text LIKE '%a'`))
}

func TestSubmitBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.send("POST", "/v1/jobs/batch",
		`{"jobs":[{"type":"EXECUTE","correlation_id":"own"},{"item_id":"b","type":"NOPE"}],"idempotency_key":"k"}`,
		"Accept-Language", "de", "Prefer", "respond-async, wait=5").requireStatus(t, 202)
	self := "/v1/batches/" + a.field(t, "batch_id")
	require.Equal(t, self, a.Header.Get("Location"))
	for _, part := range []string{
		`{"item_id":"0","job_id":"`, `{"item_id":"b","failure":{"type":"https://forgerun.example/problems/validation-failed"`,
		`"instance":"` + self + `#/jobs/1","code":"RFA_JOB_VALIDATION_FAILED","violations":[{"pointer":"/jobs/1/type",`,
		`"retryable":false,"processingStage":"validation"}}`} {
		require.Contains(t, a.text, part)
	}
	require.Equal(t, "respond-async", a.Header.Get("Preference-Applied"), "the service never waits for a batch")
	require.Empty(t, a.Header.Get("Idempotency-Replayed"))
	require.Contains(t, w.log.String(), `"batch_id":"`+a.field(t, "batch_id")+`"`)
	of := func(a *reply) []string {
		return repotest.All[string](t, w.URL(), `SELECT concat_ws(' ', client_id, request_id, language, correlation_id, traceparent) FROM jobs
			WHERE batch_id = $1`, a.field(t, "batch_id"))
	}
	require.Equal(t, []string{backend.ClientA.String() + " " + a.Header.Get("X-Request-Id") + " de own"}, of(a))

	const one = `{"jobs":[{"type":"EXECUTE","correlation_id":"own"}]}`
	a = w.send("POST", "/v1/jobs/batch", one, "Idempotency-Key", "again", "Traceparent", traceparent)
	require.Contains(t, of(a)[0], clientTrace+" "+traceparent, "headers win")
	a = w.send("POST", "/v1/jobs/batch", one, "Idempotency-Key", "again")
	require.Equal(t, "true", a.Header.Get("Idempotency-Replayed"))
}

func TestBatchItemsCountForRateLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.limits.maxItems = 2
	require.Equal(t, 202, w.send("POST", "/v1/jobs/batch", `{"jobs":[{"type":"EXECUTE"},{"type":"NOPE"}]}`).StatusCode)
	before := repotest.Count(t, w.URL(), "jobs")
	a := w.send("POST", "/v1/jobs/batch", `{"jobs":[{"type":"EXECUTE"},{"type":"EXECUTE"},{"type":"EXECUTE"}]}`)
	a.requireProblem(t, job.CodeRateLimited)
	require.Equal(t, "90", a.Header.Get("Retry-After"))
	require.Equal(t, before, repotest.Count(t, w.URL(), "jobs"))

	const emitting = `{"type":"EMIT_EVENT","event":{"name":"e"}}`
	w.Receivers = 2
	require.Equal(t, 202, w.send("POST", "/v1/jobs", emitting).StatusCode)
	w.send("POST", "/v1/jobs/batch", `{"jobs":[`+emitting+`,`+emitting+`]}`).requireProblem(t, job.CodeRateLimited)
	w.Receivers = 3
	a = w.send("POST", "/v1/jobs", emitting)
	a.requireProblem(t, job.CodeRateLimited)
	require.Contains(t, a.text, "This submission counts as 3")
}

// If the key is revoked during a wait, a read is refused. A submission still gets 202, because the job was accepted before the wait.
func TestKeyIsCheckedAfterAWait(t *testing.T) {
	t.Parallel()
	for _, request := range [][]string{{"GET", queuedSelf, ""}, {"POST", "/v1/jobs", leastBody}} {
		w := newWorld(t)
		w.watchKeys()
		answers := w.waiting(request[0], request[1], request[2], "Prefer", "wait=20")
		require.NoError(t, w.Clients.RevokeKey(t.Context(), job.Caller{Admin: true}, backend.ClientA, goodKey[4:16]))
		a := within(t, answers)
		if request[0] == "GET" {
			a.requireProblem(t, job.CodeKeyDisabled)
			continue
		}
		require.Equal(t, 202, a.StatusCode, a.text)
		require.Contains(t, a.text, `"state":"QUEUED"`)
	}
}
