package handlers

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/internal/authlimit"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

func examplePath(rt httpkit.Route) string {
	path := backend.Path(rt.Path)
	if rt.Action == "retry" {
		path = strings.Replace(path, backend.Job.String(), backend.FailedJob.String(), 1)
	}
	return path
}

var exampleBodies = map[string]string{
	"submit": leastBody, "submit_batch": `{"jobs":[{"type":"EXECUTE"}]}`, "revoke_key": `{"key_id":"` + backend.SomeKey + `"}`,
	"register_webhook": aHook, "update_webhook": `{"enabled":false}`,
	"redeliver_failed": aMoment, "replay_webhook": aMoment,
	"begin_bulk": `{"action":"retry","filter":{"all":true}}`, "update_schedule": `{"overlap":"skip"}`,
	"create_schedule": `{"interval":"1m","job":{"type":"EXECUTE"}}`, "make_fixtures": `{"jobs":[{"state":"scheduled"}]}`,
	"move_clock": `{"advance":"1h"}`, "replace_faults": `[{"match":{"nth":9},"effect":{"status":503}}]`,
}

var aMoment = `{"since":"` + time.Now().Add(-time.Hour).UTC().Format("2006-01-02T15:04:05.000000Z") + `"}`

func exampleBody(rt httpkit.Route) string { return exampleBodies[rt.Action] }

func (w *world) try(rt httpkit.Route, headers ...string) *reply {
	w.t.Helper()
	w.freshen()
	return w.send(rt.Method, examplePath(rt), exampleBody(rt), headers...)
}

// The helper send compares each response with the OpenAPI document.
func TestOddRequestsHaveDocumentedResponses(t *testing.T) {
	t.Parallel()
	apitest.InParallel(t, newWorld(t).server.Routes, func(t *testing.T, part []httpkit.Route) {
		w := newWorld(t, func(c *Config, _ *Deps) { c.TestBed, c.MaxBodyBytes = true, 1<<15 })
		for _, rt := range part {
			for _, odd := range apitest.Odd {
				w.send(rt.Method, examplePath(rt)+"?"+odd.Query, cmp.Or(odd.Body, exampleBody(rt)), odd.Header...)
			}
		}
	})
}

// Promise: contract 8a
func TestEveryRouteAsksForItsCredentials(t *testing.T) {
	t.Parallel()
	bad := []struct {
		header string
		code   job.Code
	}{
		{"-", job.CodeInvalidCredentials},
		{"", job.CodeInvalidCredentials},
		{"Bearer", job.CodeInvalidCredentials},
		{"Bearer ", job.CodeInvalidCredentials},
		{"Basic " + goodKey, job.CodeInvalidCredentials},
		{goodKey, job.CodeInvalidCredentials},
		{"Bearer frk_unknown", job.CodeInvalidCredentials},
		{"Bearer unknown " + goodKey, job.CodeInvalidCredentials},
		{"Bearer " + strings.Repeat("x", 4000), job.CodeInvalidCredentials},
		{"Bearer " + backend.ExpiredKey, job.CodeTokenExpired},
		{"Bearer " + backend.RenewableKey, job.CodeTokenExpired},
		{"Bearer " + backend.RevokedKey, job.CodeKeyDisabled},
	}
	clock := now
	w := newWorld(t, func(_ *Config, d *Deps) {
		d.Attempts = authlimit.New(func() time.Time { return clock }, telemetry.In(nil))
	})
	for _, rt := range w.server.Routes {
		clock = clock.Add(time.Hour) // let the slowdown from earlier failures expire
		if rt.Access == httpkit.Public {
			require.Equal(t, 200, w.try(rt, "Authorization", "Bearer "+backend.RevokedKey).StatusCode, rt.Path)
			continue
		}
		for _, test := range bad {
			a := w.try(rt, "Authorization", test.header)
			renews := rt.Access == httpkit.Renewal && strings.HasSuffix(test.header, backend.RenewableKey)
			expired := renews || rt.Access == httpkit.ExpiredKey && test.code == job.CodeTokenExpired
			switch {
			case rt.Action == "create_key" && test.header == "-": // allowed only for the first key of a new client
				a.requireProblem(t, job.CodeInvalidCredentials)
			case expired || rt.Access == httpkit.Registration && test.header == "-":
				require.Less(t, a.StatusCode, 300, a.text)
			default:
				a.requireProblem(t, test.code)
				require.Equal(t, test.code.Spec().Status == 401, a.Header.Get("WWW-Authenticate") == "Bearer")
				require.Equal(t, rt.Access == httpkit.Renewal && test.code == job.CodeTokenExpired, a.Header.Get("RateLimit") != "")
			}
		}
		w.try(rt, "Authorization", "Bearer "+goodKey, "Authorization", "Bearer "+otherKey).requireProblem(t, job.CodeInvalidCredentials)
	}
	require.Contains(t, w.log.String(), "authentication failed")
	require.NotContains(t, w.log.String(), goodKey)
	require.NotContains(t, w.log.String(), "xxxxx")
}

