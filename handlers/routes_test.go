package handlers

import (
	"context"
	"html"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// examplePath fills in a route's parameters.
func examplePath(rt route) string {
	path := strings.NewReplacer(":name", "job-result", ":n", "1", ":slug", "conflict").Replace(rt.path)
	if strings.HasPrefix(path, "/v1/clients") {
		return strings.Replace(path, ":id", clientA.String(), 1)
	}
	path = strings.Replace(path, ":delivery_id", deliveryID.String(), 1)
	if strings.HasPrefix(path, "/v1/webhooks") {
		return strings.Replace(path, ":id", webhookID.String(), 1)
	}
	if strings.HasPrefix(path, "/v1/bulk") {
		return strings.Replace(path, ":id", bulkID.String(), 1)
	}
	if strings.HasPrefix(path, "/v1/schedules") {
		return strings.Replace(path, ":id", scheduleID.String(), 1)
	}
	if strings.HasPrefix(path, "/v1/batches") {
		return strings.Replace(path, ":id", batchID.String(), 1)
	}
	return strings.Replace(path, ":id", jobID.String(), 1)
}

// exampleBody is a body that the route takes.
func exampleBody(rt route) string {
	switch {
	case rt.method == "POST" && rt.path == "/v1/jobs/batch":
		return `{"jobs":[{"type":"EXECUTE"}]}`
	case rt.method == "POST" && rt.path == "/v1/jobs":
		return `{"type":"EXECUTE"}`
	case rt.method == "POST" && rt.path == "/v1/webhooks":
		return `{"url":"https://example.com","events":["*"]}`
	case rt.method == "POST" && rt.path == "/v1/bulk":
		return `{"action":"retry","filter":{"all":true}}`
	case rt.method == "POST" && rt.path == "/v1/schedules":
		return `{"interval":"1m","job":{"type":"EXECUTE"}}`
	case rt.path == "/v1/schedules/:id" && rt.method == "PATCH":
		return `{"overlap":"skip"}`
	case rt.path == "/v1/testbed/fixtures":
		return `{"jobs":[{"state":"failed"}]}`
	case rt.method == "POST" && rt.path == "/v1/testbed/clock":
		return `{"advance":"1h"}`
	case rt.method == "PUT":
		return `[{"effect":{"status":503}}]`
	case rt.method == "PATCH":
		return `{"enabled":false}`
	case rt.path == "/v1/webhooks/:id/redeliver", rt.path == "/v1/webhooks/:id/replay":
		return `{"since":"2030-01-31T12:00:00Z"}`
	case strings.HasSuffix(rt.path, "/revoke"):
		return `{"key_id":"abc"}`
	}
	return ""
}

func TestEveryRouteAsksForItsCredentials(t *testing.T) {
	t.Parallel()
	bad := []struct {
		name, header string
		code         job.Code
	}{
		{"none", "-", job.CodeInvalidCredentials},
		{"empty", "", job.CodeInvalidCredentials},
		{"scheme alone", "Bearer", job.CodeInvalidCredentials},
		{"empty token", "Bearer ", job.CodeInvalidCredentials},
		{"basic", "Basic " + goodKey, job.CodeInvalidCredentials},
		{"bare key", goodKey, job.CodeInvalidCredentials},
		{"unknown key", "Bearer frk_unknown", job.CodeInvalidCredentials},
		{"key and more", "Bearer " + goodKey + " " + goodKey, job.CodeInvalidCredentials},
		{"endless", "Bearer " + strings.Repeat("x", 4000), job.CodeInvalidCredentials},
		{"expired", "Bearer expired", job.CodeTokenExpired},
		{"revoked", "Bearer revoked", job.CodeKeyDisabled},
	}
	for _, rt := range newWorld(t).server.routes() {
		for _, test := range bad {
			t.Run(rt.method+" "+rt.path+" "+test.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				a := w.send(rt.method, examplePath(rt), exampleBody(rt), "Authorization", test.header)
				if rt.access == public || rt.access == registration && test.header == "-" {
					require.Less(t, a.StatusCode, 300, a.text)
					return
				}
				a.requireProblem(t, test.code)
				require.Equal(t, test.code.Spec().Status == 401, a.Header.Get("WWW-Authenticate") == "Bearer")
				require.Empty(t, a.Header.Get("RateLimit"))
				require.Contains(t, w.log.String(), "authentication failed")
				require.NotContains(t, w.log.String(), goodKey)
				require.NotContains(t, w.log.String(), "xxxxx")
			})
		}
	}
}

