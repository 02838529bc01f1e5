package handlers

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/cors"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/job"
)

func requirePage(t *testing.T, a *reply, status int) {
	t.Helper()
	require.Equal(t, status, a.StatusCode)
	require.Equal(t, "text/html; charset=utf-8", a.Header.Get("Content-Type"))
	requirePolicy(t, a)
	for _, loading := range []string{"<link", "<img", " src=", "url(", "@import", " style=", " onclick=", "<form"} {
		require.NotContains(t, a.text, loading)
	}
}

func requirePolicy(t *testing.T, a *reply) {
	t.Helper()
	policy := a.Header.Get("Content-Security-Policy")
	for _, rule := range []string{"default-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
		require.Contains(t, policy, rule)
	}
	require.NotContains(t, policy, "unsafe")
	inline := regexp.MustCompile(`(?s)<(style|script)>(.*?)</(?:style|script)>`).FindAllStringSubmatch(a.text, -1)
	require.NotEmpty(t, inline)
	for _, part := range inline {
		sum := sha256.Sum256([]byte(part[2]))
		require.Contains(t, policy, part[1]+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	require.NotRegexp(t, `https?:|\*`, policy)
}

// Each problem type and each link relation has a page that the lists link to. Browsers also get a page for unknown paths.
func TestPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	get := func(path string, headers ...string) *reply {
		return w.send(http.MethodGet, path, "", append([]string{"Authorization", "-"}, headers...)...)
	}
	requirePolicy(t, get("/docs"))
	requirePage(t, get("/rels/job-result"), http.StatusOK)
	for _, path := range []string{"/problems", "/problems/"} {
		list := get(path)
		requirePage(t, list, http.StatusOK)
		links := regexp.MustCompile(`href="([^"#]+)"`).FindAllStringSubmatch(list.text, -1)
		require.Len(t, links, len(docs.ProblemTypes())+1)
		for _, link := range links[:len(links)-1] {
			target, err := (&url.URL{Path: path}).Parse(link[1])
			require.NoError(t, err)
			page := get(target.Path)
			require.Equal(t, http.StatusOK, page.StatusCode, target.Path)
			if strings.HasPrefix(target.Path, "/problems/") {
				requirePage(t, page, http.StatusOK)
			}
		}
	}
	for path, detail := range map[string]string{
		"/problems/conflicts": "There is no problem type with this name. Did you mean conflict?",
		"/rels/nosuch":        "There is no link relation with this name.",
	} {
		a := get(path, "Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
		requirePage(t, a, http.StatusNotFound)
		require.Contains(t, a.text, detail)
		require.Equal(t, []string{"Accept", "no-store"}, []string{a.Header.Get("Vary"), a.Header.Get("Cache-Control")})
		for _, accept := range []string{"-", "*/*", "application/json", "application/problem+json, text/html;q=0.5"} {
			require.Equal(t, detail, get(path, "Accept", accept).requireProblem(t, job.CodeRequestNotFound).Detail)
		}
	}
	for _, accept := range []string{"", "*/*", "application/json", "text/html;q=0.5, application/json"} {
		require.Equal(t, "application/json", get("/", "Accept", accept).Header.Get("Content-Type"), accept)
	}
	require.Contains(t, get("/", "Accept", "text/html,application/xhtml+xml,*/*;q=0.8").Header.Get("Content-Type"), "text/html")
}

// Large documents are compressed and cacheable.
func TestDocumentsAreServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, text := range map[string][]byte{
		"/openapi.yaml": docs.OpenAPI, "/openapi.json": docs.AsJSON(docs.OpenAPI), "/asyncapi.yaml": docs.AsyncAPI,
		"/asyncapi.json": docs.AsJSON(docs.AsyncAPI), "/docs": nil,
	} {
		get := func(headers ...string) *reply {
			a := w.send(http.MethodGet, path, "", append(headers, "Authorization", "-")...)
			require.Equal(t, []string{"Accept-Encoding", "max-age=3600"}, []string{a.Header.Get("Vary"), a.Header.Get("Cache-Control")}, path)
			return a
		}
		plain := get()
		require.True(t, text == nil || string(text) == plain.text, path)
		zipped := get("Accept-Encoding", "br, gzip")
		require.Equal(t, "gzip", zipped.Header.Get("Content-Encoding"), path)
		r, err := gzip.NewReader(strings.NewReader(zipped.text))
		require.NoError(t, err)
		unzipped, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, plain.text, string(unzipped), path)
		for _, refused := range []string{"identity", "gzip;q=0", "br"} {
			require.Empty(t, get("Accept-Encoding", refused).Header.Get("Content-Encoding"), "%s %s", path, refused)
		}
		tag, other := zipped.Header.Get("ETag"), plain.Header.Get("ETag")
		require.NotEqual(t, other, tag, "each representation has its own tag")
		again := get("Accept-Encoding", "gzip", "If-None-Match", tag)
		require.Equal(t, []any{http.StatusNotModified, "", tag}, []any{again.StatusCode, again.text, again.Header.Get("ETag")}, path)
		require.Equal(t, http.StatusOK, get("If-None-Match", tag).StatusCode, path)
		require.Equal(t, http.StatusNotModified, get("If-None-Match", `"other", `+other).StatusCode, path)
	}
}

