package handlers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestEveryCodeOfAUseCase(t *testing.T) {
	t.Parallel()
	for _, spec := range job.Codes {
		w := newWorld(t)
		w.madeUp = true
		w.jobs.submit = func(context.Context, job.Request) (job.Receipt, error) {
			e := job.Errorf(spec.Code, "Some detail.")
			e.RetryAfter, e.Cause = 1500*time.Millisecond, errors.New("planted secret")
			e.Violations = []job.Violation{{Pointer: "/type", Detail: "No."}}
			return job.Receipt{}, fmt.Errorf("wrapped: %w", e)
		}
		a := w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`)
		p := a.requireProblem(t, spec.Code)
		require.Equal(t, spec.Title, p.Title)
		require.NotContains(t, a.text, "secret")
		require.NotContains(t, a.text, "retryAfter")
		require.NotContains(t, a.text, "wrapped")
		require.Empty(t, a.Header.Get("Location"))
		switch {
		case spec.Code == job.CodeJobNotFinished, spec.Status == 429, spec.Status == 503, spec.Status == 504:
			require.Equal(t, "2", a.Header.Get("Retry-After"))
		default:
			require.Empty(t, a.Header.Get("Retry-After"))
		}
		if spec.Code != job.CodeInternal {
			require.Equal(t, "Some detail.", p.Detail)
		}
		require.Equal(t, spec.Status < 500, len(p.Violations) == 1)
		require.Equal(t, spec.Status >= 500, strings.Contains(w.log.String(), "planted secret"), "the log has the cause of what is our fault")
	}
}

func TestRetryAfterIsAtLeastOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.submit = func(context.Context, job.Request) (job.Receipt, error) {
		return job.Receipt{}, job.Errorf(job.CodeQueueFull, "")
	}
	a := w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`)
	require.Equal(t, "1", a.Header.Get("Retry-After"))
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
		for _, a := range []*answer{w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`), w.send("GET", jobPath(jobID), "")} {
			p := a.requireProblem(t, job.CodeInternal)
			require.Equal(t, job.CodeInternal.Spec().Action, p.Detail, name)
			for _, part := range strings.Fields(secret) {
				require.NotContains(t, a.text, part+" ", name)
			}
			for key, values := range a.Header {
				require.NotContains(t, strings.Join(values, " "), "password", key)
			}
		}
		log := w.log.String()
		require.Contains(t, log, `"stack":"goroutine`, name)
		if name != "nil pointer" {
			require.Contains(t, log, "password authentication", name)
		}
	}
}

