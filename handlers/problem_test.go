package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// Promise: contract 14g
// Promise: contract 14i
func TestEveryCodeOfAUseCase(t *testing.T) {
	t.Parallel()
	for _, spec := range job.Codes {
		w := newWorld(t)
		w.madeUp = true
		e := job.Errorf(spec.Code, "Some detail.")
		e.RetryAfter, e.Cause = 1500*time.Millisecond, errors.New("planted secret")
		e.Violations = []job.Violation{{Pointer: "/type", Detail: "No."}}
		w.jobs.err = fmt.Errorf("wrapped: %w", e)
		a := w.submit("")
		p := a.requireProblem(t, spec.Code)
		require.Equal(t, spec.Title, p.Title)
		for _, part := range []string{"secret", "retryAfter", "wrapped"} {
			require.NotContains(t, a.text, part)
		}
		require.Empty(t, a.Header.Get("Location"))
		wait := ""
		if spec.Code == job.CodeJobNotFinished || spec.Status == 429 || spec.Status == 503 || spec.Status == 504 {
			wait = "2"
		}
		require.Equal(t, wait, a.Header.Get("Retry-After"))
		if spec.Code != job.CodeInternal {
			require.Equal(t, "Some detail.", p.Detail)
		}
		require.Equal(t, spec.Status < 500, len(p.Violations) == 1)
		require.Equal(t, spec.Status >= 500, strings.Contains(w.log.String(), "planted secret"), "the log has the cause of what is our fault")
	}
	w := newWorld(t)
	w.jobs.err = job.Errorf(job.CodeQueueFull, "")
	a := w.submit("")
	require.Equal(t, "1", a.Header.Get("Retry-After"), "at least")
	require.Equal(t, job.CodeQueueFull.Spec().Action, a.requireProblem(t, job.CodeQueueFull).Detail)
}

func TestUnknownErrorsShowNothing(t *testing.T) {
	t.Parallel()
	const secret = "pq: password authentication failed for user forgerun at 10.0.0.7"
	failures := map[string]func() error{
		"error":          func() error { return errors.New(secret) },
		"panic":          func() error { panic(secret) },
		"error panic":    func() error { panic(errors.New(secret)) },
		"nil pointer":    func() error { var j *job.Job; j.Callback = secret; return nil },
		"internal code":  func() error { return job.Errorf(job.CodeInternal, "%s", secret) },
		"unknown code":   func() error { return job.Errorf("RFA_NOPE", "%s", secret) },
		"canceled alone": func() error { return fmt.Errorf("%s: %w", secret, context.Canceled) },
	}
	for name, fail := range failures {
		w := newWorld(t)
		w.jobs.submit = func(context.Context, job.Request) (job.Receipt, error) { return job.Receipt{}, fail() }
		w.jobs.job = func(context.Context, job.ID, job.ID) (*job.Job, error) { return nil, fail() }
		for _, a := range []*answer{w.submit(""), w.send("GET", jobSelf, "")} {
			p := a.requireProblem(t, job.CodeInternal)
			require.Equal(t, job.CodeInternal.Spec().Action, p.Detail, name)
			for _, part := range strings.Fields(secret) {
				require.NotContains(t, a.text, part+" ", name)
			}
			for key, values := range a.Header {
				require.NotContains(t, strings.Join(values, " "), "password", key)
			}
		}
		require.Contains(t, w.log.String(), `"stack":"goroutine`, name)
		if name != "nil pointer" {
			require.Contains(t, w.log.String(), "password authentication", name)
		}
	}
}

