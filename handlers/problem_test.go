package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

// inProse matches parameters and members with rules that the document states only in prose.
var inProse = regexp.MustCompile(`/(cron|time_zone|interval|jitter|media_type|operation|cursor|advance|for|delay|refuse)$|^cursor$|` +
	`/result/body$|` + // the length limit is in bytes, which a schema cannot express
	`/execution_at$|^/job/type$|/work_kind$|^/params/behavior/|` + // further checks by use cases
	`^/jobs/0/(progress|problem|result)$|/effect/(status|reset|to_other_host)$`) // not allowed together with some other members

// TestRequestsAreAsDocumented sends edge cases of each parameter and member. Allowed values must be accepted; other values must be
// refused with an error that names the parameter or member.
func TestRequestsAreAsDocumented(t *testing.T) {
	t.Parallel()
	inPath := func(_, parameter string) string { return "{" + parameter + "}" }
	const anyParams = "{type: object, additionalProperties: true}, " // schema of params, except for the params of CUSTOM
	document := strings.Replace(string(docs.OpenAPI), anyParams, "", 1)
	requests := apitest.Requests(t, []byte(document), true, inPath)
	require.Greater(t, len(requests), 3000)
	apitest.InParallel(t, requests, func(t *testing.T, part []apitest.Request) {
		w, yesterday := newWorld(t, func(c *Config, _ *Deps) { c.TestBed = true }), time.Now().AddDate(0, 0, -1).Format("2006-01-02")
		for _, r := range part {
			if r.Operation == "makeFixtures" && r.Allowed || r.At == "Prefer" && r.Operation == "submitJob" {
				continue // these requests would wait for workers, but the test has no workers
			}
			if strings.Contains(r.At, "/params") {
				r.Body = strings.Replace(r.Body, `"params":`, `"work_kind":"CUSTOM","params":`, 1)
			}
			if r.At == "/since" { // `since` must not be later than the real time
				r.Body = strings.ReplaceAll(r.Body, "2030-01-31", yesterday)
			}
			headers := []string{"Content-Type", r.Media}
			for name, values := range r.Header {
				headers = append(headers, name, values[0])
			}
			if w.dirty && (r.Method != "POST" || r.Path != "/v1/jobs" && r.Path != "/v1/jobs/batch") {
				w.Seed()
				w.dirty = false
			}
			a := w.send(r.Method, backend.Path(r.Path), r.Body, headers...)
			// A batch is accepted even if an item is refused.
			item := r.Operation == "submitBatch" && strings.HasPrefix(r.At, "/jobs/0")
			if r.Allowed = r.Allowed || item || r.In == "path" && r.Operation == "cancelClient"; item && a.StatusCode < 500 {
				continue
			}
			assert.Empty(t, r.Problem(a.StatusCode, a.text, func(r *apitest.Request) bool { return inProse.MatchString(r.At) }))
		}
	})
}

// Promise: contract 14g
// Promise: contract 14i
func TestEveryCodeOfAUseCase(t *testing.T) {
	t.Parallel()
	var refusal error
	w := newKit(t, func(*httpkit.Request) error { return refusal })
	for _, spec := range job.Codes {
		e := job.Errorf(spec.Code, "Some detail.")
		e.RetryAfter, e.Cause = 1500*time.Millisecond, errors.New("planted secret")
		e.Violations = []job.Violation{{Pointer: "/type", Detail: "No."}}
		refusal = fmt.Errorf("wrapped: %w", e)
		before := len(w.log.String())
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
		require.Equal(t, spec.Status >= 500, strings.Contains(w.log.String()[before:], "planted secret"),
			"the log has the cause of server errors")
	}
	refusal = job.Errorf(job.CodeQueueFull, "")
	a := w.submit("")
	require.Equal(t, "1", a.Header.Get("Retry-After"), "at least 1")
	require.Equal(t, job.CodeQueueFull.Spec().Action, a.requireProblem(t, job.CodeQueueFull).Detail)
}

func TestUnknownErrorsAreHidden(t *testing.T) {
	t.Parallel()
	const secret = "pq: password authentication failed for user forgerun at 10.0.0.7"
	var fail func() error
	w := newKit(t, func(*httpkit.Request) error { return fail() })
	for name, with := range map[string]func() error{
		"error":                    func() error { return errors.New(secret) },
		"panic":                    func() error { panic(errors.New(secret)) },
		"internal code":            func() error { return job.Errorf(job.CodeInternal, "%s", secret) },
		"unknown code":             func() error { return job.Errorf("RFA_NOPE", "%s", secret) },
		"canceled without a cause": func() error { return fmt.Errorf("%s: %w", secret, context.Canceled) },
	} {
		fail = with
		before := len(w.log.String())
		for _, a := range []*reply{w.submit(""), w.send("GET", jobSelf, "")} {
			require.Equal(t, job.CodeInternal.Spec().Action, a.requireProblem(t, job.CodeInternal).Detail, name)
			require.NotContains(t, fmt.Sprint(a.text, a.Header), "password", name)
		}
		require.Contains(t, w.log.String()[before:], `"stack":"goroutine`, name)
		require.Contains(t, w.log.String()[before:], "password authentication", name)
	}
}