// If the service is published below a path, all references in responses start with that path, and nothing else differs.
func TestBelowAPath(t *testing.T) {
	t.Parallel()
	const host = "http://x.example"
	at := func(url string) *world { return newWorld(t, func(c *Config, _ *Deps) { c.PublicURL = url }) }
	w, plain := at(host+"/forge"), at(host)
	for _, rt := range w.server.Routes {
		accepts := []string{"*/*", "application/problem+json"}
		if rt.Method != http.MethodGet {
			accepts = accepts[:1]
		}
		for _, accept := range accepts {
			references := func(w *world, base string) string {
				ask := func() *reply { return w.try(rt, "X-Request-Id", backend.Job.String(), "Accept", accept) }
				a := ask()
				for strings.Contains(a.text, "reset is not complete yet") { // reset takes several requests on a busy machine
					a = ask()
				}
				text := a.Header.Get("Location") + "\n" + a.Header.Get("Link") + "\n" + a.text
				if base == host {
					return strings.ReplaceAll(withoutVarying(text), host+"/", "/")
				}
				require.NotContains(t, text, `"/v1/`, "%s: a reference that is not absolute", rt.Path)
				return strings.ReplaceAll(withoutVarying(text), base+"/", "/")
			}
			if !strings.Contains(rt.Path, "api.") && rt.Path != "/docs" {
				require.Equal(t, references(plain, host), references(w, host+"/forge"), rt.Path)
			}
		}
	}
	for path, says := range map[string]string{
		"/openapi.yaml": "url: /forge", "/openapi.json": `"/forge"`, "/asyncapi.yaml": "pathname: /forge",
		"/asyncapi.json": `"pathname": "/forge"`} {
		require.Contains(t, w.send("GET", path, "").text, says, path)
	}
	require.Contains(t, w.send("GET", "/v1/job", "").text, "Did you mean "+host+"/forge/v1/jobs?")
	w.madeUp = true // the document does not describe this redirect
	require.Equal(t, host+"/forge/v1/jobs?limit=7", w.send("GET", "/v1/jobs?limit=7", "", headerFault, `{"moved":308}`).Header.Get("Location"))
}

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

// A preflight is answered for any path without authentication.
func TestPreflight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withOrigins(t, pageOrigin))
	for _, path := range []string{"/v1/jobs", "/v1/nothing", "/openapi.yaml"} {
		a := w.send(http.MethodOptions, path, "", preflightHeaders(pageOrigin)...)
		require.Equal(t, http.StatusNoContent, a.StatusCode, path)
		for name, want := range map[string]string{
			"Access-Control-Allow-Origin": pageOrigin, "Access-Control-Allow-Methods": strings.Join(cors.Methods, ", "),
			"Access-Control-Allow-Headers": strings.Join(cors.RequestHeaders, ", "), "Access-Control-Max-Age": "7200",
			"Vary": "Origin", "Allow": "", "Access-Control-Allow-Credentials": "", "RateLimit": "",
		} {
			require.Equal(t, want, a.Header.Get(name), "%s: %s", path, name)
		}
		refused := w.send(http.MethodOptions, path, "", preflightHeaders(otherOrigin)...)
		require.GreaterOrEqual(t, refused.StatusCode, 400, path)
		require.Equal(t, []string{"", "", "Origin"}, []string{refused.Header.Get("Access-Control-Allow-Origin"),
			refused.Header.Get("Access-Control-Allow-Methods"), refused.Header.Get("Vary")})
	}
	closed := newWorld(t).send(http.MethodOptions, "/v1/jobs", "", preflightHeaders(pageOrigin)...)
	closed.requireProblem(t, job.CodeMethodNotAllowed)
	require.Empty(t, closed.Header.Get("Access-Control-Allow-Origin")+closed.Header.Get("Vary"), "without origins there are no CORS headers")
}