// Promise: contract 14b
func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.RequestTimeout = 10 * time.Millisecond })
	var outcome func(error) error
	w.jobs.submit = func(ctx context.Context, _ job.Request) (job.Receipt, error) {
		<-ctx.Done()
		return job.Receipt{JobID: jobID, State: job.Queued, CreatedAt: now}, outcome(ctx.Err())
	}
	for name, timedOut := range map[string]func(error) error{
		"as it is":           func(err error) error { return err },
		"wrapped":            func(err error) error { return fmt.Errorf("insert: %w", err) },
		"as a storage error": func(err error) error { return &job.Error{Code: job.CodeStorageUnavailable, Detail: "x", Cause: err} },
	} {
		outcome = timedOut
		a := w.submit("")
		a.requireProblem(t, job.CodeTimeout)
		require.Equal(t, "1", a.Header.Get("Retry-After"), name)
	}
	outcome = func(error) error { return nil }
	require.Equal(t, 202, w.submit("").StatusCode, "what was committed is acknowledged")
	outcome = func(error) error { return job.Errorf(job.CodeIdempotencyConflict, "Other request.") }
	w.submit("").requireProblem(t, job.CodeIdempotencyConflict)
}

// Promise: contract 14i
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seen := map[string]bool{}
	for _, own := range []string{"-", "", "abc", jobID.String() + "x", "{" + jobID.String() + "}", strings.Repeat("a", 300), `"><script>`,
		"a b", "\xff"} {
		for _, path := range []string{"/v1/jobs", "/no-such-path", "/problems/conflict"} {
			id := w.send("GET", path, "", "X-Request-Id", own).Header.Get("X-Request-Id")
			require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, id)
			require.False(t, seen[id])
			seen[id] = true
		}
	}
	own := "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
	a := w.send("GET", "/no-such-path", "", "X-Request-Id", own)
	require.Equal(t, own, a.Header.Get("X-Request-Id"))
	require.Equal(t, "urn:uuid:"+own, a.problem(t).Instance)
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(`,"idempotency_key":"hidden-key","params":{"x":"hidden-param"}`, "X-Correlation-ID", "evil\u00e9 \"quoted\"")
	w.send("POST", "/v1/jobs", `{"type":"hidden-value"}`)
	w.send("GET", "/hidden-path?hidden=query", "")
	w.send("POST", "/v1/clients", "", "Authorization", "Bearer "+adminKey)
	lines := w.log.Lines(t, nil)
	require.Len(t, lines, 5)
	require.Equal(t, "correlation id ignored", lines[0]["msg"])
	for _, key := range []string{"request_id", "client_id", "action", "method", "route", "status", "duration", "bytes"} {
		require.Contains(t, lines[1], key)
	}
	require.Equal(t, []any{"submit", "/v1/jobs", jobID.String(), clientA.String()},
		[]any{lines[1]["action"], lines[1]["route"], lines[1]["job_id"], lines[1]["client_id"]})
	require.NotContains(t, lines[1], "error_code")
	require.NotContains(t, lines[1], "operator")
	require.Equal(t, "RFA_JOB_VALIDATION_FAILED", lines[2]["error_code"])
	require.Equal(t, "unmatched", lines[3]["route"])
	require.Equal(t, []any{true, "ann"}, []any{lines[4]["admin"], lines[4]["operator"]}, "a change is found by the name of the token")
	for _, secret := range []string{"hidden", goodKey, "\u00e9"} {
		require.NotContains(t, w.log.String(), secret)
	}
}

func TestAuthenticationFailuresAreLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.send("GET", jobSelf, "", "Authorization", "Bearer revoked").requireProblem(t, job.CodeKeyDisabled)
	line := w.log.Lines(t, nil)[0]
	require.Equal(t, []any{"authentication failed", clientB.String(), "revoked-key", "RFA_AUTH_API_KEY_DISABLED"},
		[]any{line["msg"], line["client_id"], line["key_id"], line["error_code"]})
	require.Contains(t, line["reason"], "revoked")
}

