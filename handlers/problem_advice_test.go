package handlers

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestDetailNamesTheFirstViolation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for body, want := range map[string]string{
		`{"type":"EXECUT"}`:                            " values. /type: There is no such type. Did you mean EXECUTE? The type must be",
		`{"type":"EXECUTE","work_kind":"SUCCES_FAST"}`: "/work_kind: There is no such work kind. Did you mean SUCCESS_FAST?",
		`{"type":"EXECUTE","workKind":1}`:              " form. /workKind: This member is not known. Did you mean work_kind?",
		`{"typ":"EXECUTE"}`:                            "/typ: This member is not known. Did you mean type?",
		`{}`:                                           "/type: This member is required.",
		`{"type":"EXECUTE","colour":1}`:                "/colour: This member is not known. The object may have type",
		`{"type":"EXECUTE","\u001b[31m\u202e":1}`:      "/\uFFFD[31m\uFFFD: This member is not known.",
		`[1]`: "The body is not of the expected form. The body must be a JSON object.",
	} {
		p := w.send("POST", "/v1/jobs", body).problem(t)
		require.Contains(t, p.Detail, want)
		require.Equal(t, 400, p.Status)
	}
	p := w.send("POST", "/v1/jobs", `{"type":"EXECUTE","a":1,"b":2,"c":3}`).problem(t)
	require.Len(t, p.Violations, 3)
	require.True(t, strings.HasSuffix(p.Detail, " 2 more are in violations."), p.Detail)

	for query, want := range map[string]string{
		"stat=QUEUED":             "stat: This parameter is not known. Did you mean state?",
		"state=QUEUD":             "state: Must be one of CREATED, QUEUED, ASSIGNED, RUNNING, SUCCEEDED, FAILED, CANCELED. Did you mean QUEUED?",
		"work_kind=success-fast":  "Did you mean SUCCESS_FAST?",
		"type=execute":            "Did you mean EXECUTE?",
		"limit=0&limit=1&stat=1":  "limit: Must be a whole number from 1 to 100. 2 more are in violations.",
		"%1b%5B31m%E2%80%AE=1":    "\uFFFD[31m\uFFFD: This parameter is not known. The query parameters",
		"=":                       "The query parameters of this resource are limit, cursor, state",
		strings.Repeat("a", 4000): strings.Repeat("a", 64) + ": This parameter is not known. The query",
	} {
		require.Contains(t, w.send("GET", "/v1/jobs?"+query, "").requireProblem(t, job.CodeMalformed).Detail, want)
	}
	require.Contains(t, w.send("POST", "/v1/webhooks", `{"url":"https://example.com/","events":["job.succeded"]}`).problem(t).Detail,
		"/events/0: There is no such event. Did you mean job.succeeded?")
	many := url.Values{}
	for i := range 200 {
		many.Set("state"+strings.Repeat("x", i), "1")
	}
	require.Len(t, w.send("GET", "/v1/jobs?"+many.Encode()[:12_000], "").problem(t).Violations, job.MaxViolations)
}

func TestWrongMethodsAreToldTheRightOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, want := range map[string]string{
		jobPath(jobID):                   "It has GET, HEAD, DELETE.",
		jobPath(jobID) + "/cancel":       "It has POST.",
		"/v1/jobs":                       "It has GET, HEAD, POST.",
		"/v1/webhooks/" + jobID.String(): "It has GET, HEAD, DELETE, PATCH.",
	} {
		for _, method := range []string{"PUT", "BREW"} {
			a := w.send(method, path, "")
			require.Contains(t, a.requireProblem(t, job.CodeMethodNotAllowed).Detail, want)
			require.NotEmpty(t, a.Header.Get("Allow"))
		}
	}
}

func TestWrongPathsAreToldTheRightOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, want := range map[string]string{
		"/v1/job":                            "Did you mean /v1/jobs?",
		"/v1/jobs/":                          "Did you mean /v1/jobs?",
		"/V1/Jobs":                           "Did you mean /v1/jobs?",
		"/jobs":                              "Did you mean /v1/jobs?",
		"/v1/batch/" + jobID.String():        "Did you mean /v1/batches/{id}?",
		jobPath(jobID) + "/reports":          "Did you mean /v1/jobs/{id}/report?",
		jobPath(jobID) + "/attempt/1":        "Did you mean /v1/jobs/{id}/attempts/{n}?",
		"/v1/jobs/a%0d%0a%1b/reports":        "Did you mean /v1/jobs/{id}/report?",
		"/healtz":                            "Did you mean /healthz?",
		"/openapi.yml":                       "Did you mean /openapi.yaml?",
		"/v1/nothing":                        "",
		"/" + strings.Repeat("a/", 20):       "",
		"/v1/" + strings.Repeat("jobs", 100): "",
	} {
		p := w.send("GET", path, "", "Authorization", "-").requireProblem(t, job.CodeRequestNotFound)
		require.Contains(t, p.Detail, publicURL+"/docs", path)
		require.Contains(t, p.Detail, want, path)
		require.Equal(t, want != "", strings.Contains(p.Detail, "Did you mean"), path)
		require.NotContains(t, p.Detail, "\x1b")
	}
}

// Where a header is refused, the answer shows the right form.
func TestHeadersAreToldTheirForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.job = finishedJob
	for _, test := range []struct{ method, path, name, value, want string }{
		{"GET", jobPath(jobID), "Authorization", "-", "Authorization: Bearer frk_..."},
		{"GET", jobPath(jobID), "Authorization", goodKey, "Authorization: Bearer frk_..."},
		{"GET", jobPath(jobID), "Authorization", "Basic eDp5", "Authorization: Bearer frk_..."},
		{"GET", jobPath(jobID), "Authorization", "Bearer", "Authorization: Bearer frk_..."},
		{"GET", jobPath(jobID), "Accept", "text/html", "Send Accept: application/json, or none."},
		{"GET", jobPath(jobID) + "/events", "Accept", "text/html", "application/json or application/problem+json or text/event-stream"},
		{"POST", "/v1/jobs", "Content-Type", "text/plain", "Send the body as application/json."},
		{"POST", "/v1/jobs", "Content-Encoding", "gzip", "without a Content-Encoding"},
		{"POST", "/v1/jobs", "Idempotency-Key", "a b", "1 to 255 visible ASCII characters. For example: Idempotency-Key: "},
	} {
		body := ""
		if test.method == "POST" {
			body = `{"type":"EXECUTE"}`
		}
		p := w.send(test.method, test.path, body, test.name, test.value).problem(t)
		require.Contains(t, p.Detail, test.want, test)
		require.NotContains(t, p.Detail, "eDp5", "what was sent is not repeated")
	}
}

// What the first request made is named: the key is the client's own.
func TestIdempotencyConflictNamesWhatWasMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.submit = func(context.Context, job.Request) (job.Receipt, error) {
		err := job.Errorf(job.CodeIdempotencyConflict, "It made job %s.", jobID)
		err.JobID = jobID
		return job.Receipt{}, err
	}
	a := w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`, "Idempotency-Key", "k")
	a.requireProblem(t, job.CodeIdempotencyConflict)
	require.Contains(t, a.text, `"job_id":"`+jobID.String()+`"`)
	require.NotContains(t, a.text, "batch_id")
}

// Whatever a use case says, nothing can break a line or a terminal with it.
func TestDetailsArePlainAndBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.submit = func(context.Context, job.Request) (job.Receipt, error) {
		return job.Receipt{}, job.Errorf(job.CodeConflict, "a\r\nb\x1b[31m\u202e%s", strings.Repeat("é", 2000))
	}
	p := w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`).requireProblem(t, job.CodeConflict)
	require.LessOrEqual(t, len(p.Detail), job.MaxDetailBytes)
	require.Contains(t, p.Detail, "a\uFFFD\uFFFDb\uFFFD[31m\uFFFDé")
}