// Promise: contract 14b
func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	var outcome func(error) error
	var handled atomic.Bool // stays false if the time limit ended before the handler was called
	w := newKit(t, func(r *httpkit.Request) error {
		handled.Store(true)
		<-r.Ctx.Done()
		return outcome(r.Ctx.Err())
	}, func(c *Config, _ *Deps) { c.RequestTimeout = 50 * time.Millisecond })
	for name, timedOut := range map[string]func(error) error{
		"unchanged":          func(err error) error { return err },
		"wrapped":            func(err error) error { return fmt.Errorf("insert: %w", err) },
		"as a storage error": func(err error) error { return &job.Error{Code: job.CodeStorageUnavailable, Detail: "x", Cause: err} },
	} {
		outcome = timedOut
		a := w.submit("")
		a.requireProblem(t, job.CodeTimeout)
		require.Equal(t, "1", a.Header.Get("Retry-After"), name)
	}
	outcome = func(error) error { return job.Errorf(job.CodeIdempotencyConflict, "Other request.") }
	var refused *reply
	testkit.Eventually(t, "the handler is called in time", func() bool {
		handled.Store(false)
		refused = w.submit("")
		return handled.Load()
	})
	refused.requireProblem(t, job.CodeIdempotencyConflict)
}

// Promise: contract 14i
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seen := map[string]bool{}
	for _, own := range []string{"-", "", "abc", backend.Job.String() + "x", "{" + backend.Job.String() + "}", strings.Repeat("a", 300),
		`"><script>`,
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
	for _, key := range []string{"request_id", "client_id", "job_id", "action", "method", "route", "status", "duration", "bytes"} {
		require.Contains(t, lines[1], key)
	}
	require.Equal(t, []any{"submit", "/v1/jobs", backend.ClientA.String()},
		[]any{lines[1]["action"], lines[1]["route"], lines[1]["client_id"]})
	require.NotContains(t, lines[1], "error_code")
	require.NotContains(t, lines[1], "operator")
	require.Equal(t, "RFA_JOB_VALIDATION_FAILED", lines[2]["error_code"])
	require.Equal(t, "unmatched", lines[3]["route"])
	require.Equal(t, []any{true, "ann"}, []any{lines[4]["admin"], lines[4]["operator"]}, "the log has the operator of a change")
	for _, secret := range []string{"hidden", goodKey, "\u00e9"} {
		require.NotContains(t, w.log.String(), secret)
	}
}

// The log line of a refused request names the owner of the API key, even if the key's secret is wrong. If the key is unknown, the line
// names the client in the path.
func TestAuthenticationFailuresNameTheClient(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-somebody"
	key, foreign := otherKey[:16], "/v1/clients/"+backend.ClientB.String()+"/keys/renew"
	a, b := backend.ClientA.String(), backend.ClientB.String()
	s := backend.New(t)
	for _, test := range []struct {
		method, path, authorization string
		client, key                 any
	}{
		{"GET", jobSelf, "Bearer " + key + "_" + secret, b, "otherKey0000"}, {"GET", jobSelf, key + "_" + secret, b, "otherKey0000"},
		{"POST", clientPath("/keys"), "Basic " + secret, a, ""}, {"POST", foreign, "-", b, ""},
		{"POST", "/v1/clients/" + secret + "/keys/renew", "-", "", ""}, {"GET", jobSelf, "Bearer frk_" + secret, "", ""},
	} {
		w := newWorldOn(t, s)
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
		`{"type":"EXECUT"}`:                       " values. /type: There is no such type. Did you mean EXECUTE? It must be",
		`{"type":"EXECUTE","\u001b[31m\u202e":1}`: "/\uFFFD[31m\uFFFD: Unknown member.",
		`{"type":"EXECUTE","a":1,"b":2,"c":3}`:    " 2 more are listed in violations.",
	} {
		require.Contains(t, w.send("POST", "/v1/jobs", body).problem(t).Detail, want)
	}
	for query, want := range map[string]string{
		"limit=0&limit=1&stat=1":  "limit: Must be a whole number from 1 to 100. 2 more are listed in violations.",
		"%1b%5B31m%E2%80%AE=1":    "\uFFFD[31m\uFFFD: Unknown parameter. The query parameters",
		strings.Repeat("a", 4000): strings.Repeat("a", 64) + ": Unknown parameter. The query",
	} {
		require.Contains(t, w.send("GET", "/v1/jobs?"+query, "").requireProblem(t, job.CodeMalformed).Detail, want)
	}
	many := url.Values{}
	for i := range 200 {
		many.Set("state"+strings.Repeat("x", i), "1")
	}
	require.Len(t, w.send("GET", "/v1/jobs?"+many.Encode()[:12_000], "").problem(t).Violations, job.MaxViolations)
}

// Promise: contract 14f
func TestIdempotencyConflictHasIDOfFirstResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.submit("", "Idempotency-Key", "k")
	a := w.submit(`,"params":{}`, "Idempotency-Key", "k")
	a.requireProblem(t, job.CodeIdempotencyConflict)
	require.Contains(t, a.text, `"job_id":"`+first.field(t, "job_id")+`"`)
	require.NotContains(t, a.text, "batch_id")
}