func TestEveryRouteNeedsItsScope(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, rt := range w.server.Routes {
		a := w.try(rt, "Authorization", "bearer  "+adminKey)
		require.Empty(t, a.Header.Get("RateLimit"), "the operator is not limited")
		if rt.Access == httpkit.ClientKey || rt.Access == httpkit.ExpiredKey {
			a.requireProblem(t, job.CodeForbidden)
		} else {
			require.Less(t, a.StatusCode, 300, rt.Path)
		}
		if rt.Access == httpkit.Public {
			continue
		}
		needs := "all"
		if name := rt.Method + " " + rt.Path; name == "POST /v1/jobs" || name == "POST /v1/jobs/batch" {
			needs = "submit"
		} else if rt.Method == httpkit.Get {
			needs = "read"
		}
		for scope, key := range map[string]string{"read": backend.ReaderKey, "submit": backend.SubmitterKey, "all": goodKey} {
			a := w.try(rt, "Authorization", "Bearer "+key)
			switch {
			case rt.Access == httpkit.OperatorToken:
				a.requireProblem(t, job.CodeForbidden)
			case needs == "read" || needs == scope || scope == "all":
				require.Less(t, a.StatusCode, 300, "%s %s: %s", rt.Path, scope, a.text)
			default:
				a.requireProblem(t, job.CodeForbidden)
				require.Contains(t, a.text, "needs "+needs, rt.Path)
			}
		}
	}
	w.Seed()
	require.JSONEq(t, `{"canceled":1,"more":false}`, w.send("POST", clientPath(operatorsPath), "").text)
}

func TestEveryRouteNegotiates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *Config, d *Deps) { d.Registry = nil })
	for _, rt := range w.server.Routes {
		require.Equal(t, rt.Success, w.try(rt).StatusCode, rt.Path)
		other, without := w.try(rt, "Accept", "text/csv"), w.try(rt, "Accept", "application/json;q=0, */*")
		if without.StatusCode != 406 {
			require.NotContains(t, without.Header.Get("Content-Type"), "application/json", rt.Path)
			require.Equal(t, httpkit.Get, rt.Method, "changes respond in JSON")
		}
		path, body := examplePath(rt), exampleBody(rt)
		if rt.Access == httpkit.Public {
			require.Equal(t, 200, other.StatusCode)
			require.Equal(t, 200, w.send(rt.Method, path+"?x=1", "").StatusCode)
			continue
		}
		other.requireProblem(t, job.CodeNotAcceptable)
		for _, query := range []string{"?x=1", "?attempt=1&x=1", "?Attempt=1", "?=", "?attempt", "?attempt=1&attempt=2"} {
			w.send(rt.Method, path+query, body).requireProblem(t, job.CodeMalformed)
		}
		if rt.Method == httpkit.Get {
			continue
		}
		if body == "" {
			body = "{}"
		}
		w.send(rt.Method, path, body, "Content-Type", "text/plain").requireProblem(t, job.CodeUnsupportedMediaType)
		zipped := w.send(rt.Method, path, body, "Content-Encoding", "gzip")
		zipped.requireProblem(t, job.CodeUnsupportedMediaType)
		require.Equal(t, "identity", zipped.Header.Get("Accept-Encoding"))
		w.send(rt.Method, path, body[:len(body)-1]).requireProblem(t, job.CodeMalformed)
	}
	require.Empty(t, series(t, w.registry))
}

// Promise: patterns Queue Integration
// Promise: draft 3.6, 3.7, 6.7
func TestRateLimited(t *testing.T) {
	t.Parallel()
	full := job.Allowance{Policy: "day", Limit: 100, Remaining: -1, Reset: time.Hour, RetryAfter: 90 * time.Second}
	w := newWorld(t, func(_ *Config, d *Deps) { d.Limiter = &fakeLimiter{answer: full} })
	for _, rt := range w.server.Routes {
		a := w.try(rt)
		if rt.Access == httpkit.Public || rt.Access == httpkit.OperatorToken {
			require.Equal(t, 200, a.StatusCode)
			continue
		}
		a.requireProblem(t, job.CodeRateLimited)
		require.Equal(t, "90", a.Header.Get("Retry-After"))
		require.Equal(t, `"day";q=100;w=86400`, a.Header.Get("RateLimit-Policy"))
		require.Equal(t, `"day";r=0;t=3600`, a.Header.Get("RateLimit"))
		require.NotContains(t, strings.ToLower(a.text), "retryafter")
	}
	require.Equal(t, 4, repotest.Count(t, w.URL(), "jobs"), "no use case is called")
}