func TestOnlyTheFewRoutesAreOpen(t *testing.T) {
	t.Parallel()
	var open []string
	for _, rt := range newWorld(t).server.routes() {
		if rt.access == public || rt.access == registration {
			open = append(open, rt.path)
		}
	}
	require.Equal(t, []string{
		"/v1/clients", "/v1/clients/:id/keys", "/healthz", "/readyz", "/openapi.yaml", "/openapi.json", "/asyncapi.yaml",
		"/asyncapi.json", "/.well-known/http-message-signatures-directory", "/", "/docs", "/rels/:name",
		"/problems", "/problems/", "/problems/:slug",
	}, open)
}

func TestTheOperatorHasNoJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, rt := range w.server.routes() {
		a := w.send(rt.method, examplePath(rt), exampleBody(rt), "Authorization", "bearer  "+adminKey)
		if rt.access == client {
			a.requireProblem(t, job.CodeForbidden)
		} else {
			require.Less(t, a.StatusCode, 300, rt.path)
		}
		require.Empty(t, a.Header.Get("RateLimit"), "the operator is not limited")
	}
}

func TestEveryRouteNeedsItsScope(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	for _, rt := range w.server.routes() {
		if rt.access == public || rt.access == operator {
			continue
		}
		needs := "all"
		switch rt.method + " " + rt.path {
		case "POST /v1/jobs", "POST /v1/jobs/batch":
			needs = "submit"
		default:
			if rt.method == get {
				needs = "read"
			}
		}
		for _, scope := range []string{"read", "submit"} {
			a := w.send(rt.method, examplePath(rt), exampleBody(rt), "Authorization", "Bearer "+scope)
			if needs == "read" || needs == scope {
				require.Less(t, a.StatusCode, 300, "%s %s: %s", rt.path, scope, a.text)
			} else {
				a.requireProblem(t, job.CodeForbidden)
				require.Contains(t, a.text, "needs "+needs, rt.path)
			}
		}
	}
}

func TestOnlyTheOperatorCancelsAClientsJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := "/v1/clients/" + clientA.String() + operatorsPath
	w.send("POST", path, "", "Authorization", "Bearer "+goodKey).requireProblem(t, job.CodeForbidden)
	w.send("POST", path, "", "Authorization", "-").requireProblem(t, job.CodeInvalidCredentials)
	require.JSONEq(t, `{"canceled":3,"more":true}`, w.send("POST", path, "").text)
}

func TestTwoAuthorizationHeadersAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, err := http.NewRequest("GET", "http://forgerun.test"+jobPath(jobID), nil)
	require.NoError(t, err)
	r.Header.Add("Authorization", "Bearer "+goodKey)
	r.Header.Add("Authorization", "Bearer "+otherKey)
	w.do(r).requireProblem(t, job.CodeInvalidCredentials)
}

func TestMalformedIDsLookUnknown(t *testing.T) {
	t.Parallel()
	malformed := []string{
		"x", "1", "-", "null", "%00", "..%2f..", "'%20or%201=1", jobID.String() + "x", jobID.String()[1:], "{" + jobID.String() + "}",
		"urn:uuid:" + jobID.String(), strings.ReplaceAll(jobID.String(), "-", ""), strings.Repeat("a", 5000),
		"01890000-0000-7000-8000-00000000000g",
	}
	w := newWorld(t)
	w.clients.err = job.Errorf(job.CodeClientNotFound, "There is no such client.")
	var asked job.ID
	w.jobs.job = func(_ context.Context, _, id job.ID) (*job.Job, error) { asked = id; return nil, errNoJob }
	var askedBatch job.ID
	w.batches.batch = func(_ context.Context, _, id job.ID) (*job.Batch, error) {
		askedBatch = id
		return nil, job.Errorf(job.CodeBatchNotFound, "There is no such batch.")
	}
	var askedWebhook job.ID
	w.webhooks.find = func(_, id job.ID) (*job.Webhook, error) { askedWebhook = id; return nil, errNoWebhook }
	var askedBulk job.ID
	w.bulk.bulk = func(_, id job.ID) (*job.Bulk, error) {
		askedBulk = id
		return nil, job.Errorf(job.CodeBulkNotFound, "There is no such bulk operation.")
	}
	var askedSchedule job.ID
	w.schedules.find = func(_, id job.ID) (*job.Schedule, error) { askedSchedule = id; return nil, errNoSchedule }
	for _, rt := range w.server.routes() {
		if !strings.Contains(rt.path, ":id") || rt.access == operator { // the operator is told what there is: nothing
			continue
		}
		unknown := w.send(rt.method, examplePath(rt), exampleBody(rt)).problem(t)
		require.Equal(t, 404, unknown.Status)
		for _, id := range malformed {
			path := strings.NewReplacer(":n", "1", ":delivery_id", deliveryID.String()).Replace(rt.path)
			path = strings.Replace(path, ":id", id, 1)
			p := w.send(rt.method, path, exampleBody(rt)).problem(t)
			p.Instance = unknown.Instance
			require.Equal(t, unknown, p, path)
		}
	}
	require.Equal(t, nobody, asked)
	require.Equal(t, nobody, askedBatch)
	require.Equal(t, nobody, askedWebhook)
	require.Equal(t, nobody, askedBulk)
	require.Equal(t, nobody, askedSchedule)
	require.Equal(t, nobody, w.clients.client, "not the zero id, which an anonymous caller has")
	require.NotContains(t, w.log.String(), "ffffffff", "the stand-in is no job")
}