func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	outcomes := map[string]func(error) error{
		"as it is": func(err error) error { return err },
		"wrapped":  func(err error) error { return fmt.Errorf("insert: %w", err) },
		"as a storage error": func(err error) error {
			return &job.Error{Code: job.CodeStorageUnavailable, Detail: "x", Cause: err}
		},
	}
	for name, outcome := range outcomes {
		w := newWorld(t, func(c *Config, _ *Deps) { c.RequestTimeout = 10 * time.Millisecond })
		w.jobs.submit = func(ctx context.Context, _ job.Request) (job.Receipt, error) {
			<-ctx.Done()
			return job.Receipt{}, outcome(ctx.Err())
		}
		a := w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`)
		a.requireProblem(t, job.CodeTimeout)
		require.Equal(t, "1", a.Header.Get("Retry-After"), name)
	}
}

func TestAnswersAfterTheTimeoutStand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.RequestTimeout = 10 * time.Millisecond })
	conflict := false
	w.jobs.submit = func(ctx context.Context, _ job.Request) (job.Receipt, error) {
		<-ctx.Done()
		if conflict {
			return job.Receipt{}, job.Errorf(job.CodeIdempotencyConflict, "Other request.")
		}
		return job.Receipt{JobID: jobID, State: job.Queued, CreatedAt: now}, nil
	}
	require.Equal(t, 202, w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`).StatusCode, "what was committed is acknowledged")
	conflict = true
	w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`).requireProblem(t, job.CodeIdempotencyConflict)
}

func TestRateLimited(t *testing.T) {
	t.Parallel()
	full := job.Allowance{Policy: "day", Limit: 100, Remaining: -1, Reset: time.Hour, RetryAfter: 90 * time.Second}
	w := newWorld(t, func(_ *Config, d *Deps) { d.Limiter = fakeLimiter{answer: full} })
	w.jobs.submit = func(context.Context, job.Request) (job.Receipt, error) {
		t.Error("the use case was called")
		return job.Receipt{}, nil
	}
	for _, rt := range w.server.routes() {
		a := w.send(rt.method, examplePath(rt), exampleBody(rt))
		if rt.access == public || rt.access == operator {
			require.Equal(t, 200, a.StatusCode)
			continue
		}
		a.requireProblem(t, job.CodeRateLimited)
		require.Equal(t, "90", a.Header.Get("Retry-After"))
		require.Equal(t, `"day";q=100;w=86400`, a.Header.Get("RateLimit-Policy"))
		require.Equal(t, `"day";r=0;t=3600`, a.Header.Get("RateLimit"))
		require.NotContains(t, strings.ToLower(a.text), "retryafter")
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seen := map[string]bool{}
	for _, own := range []string{"-", "", "abc", jobID.String() + "x", "{" + jobID.String() + "}", strings.Repeat("a", 300), `"><script>`,
		"a b", "\xff"} {
		for _, a := range []*answer{
			w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`, "X-Request-Id", own),
			w.send("GET", "/nowhere", "", "X-Request-Id", own),
			w.send("GET", "/problems/conflict", "", "X-Request-Id", own),
		} {
			id := a.Header.Get("X-Request-Id")
			require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, id)
			require.False(t, seen[id])
			seen[id] = true
		}
	}
	own := "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
	a := w.send("GET", "/nowhere", "", "X-Request-Id", own)
	require.Equal(t, own, a.Header.Get("X-Request-Id"))
	require.Equal(t, "urn:uuid:"+own, a.problem(t).Instance)
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.send("POST", "/v1/jobs", `{"type":"EXECUTE","idempotency_key":"hidden-key","params":{"x":"hidden-param"}}`, "X-Correlation-ID",
		"evil\u00e9 \"quoted\"")
	w.send("POST", "/v1/jobs", `{"type":"hidden-value"}`)
	w.send("GET", "/hidden-path?hidden=query", "")
	var lines []map[string]any
	scanner := bufio.NewScanner(strings.NewReader(w.log.String()))
	for scanner.Scan() {
		var line map[string]any
		require.NoError(t, json.Unmarshal(scanner.Bytes(), &line), scanner.Text())
		lines = append(lines, line)
	}
	require.Len(t, lines, 4)
	require.Equal(t, "correlation id ignored", lines[0]["msg"])
	for _, key := range []string{"request_id", "client_id", "action", "method", "route", "status", "duration", "bytes"} {
		require.Contains(t, lines[1], key)
	}
	require.Equal(t, "submit", lines[1]["action"])
	require.Equal(t, "/v1/jobs", lines[1]["route"])
	require.Equal(t, jobID.String(), lines[1]["job_id"])
	require.Equal(t, clientA.String(), lines[1]["client_id"])
	require.NotContains(t, lines[1], "error_code")
	require.Equal(t, "RFA_JOB_VALIDATION_FAILED", lines[2]["error_code"])
	require.Equal(t, "unmatched", lines[3]["route"])
	for _, secret := range []string{"hidden", goodKey, "\u00e9"} {
		require.NotContains(t, w.log.String(), secret)
	}
}

// A change by an operator is found by the name of the token.
func TestAccessLogNamesTheOperator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.send("POST", "/v1/clients", "", "Authorization", "Bearer "+adminKey)
	w.send("GET", jobPath(jobID), "")
	lines := slices.Collect(strings.Lines(w.log.String()))
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], `"admin":true,"operator":"ann"`)
	require.NotContains(t, lines[1], "operator")
}

func TestAuthenticationFailuresAreLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.send("GET", jobPath(jobID), "", "Authorization", "Bearer revoked").requireProblem(t, job.CodeKeyDisabled)
	var line map[string]any
	first, _, _ := strings.Cut(w.log.String(), "\n")
	require.NoError(t, json.Unmarshal([]byte(first), &line))
	require.Equal(t, "authentication failed", line["msg"])
	require.Equal(t, clientB.String(), line["client_id"])
	require.Equal(t, "revoked-key", line["key_id"])
	require.Equal(t, "RFA_AUTH_API_KEY_DISABLED", line["error_code"])
	require.Contains(t, line["reason"], "revoked")
}

func TestAuthenticationTrouble(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server.deps.Clients = brokenClients{}
	a := w.send("GET", jobPath(jobID), "")
	a.requireProblem(t, job.CodeStorageUnavailable)
	require.NotContains(t, w.log.String(), "authentication failed", "it is not the client's fault")
	require.Equal(t, http.StatusServiceUnavailable, a.StatusCode)
}

type brokenClients struct{ *fakeClients }

func (brokenClients) Authenticate(context.Context, string) (job.Caller, error) {
	return job.Caller{}, job.Errorf(job.CodeStorageUnavailable, "Storage cannot be reached.")
}