// A refused request names a client by its key, whatever else is wrong with that, or by its path. Neither proves anything.
func TestAuthenticationFailuresNameTheClient(t *testing.T) {
	t.Parallel()
	const key, secret = "frk_abcdefghijkl", "a-secret-of-somebody"
	own, foreign := clientPath("/keys"), "/v1/clients/"+clientB.String()+"/keys/renew"
	for _, test := range []struct {
		method, path, authorization string
		client, key                 any
	}{
		{"GET", jobSelf, "Bearer " + key + "_" + secret, clientB.String(), "abcdefghijkl"},
		{"GET", jobSelf, key + "_" + secret, clientB.String(), "abcdefghijkl"},
		{"POST", own, "Bearer " + key + "_" + secret, clientB.String(), "abcdefghijkl"},
		{"POST", own, "Bearer " + secret, clientA.String(), ""},
		{"POST", own, "Basic " + secret, clientA.String(), ""},
		{"POST", foreign, "-", clientB.String(), ""},
		{"POST", "/v1/clients/" + secret + "/keys/renew", "-", "", ""},
		{"GET", jobSelf, "Bearer frk_" + secret, "", ""},
	} {
		w := newWorld(t, func(_ *Config, d *Deps) {
			d.Named = func(_ context.Context, credential string) job.Caller {
				if strings.HasPrefix(credential, key) {
					return job.Caller{ClientID: clientB, KeyID: "abcdefghijkl"}
				}
				return job.Caller{}
			}
		})
		w.send(test.method, test.path, "", "Authorization", test.authorization).requireProblem(t, job.CodeInvalidCredentials)
		line := w.log.Lines(t, map[string]any{"msg": "authentication failed"})[0]
		require.Equal(t, []any{test.client, test.key}, []any{line["client_id"], line["key_id"]}, test)
		require.NotContains(t, w.log.String(), secret)
	}
}

func TestDetailNamesTheFirstViolation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for body, want := range map[string]string{
		`{"type":"EXECUT"}`:               " values. /type: There is no such type. Did you mean EXECUTE? It must be",
		`{"type":"EXECUTE","workKind":1}`: " form. /workKind: This member is not known. Did you mean work_kind?",
		`{}`:                              "/type: This member is required.",
		`{"type":"EXECUTE","\u001b[31m\u202e":1}`: "/\uFFFD[31m\uFFFD: This member is not known.",
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

func TestWrongPathsGetTheRightOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, want := range map[string]string{
		"/v1/job":                            "Did you mean /v1/jobs?",
		"/v1/jobs/":                          "Did you mean /v1/jobs?",
		"/V1/Jobs":                           "Did you mean /v1/jobs?",
		"/jobs":                              "Did you mean /v1/jobs?",
		"/v1/batch/" + jobID.String():        "Did you mean /v1/batches/{id}?",
		jobSelf + "/reports":                 "Did you mean /v1/jobs/{id}/report?",
		jobSelf + "/attempt/1":               "Did you mean /v1/jobs/{id}/attempts/{n}?",
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
func TestRefusedHeadersNameTheirForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.job = finishedJob
	for _, test := range []struct{ method, path, name, value, want string }{
		{"GET", jobSelf, "Authorization", goodKey, "Authorization: Bearer frk_..."},
		{"GET", jobSelf, "Authorization", "Basic eDp5", "Authorization: Bearer frk_..."},
		{"GET", jobSelf, "Accept", "text/html", "Send Accept: application/json, or none."},
		{"GET", jobSelf + "/events", "Accept", "text/html", "application/json or application/problem+json or text/event-stream"},
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
// Promise: contract 14f
func TestIdempotencyConflictNamesWhatWasMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.err = &job.Error{Code: job.CodeIdempotencyConflict, Detail: "It made a job.", JobID: jobID}
	a := w.submit("", "Idempotency-Key", "k")
	a.requireProblem(t, job.CodeIdempotencyConflict)
	require.Contains(t, a.text, `"job_id":"`+jobID.String()+`"`)
	require.NotContains(t, a.text, "batch_id")
}

// Whatever a use case says, nothing can break a line or a terminal with it.
func TestDetailsArePlainAndBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.err = job.Errorf(job.CodeConflict, "a\r\nb\x1b[31m\u202e%s", strings.Repeat("é", 2000))
	p := w.submit("").requireProblem(t, job.CodeConflict)
	require.LessOrEqual(t, len(p.Detail), job.MaxDetailBytes)
	require.Contains(t, p.Detail, "a\uFFFD\uFFFDb\uFFFD[31m\uFFFDé")
}
