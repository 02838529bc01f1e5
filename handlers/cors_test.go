package handlers

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/cors"
	"github.com/forgerun/forgerun/job"
)

const (
	pageOrigin  = "https://app.example.com"
	otherOrigin = "https://evil.example"
)

func withOrigins(t *testing.T, list string) func(*Config, *Deps) {
	t.Helper()
	origins, err := cors.Parse(list)
	require.NoError(t, err)
	return func(c *Config, _ *Deps) { c.Origins = origins }
}

func preflightHeaders(origin string) []string {
	return []string{"Authorization", "-", "Origin", origin, "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "authorization,content-type,idempotency-key"}
}

// A browser's question is answered whatever the path, without anybody being asked.
func TestPreflight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withOrigins(t, pageOrigin))
	for _, path := range []string{"/v1/jobs", jobSelf, "/v1/nothing", "/openapi.yaml"} {
		a := w.send(http.MethodOptions, path, "", preflightHeaders(pageOrigin)...)
		require.Equal(t, http.StatusNoContent, a.StatusCode, path)
		require.Empty(t, a.text)
		for name, want := range map[string]string{
			"Access-Control-Allow-Origin": pageOrigin, "Access-Control-Allow-Methods": strings.Join(cors.Methods, ", "),
			"Access-Control-Allow-Headers": strings.Join(cors.RequestHeaders, ", "), "Access-Control-Max-Age": "7200",
			"Vary": "Origin", "Allow": "", "Access-Control-Allow-Credentials": "", "RateLimit": "",
		} {
			require.Equal(t, want, a.Header.Get(name), "%s: %s", path, name)
		}
		mustID(a.Header.Get("X-Request-Id"))

		refused := w.send(http.MethodOptions, path, "", preflightHeaders(otherOrigin)...)
		require.GreaterOrEqual(t, refused.StatusCode, 400, path)
		require.Empty(t, refused.Header.Get("Access-Control-Allow-Origin"))
		require.Empty(t, refused.Header.Get("Access-Control-Allow-Methods"))
		require.Equal(t, "Origin", refused.Header.Get("Vary"))
	}
	plain := w.send(http.MethodOptions, "/v1/jobs", "", "Origin", pageOrigin)
	plain.requireProblem(t, job.CodeMethodNotAllowed)
	require.Equal(t, pageOrigin, plain.Header.Get("Access-Control-Allow-Origin"))

	closed := newWorld(t).send(http.MethodOptions, "/v1/jobs", "", preflightHeaders(pageOrigin)...)
	closed.requireProblem(t, job.CodeMethodNotAllowed)
	require.Empty(t, closed.Header.Get("Access-Control-Allow-Origin"))
	require.Empty(t, closed.Header.Get("Vary"), "without origins, answers are as they were")
}

// What a page may read: answers of every kind, errors among them.
func TestAnswersForPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withOrigins(t, pageOrigin+",http://localhost:5173"), func(c *Config, _ *Deps) { c.MaxBodyBytes = 1000 }).full()
	limited := newWorld(t, withOrigins(t, pageOrigin), func(_ *Config, d *Deps) {
		d.Limiter = fakeLimiter{answer: job.Allowance{Policy: "minute", Limit: 1, RetryAfter: time.Second}}
	})
	down := newWorld(t, withOrigins(t, pageOrigin))
	down.jobs.err = job.Errorf(job.CodeStorageUnavailable, "Postgres is down.")
	elsewhere := newWorld(t, withOrigins(t, pageOrigin), func(c *Config, _ *Deps) { c.Hosts = func(string) bool { return false } })
	const submit = `{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`
	for _, c := range []struct {
		w                  *world
		method, path, body string
		headers            []string
		status             int
		vary               string
	}{
		{w, "GET", jobSelf, "", nil, 200, "Origin, Accept"},
		{w, "POST", "/v1/jobs", submit, nil, 202, "Origin"},
		{w, "GET", jobSelf + "/result", "", nil, 200, "Origin, Accept, Authorization"},
		{w, "GET", "/openapi.yaml", "", []string{"Authorization", "-"}, 200, "Origin, Accept-Encoding"},
		{w, "GET", "/healthz", "", []string{"Authorization", "-"}, 200, "Origin"},
		{w, "GET", "/v1/nothing", "", nil, 404, "Origin"},
		{w, "PUT", "/v1/jobs", "", nil, 405, "Origin"},
		{w, "POST", "/v1/jobs", "{", nil, 400, "Origin"},
		{w, "POST", "/v1/jobs", `{"params":"` + strings.Repeat("x", 2000) + `"}`, nil, 413, "Origin"},
		{w, "GET", jobSelf, "", []string{"Authorization", "-"}, 401, "Origin"},
		{limited, "GET", jobSelf, "", nil, 429, "Origin"},
		{down, "POST", "/v1/jobs", submit, nil, 503, "Origin"},
		{elsewhere, "GET", jobSelf, "", nil, 421, "Origin"},
	} {
		send := func(origin string) *answer {
			return c.w.send(c.method, c.path, c.body, append(c.headers, "Origin", origin)...)
		}
		a := send(pageOrigin)
		require.Equal(t, c.status, a.StatusCode, a.text)
		require.Equal(t, pageOrigin, a.Header.Get("Access-Control-Allow-Origin"), c.path)
		require.Equal(t, strings.Join(cors.AnswerHeaders, ", "), a.Header.Get("Access-Control-Expose-Headers"), c.path)
		require.Equal(t, c.vary, a.Header.Get("Vary"), c.path)
		for _, origin := range []string{otherOrigin, "null", "-"} {
			a := send(origin)
			require.Empty(t, a.Header.Get("Access-Control-Allow-Origin"), c.path)
			require.Empty(t, a.Header.Get("Access-Control-Expose-Headers"), c.path)
			require.Equal(t, c.vary, a.Header.Get("Vary"), c.path)
		}
	}

	open := newWorld(t, withOrigins(t, "*"))
	for _, origin := range []string{pageOrigin, "null", "-"} {
		a := open.send(http.MethodGet, "/healthz", "", "Origin", origin)
		require.Equal(t, "*", a.Header.Get("Access-Control-Allow-Origin"))
		require.Empty(t, a.Header.Get("Vary"), "the answer is the same for all")
	}
}