// Pages of an allowed origin may read all responses, including errors.
func TestResponsesForPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withOrigins(t, pageOrigin+",http://localhost:5173"), func(c *Config, _ *Deps) {
		c.MaxBodyBytes = 1000
		c.Hosts = func(host string) bool { return host == "forgerun.test" }
	})
	open := newWorld(t, withOrigins(t, "*"))
	for _, c := range []struct {
		method, path, body, authorization string
		status                            int
		vary                              string
	}{
		{"GET", jobSelf, "", "Bearer " + goodKey, 200, "Origin, Accept"}, {"GET", jobSelf, "", "-", 401, "Origin"},
		{"GET", jobSelf + "/result", "", "Bearer " + goodKey, 200, "Origin, Accept, Authorization"},
		{"GET", "/openapi.yaml", "", "-", 200, "Origin, Accept-Encoding"}, {"GET", "/v1/nothing", "", "-", 404, "Origin"},
		{"PUT", "/v1/jobs", "", "Bearer " + goodKey, 405, "Origin"}, {"POST", "/v1/jobs", "{", "Bearer " + goodKey, 400, "Origin"},
		{"POST", "/v1/jobs", `{"params":"` + strings.Repeat("x", 2000) + `"}`, "Bearer " + goodKey, 413, "Origin"},
	} {
		for _, origin := range []string{pageOrigin, otherOrigin, "null", "-"} {
			a := w.send(c.method, c.path, c.body, "Authorization", c.authorization, "Origin", origin)
			require.Equal(t, []any{c.status, c.vary}, []any{a.StatusCode, a.Header.Get("Vary")}, c.path)
			want := []string{"", ""}
			if origin == pageOrigin {
				want = []string{pageOrigin, strings.Join(cors.ExposedHeaders, ", ")}
			}
			require.Equal(t, want, []string{a.Header.Get("Access-Control-Allow-Origin"), a.Header.Get("Access-Control-Expose-Headers")}, c.path)
			a = open.send(http.MethodGet, "/healthz", "", "Origin", origin)
			require.Equal(t, []string{"*", ""}, []string{a.Header.Get("Access-Control-Allow-Origin"), a.Header.Get("Vary")})
		}
	}
}

// If another page repeats a request, the replayed response has the CORS headers for that page.
func TestReplayForAnotherPage(t *testing.T) {
	t.Parallel()
	const second = "http://localhost:5173"
	w := newWorld(t, withOrigins(t, pageOrigin+","+second))
	cancel := func(origin string) *reply {
		return w.send(http.MethodPost, jobSelf+"/cancel", "", "Idempotency-Key", "a-key-of-a-page", "Origin", origin)
	}
	require.Equal(t, pageOrigin, cancel(pageOrigin).Header.Get("Access-Control-Allow-Origin"))
	again := cancel(second)
	require.Equal(t, "true", again.Header.Get("Idempotency-Replayed"))
	require.Equal(t, second, again.Header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "Origin", again.Header.Get("Vary"))
}

// A page of a foreign origin cannot create a client. The server must refuse the request: browsers send it without a preflight, because it
// has neither an API key nor a body.
func TestForeignPagesCannotCreateClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withOrigins(t, pageOrigin))
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
	require.Equal(t, http.StatusAccepted, a.StatusCode, "a request with a key had a preflight")
}