// TestForeignIDsLookUnknown compares what a client gets of another one's job or
// batch with what it gets of none at all.
func TestForeignIDsLookUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	own := func(client, id, mine job.ID) bool { return client == clientA && id == mine }
	jobs := *w.jobs
	w.jobs.job = func(ctx context.Context, client, id job.ID) (*job.Job, error) {
		if !own(client, id, jobID) {
			return nil, errNoJob
		}
		return jobs.job(ctx, client, id)
	}
	w.jobs.change = func(ctx context.Context, client, id job.ID) (job.Change, error) {
		if !own(client, id, jobID) {
			return job.Change{}, errNoJob
		}
		return jobs.change(ctx, client, id)
	}
	w.jobs.remove = func(_ context.Context, client, id job.ID) error {
		if !own(client, id, jobID) {
			return errNoJob
		}
		return nil
	}
	w.jobs.report = func(ctx context.Context, client, id job.ID, n int) (*job.Report, error) {
		if !own(client, id, jobID) {
			return nil, errNoJob
		}
		return jobs.report(ctx, client, id, n)
	}
	w.jobs.attempts = func(ctx context.Context, client, id job.ID) (job.Origin, []job.Attempt, error) {
		if !own(client, id, jobID) {
			return job.Origin{}, nil, errNoJob
		}
		return jobs.attempts(ctx, client, id)
	}
	w.jobs.result = func(ctx context.Context, client, id job.ID) (*job.StoredResult, error) {
		if !own(client, id, jobID) {
			return nil, errNoJob
		}
		return jobs.result(ctx, client, id)
	}
	w.batches.batch = func(ctx context.Context, client, id job.ID) (*job.Batch, error) {
		if !own(client, id, batchID) {
			return nil, job.Errorf(job.CodeBatchNotFound, "There is no such batch.")
		}
		return openBatch(ctx, client, id)
	}
	w.bulk.bulk = func(client, id job.ID) (*job.Bulk, error) {
		if !own(client, id, bulkID) {
			return nil, job.Errorf(job.CodeBulkNotFound, "There is no such bulk operation.")
		}
		return aBulk(client, id)
	}
	w.schedules.find = func(client, id job.ID) (*job.Schedule, error) {
		if !own(client, id, scheduleID) {
			return nil, errNoSchedule
		}
		return aSchedule(client, id)
	}
	w.webhooks.find = func(client, id job.ID) (*job.Webhook, error) {
		if !own(client, id, webhookID) {
			return nil, errNoWebhook
		}
		return aWebhook(), nil
	}
	for _, rt := range w.server.routes() {
		if rt.access != client || !strings.Contains(rt.path, ":id") {
			continue
		}
		path := examplePath(rt)
		require.Less(t, w.send(rt.method, path, exampleBody(rt)).StatusCode, 300, rt.path)
		for _, headers := range [][]string{{}, {"Prefer", "wait=1"}, {"Accept", "application/problem+json"}, {"Range", "bytes=0-1"},
			{"If-None-Match", "*"}} {
			headers = append([]string{"Authorization", "Bearer " + otherKey, "X-Request-Id", jobID.String()}, headers...)
			foreign := w.send(rt.method, path, exampleBody(rt), headers...)
			unknown := w.send(rt.method, examplePath(route{path: strings.Replace(rt.path, ":id", clientB.String(), 1)}), exampleBody(rt), headers...)
			require.Equal(t, 404, foreign.StatusCode, rt.path)
			require.Equal(t, unknown.text, foreign.text, rt.path)
			foreign.Header.Del("Date")
			unknown.Header.Del("Date")
			require.Equal(t, unknown.Header, foreign.Header, rt.path)
		}
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/v1", "/v1/", "/v1/job", "/V1/jobs", "/v1/Jobs", "/v1/jobs/", "/v2/jobs", "//v1/jobs", "/v1//jobs",
		"/v1/jobs/" + jobID.String() + "/", "/problems/conflict/", "/healthz/", "/v1/clients/", "/%761/jobs", "/metrics"} {
		for _, method := range []string{"GET", "POST", "OPTIONS", "BREW"} {
			w.send(method, path, "").requireProblem(t, job.CodeRequestNotFound)
		}
	}
	allow := map[string][]string{}
	for _, rt := range w.server.routes() {
		path := examplePath(rt)
		if allow[path] = append(allow[path], rt.method); rt.method == "GET" {
			allow[path] = append(allow[path], "HEAD")
		}
	}
	// The path of a batch request is also that of a job with an odd id.
	allow["/v1/jobs/batch"] = []string{"GET", "HEAD", "POST", "DELETE"}
	for path, methods := range allow {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get", "BREW"} {
			if slices.Contains(methods, method) {
				continue
			}
			a := w.send(method, path, "")
			require.Equal(t, 405, a.StatusCode, method+" "+path)
			require.ElementsMatch(t, methods, strings.Split(a.Header.Get("Allow"), ", "))
			if method != "HEAD" {
				a.requireProblem(t, job.CodeMethodNotAllowed)
			}
		}
	}
}

func TestHeadIsGetWithoutBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	for _, rt := range w.server.routes() {
		if rt.method != "GET" {
			continue
		}
		get, head := w.send("GET", examplePath(rt), ""), w.send("HEAD", examplePath(rt), "")
		require.Equal(t, 200, get.StatusCode, rt.path)
		require.Empty(t, head.text)
		for _, h := range []http.Header{get.Header, head.Header} {
			require.NotEmpty(t, h.Get("X-Request-Id"))
			h.Del("X-Request-Id")
			h.Del("Date")
		}
		require.Equal(t, get.Header, head.Header)
	}
}

func TestUnknownQueryParameters(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	for _, rt := range w.server.routes() {
		for _, query := range []string{"?x=1", "?attempt=1&x=1", "?Attempt=1", "?=", "?attempt", "?attempt=1&attempt=2"} {
			a := w.send(rt.method, examplePath(rt)+query, exampleBody(rt))
			if rt.access == public {
				require.Equal(t, 200, a.StatusCode)
			} else {
				a.requireProblem(t, job.CodeMalformed)
			}
		}
	}
}

func TestQueryParametersAreExplained(t *testing.T) {
	t.Parallel()
	for _, rt := range newWorld(t).server.routes() {
		seen := map[string]bool{}
		for _, p := range rt.query {
			require.NotNil(t, p.Valid, p.Name)
			require.NotEmpty(t, p.Want, p.Name)
			require.False(t, p.Valid(""), p.Name)
			require.False(t, seen[p.Name], p.Name)
			seen[p.Name] = true
		}
	}
}

func TestPublicPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slugs := map[string]bool{}
	for _, c := range job.Codes {
		slugs[c.Slug] = true
	}
	for _, r := range job.Reasons {
		slugs[string(r.Reason)] = true
	}
	slugs[job.BatchPartiallyFailed], slugs[job.BatchFailed] = true, true
	require.Len(t, slugs, len(job.Codes)+len(job.Reasons)+2, "each type URI means one thing")
	index := w.send("GET", "/problems/", "", "Authorization", "-")
	short := w.send("GET", "/problems", "", "Authorization", "-")
	for slug := range slugs {
		a := w.send("GET", "/problems/"+slug, "", "Authorization", "-", "Accept", "text/html")
		require.Equal(t, 200, a.StatusCode)
		require.Equal(t, "text/html; charset=utf-8", a.Header.Get("Content-Type"))
		require.Contains(t, index.text, `href="`+slug+`"`)
		require.Contains(t, short.text, `href="problems/`+slug+`"`)
		require.NotRegexp(t, `(src|href)="(https?:)?//`, a.text, "no external assets")
		require.Equal(t, !strings.HasPrefix(slug, "batch-"+"partially") && slug != job.BatchFailed, strings.Contains(a.text, "RFA_"))
	}
	for _, stage := range job.Stages {
		require.Contains(t, html.UnescapeString(index.text), "<code>"+string(stage.Stage)+"</code></dt><dd>"+stage.About)
	}
	for _, slug := range []string{"nope", "..", "%2e%2e", "conflict%20", "<script>"} {
		require.Equal(t, 404, w.send("GET", "/problems/"+slug, "").StatusCode)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	a := newWorld(t).send("GET", "/healthz", "", "Authorization", "-")
	require.Equal(t, 200, a.StatusCode)
	require.JSONEq(t, `{"status":"ok"}`, a.text)

	ready := func(r Readiness) *answer {
		w := newWorld(t, func(_ *Config, d *Deps) { d.Health = fakeHealth{r} })
		return w.send("GET", "/readyz", "", "Authorization", "-")
	}
	a = ready(Readiness{OK: true, Status: "degraded", Checks: map[string]string{"redis": "unreachable"}})
	require.Equal(t, 200, a.StatusCode)
	require.JSONEq(t, `{"status":"degraded","checks":{"redis":"unreachable"}}`, a.text)
	a = ready(Readiness{Status: "unavailable", Checks: map[string]string{"postgres": "unreachable"}})
	require.Equal(t, 503, a.StatusCode)
	require.Equal(t, "1", a.Header.Get("Retry-After"))
}