// The answer to a repeated request has the headers of its own page.
func TestReplayForAnotherPage(t *testing.T) {
	t.Parallel()
	const second = "http://localhost:5173"
	w := newWorld(t, withOrigins(t, pageOrigin+","+second)).full()
	cancel := func(origin string) *answer {
		return w.send(http.MethodPost, jobSelf+"/cancel", "", "Idempotency-Key", "a-key-of-a-page", "Origin", origin)
	}
	require.Equal(t, pageOrigin, cancel(pageOrigin).Header.Get("Access-Control-Allow-Origin"))
	again := cancel(second)
	require.Equal(t, "true", again.Header.Get("Idempotency-Replayed"))
	require.Equal(t, second, again.Header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "Origin", again.Header.Get("Vary"))
}

// A stream writes its own head.
func TestStreamForAPage(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, withOrigins(t, pageOrigin))
	th.history.record(jobID, job.EventCreated)
	r := th.ask("GET", jobStream, "Origin", pageOrigin)
	require.Equal(t, http.StatusOK, r.StatusCode)
	require.Equal(t, "text/event-stream", r.Header.Get("Content-Type"))
	require.Equal(t, pageOrigin, r.Header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "Origin, Accept", r.Header.Get("Vary"))
}

// A page of a foreign origin makes no client: browsers send requests without a key and without a body unasked.
func TestForeignPagesChangeNothingWithoutAKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withOrigins(t, pageOrigin)).full()
	for _, c := range []struct {
		refused bool
		headers []string
	}{
		{true, []string{"Sec-Fetch-Site", "cross-site"}},
		{true, []string{"Sec-Fetch-Site", "same-site", "Origin", "http://localhost:3000"}},
		{true, []string{"Sec-Fetch-Site", "cross-site", "Origin", otherOrigin}},
		{true, []string{"Origin", otherOrigin}},
		{true, []string{"Origin", "null"}},
		{true, []string{"Origin", publicURL + ".evil.example"}},
		{false, []string{"Sec-Fetch-Site", "cross-site", "Origin", pageOrigin}},
		{false, []string{"Origin", publicURL}},
		{false, []string{"Sec-Fetch-Site", "same-origin"}},
		{false, nil},
	} {
		a := w.send(http.MethodPost, "/v1/clients", "", append([]string{"Authorization", "-"}, c.headers...)...)
		require.Equal(t, c.refused, a.StatusCode == http.StatusForbidden, "%v: %d %s", c.headers, a.StatusCode, a.text)
		if c.refused {
			a.requireProblem(t, job.CodeForbidden)
		}
		a = w.send(http.MethodGet, "/healthz", "", append([]string{"Authorization", "-"}, c.headers...)...)
		require.Equal(t, http.StatusOK, a.StatusCode, c.headers)
	}
	a := w.send(http.MethodPost, "/v1/jobs", `{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`, "Origin", otherOrigin)
	require.Equal(t, http.StatusAccepted, a.StatusCode, "the page has the key, so the browser has asked")
}