func TestMalformedIDsLookUnknown(t *testing.T) {
	t.Parallel()
	id := backend.Job.String()
	malformed := []string{"x", "%00", "..%2f..", id + "x", strings.Repeat("a", 5000)} // FuzzParseID has more
	w := newWorld(t)
	check := func(rt httpkit.Route, parameter string) {
		ask := func(id string) (problem.Document, int) {
			path := strings.Replace(backend.Path(strings.Replace(rt.Path, parameter, "ID", 1)), "/ID", "/"+id, 1)
			p := w.send(rt.Method, path, exampleBody(rt), "X-Request-Id", backend.Job.String()).problem(t)
			return p, p.Status
		}
		unknown, status := ask("01890000-0000-7000-8000-0000000000ff")
		require.Equal(t, 404, status, rt.Path)
		for _, id := range malformed {
			p, _ := ask(id)
			require.Equal(t, unknown, p, rt.Path+" "+id)
		}
	}
	for _, rt := range w.server.Routes {
		if rt.Access == httpkit.OperatorToken || rt.Action == "delete" { // these routes also succeed for an unknown id
			continue
		}
		for _, parameter := range []string{":id", ":delivery_id"} {
			if strings.Contains(rt.Path, parameter) {
				check(rt, parameter)
			}
		}
	}
	require.NotContains(t, w.log.String(), "ffffffff", "the id that replaces malformed ids is not logged")
}

func TestForeignIDsLookUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, rt := range w.server.Routes {
		if rt.Access != httpkit.ClientKey && rt.Access != httpkit.ExpiredKey || !strings.Contains(rt.Path, ":id") {
			continue
		}
		require.Less(t, w.try(rt).StatusCode, 300, rt.Path)
		for _, headers := range [][]string{{}, {"Prefer", "wait=1"}, {"Accept", "application/problem+json"}, {"If-Match", `"x"`}} {
			headers = append([]string{"Authorization", "Bearer " + otherKey, "X-Request-Id", backend.Job.String()}, headers...)
			foreign := w.try(rt, headers...)
			none := backend.Path(strings.Replace(rt.Path, ":id", "01890000-0000-7000-8000-0000000000ff", 1))
			unknown := w.send(rt.Method, none, exampleBody(rt), headers...)
			require.Equal(t, unknown.StatusCode, foreign.StatusCode, rt.Path)
			require.True(t, foreign.StatusCode == 404 || rt.Action == "delete" && foreign.StatusCode < 500, rt.Path)
			require.Equal(t, unknown.text, foreign.text, rt.Path)
			foreign.Header.Del("Date")
			unknown.Header.Del("Date")
			require.Equal(t, unknown.Header, foreign.Header, rt.Path)
		}
	}
}

// Promise: contract 14h
func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/v1", "/v1/", "/v1/job", "/V1/jobs", "/v1/Jobs", "/v1/jobs/", "/v2/jobs", "//v1/jobs", "/v1//jobs",
		jobSelf + "/", "/problems/conflict/", "/healthz/", "/v1/clients/", "/v1%2Fjobs", "/%25761/jobs", "/metrics"} {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			w.send(method, path, "").requireProblem(t, job.CodeRequestNotFound)
		}
		requireUnknownMethod(t, w.send("BREW", path, ""))
	}
	allow := map[string][]string{}
	for _, rt := range w.server.Routes {
		path := examplePath(rt)
		if allow[path] = append(allow[path], rt.Method); rt.Method == "GET" {
			allow[path] = append(allow[path], "HEAD")
		}
	}
	for path, methods := range allow {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} {
			if slices.Contains(methods, method) {
				continue
			}
			a := w.send(method, path, "")
			require.Equal(t, 405, a.StatusCode, method+" "+path)
			allowed := strings.Split(a.Header.Get("Allow"), ", ")
			require.ElementsMatch(t, methods, allowed)
			if method != "HEAD" {
				require.Contains(t, a.requireProblem(t, job.CodeMethodNotAllowed).Detail, "It supports "+strings.Join(allowed, ", ")+".")
			}
		}
		for _, method := range []string{"get", "BREW", "PROPFIND"} {
			requireUnknownMethod(t, w.send(method, path, ""))
		}
	}
	require.NotContains(t, w.log.String(), `"ERROR"`, "an unknown method is the client's mistake")
}

func requireUnknownMethod(t *testing.T, a *reply) {
	t.Helper()
	require.Equal(t, 501, a.StatusCode)
	require.Equal(t, job.CodeMethodNotAllowed, a.problem(t).Code)
	require.Empty(t, a.Header.Get("Allow"))
}
