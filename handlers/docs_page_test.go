package handlers

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/job"
)

// requirePage checks that the answer is a page that loads nothing, and whose
// style and script are those of its policy.
func requirePage(t *testing.T, a *answer, status int) {
	t.Helper()
	require.Equal(t, status, a.StatusCode)
	require.Equal(t, "text/html; charset=utf-8", a.Header.Get("Content-Type"))
	requirePolicy(t, a)
	for _, loading := range []string{"<link", "<img", " src=", "url(", "@import", " style=", " onclick=", "<form"} {
		require.NotContains(t, a.text, loading)
	}
}

// requirePolicy checks that the policy allows the page's style and script, and nothing from elsewhere.
func requirePolicy(t *testing.T, a *answer) {
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

func TestDocsPage(t *testing.T) {
	t.Parallel()
	a := newWorld(t).send(http.MethodGet, "/docs", "", "Authorization", "-")
	require.Equal(t, http.StatusOK, a.StatusCode)
	requirePolicy(t, a)
	require.Contains(t, a.text, `data-document="openapi.yaml"`)
}

func TestRelationPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"job-result", "batch-jobs"} {
		page, ok := docs.Relation(name)
		require.True(t, ok)
		a := w.send(http.MethodGet, "/rels/"+name, "", "Authorization", "-")
		requirePage(t, a, http.StatusOK)
		require.Equal(t, string(page), a.text)
	}
}

// Browsers get the page at the root, programs get addresses.
func TestRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, accept := range []string{"", "*/*", "application/json", "text/html;q=0.5, application/json"} {
		a := w.send(http.MethodGet, "/", "", "Authorization", "-", "Accept", accept)
		require.Equal(t, "application/json", a.Header.Get("Content-Type"), accept)
		var view api.Root
		a.json(t, &view)
		require.Equal(t, "/docs", view.Docs)
	}
	page := w.send(http.MethodGet, "/", "", "Authorization", "-", "Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	require.Contains(t, page.Header.Get("Content-Type"), "text/html")
	require.Contains(t, page.Header.Get("Vary"), "Accept")
}

// Documents of a quarter of a megabyte are sent once, and compressed.
func TestDocumentsAreServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plainJSON, err := json.Marshal(openAPI())
	require.NoError(t, err)
	require.JSONEq(t, string(plainJSON), string(docs.AsJSON(docs.OpenAPI)))
	for path, text := range map[string][]byte{
		"/openapi.yaml": docs.OpenAPI, "/openapi.json": docs.AsJSON(docs.OpenAPI), "/asyncapi.yaml": docs.AsyncAPI(),
		"/asyncapi.json": docs.AsJSON(docs.AsyncAPI()), "/docs": nil,
	} {
		get := func(headers ...string) *answer {
			a := w.send(http.MethodGet, path, "", append(headers, "Authorization", "-")...)
			require.Equal(t, "Accept-Encoding", a.Header.Get("Vary"), path)
			require.Equal(t, "max-age=3600", a.Header.Get("Cache-Control"), path)
			return a
		}
		plain := get()
		if text != nil {
			require.Equal(t, string(text), plain.text, path)
			require.Equal(t, "application/"+path[strings.IndexByte(path, '.')+1:], plain.Header.Get("Content-Type"))
		}
		zipped := get("Accept-Encoding", "br, gzip")
		require.Equal(t, "gzip", zipped.Header.Get("Content-Encoding"), path)
		require.Less(t, len(zipped.text), len(plain.text)/3, path)
		r, err := gzip.NewReader(strings.NewReader(zipped.text))
		require.NoError(t, err)
		unzipped, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, plain.text, string(unzipped), path)
		for _, refused := range []string{"identity", "gzip;q=0", "br"} {
			require.Empty(t, get("Accept-Encoding", refused).Header.Get("Content-Encoding"), "%s %s", path, refused)
		}
		tag, other := zipped.Header.Get("ETag"), plain.Header.Get("ETag")
		require.NotEqual(t, other, tag, "of another representation")
		again := get("Accept-Encoding", "gzip", "If-None-Match", tag)
		require.Equal(t, http.StatusNotModified, again.StatusCode, path)
		require.Empty(t, again.text)
		require.Equal(t, tag, again.Header.Get("ETag"))
		require.Equal(t, http.StatusOK, get("If-None-Match", tag).StatusCode, path)
		require.Equal(t, http.StatusNotModified, get("If-None-Match", `"other", `+other).StatusCode, path)
	}
}

// browsersAccept is what Chromium and Firefox send.
const browsersAccept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// A page that is not there is a page in a browser, and a problem document for
// programs.
func TestMissingPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, detail := range map[string]string{
		"/problems/conflicts": "There is no problem type of this name. Did you mean conflict?",
		"/problems/nosuch":    "There is no problem type of this name.",
		"/rels/nosuch":        "There is no link relation of this name.",
	} {
		a := w.send(http.MethodGet, path, "", "Authorization", "-", "Accept", browsersAccept)
		requirePage(t, a, http.StatusNotFound)
		require.Contains(t, a.text, detail)
		require.Equal(t, "Accept", a.Header.Get("Vary"))
		require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
		for _, link := range []string{"/problems", "/docs"} {
			require.Contains(t, a.text, `href="..`+link+`"`)
		}
		for _, accept := range []string{"-", "*/*", "application/json", "application/problem+json, text/html;q=0.5",
			"text/html, application/problem+json"} {
			p := w.send(http.MethodGet, path, "", "Authorization", "-", "Accept", accept)
			require.Equal(t, detail, p.requireProblem(t, job.CodeRequestNotFound).Detail)
			require.Equal(t, "Accept", p.Header.Get("Vary"))
		}
	}
	require.Contains(t, w.log.String(), `"error_code":"RFA_REQUEST_NOT_FOUND"`)
}

// Every problem type has a page, whose sample is an answer that the document
// allows. The links of the lists lead to them.
func TestProblemPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := openAPI()
	var samples []example
	schemas := map[bool]any{
		false: map[string]any{"$ref": "#/components/schemas/Problem"}, true: map[string]any{"$ref": "#/components/schemas/FailureDocument"},
	}
	for _, slug := range docs.ProblemTypes() {
		a := w.send(http.MethodGet, "/problems/"+slug, "", "Authorization", "-")
		requirePage(t, a, http.StatusOK)
		require.Contains(t, a.text, "<dt>What to do</dt>", slug)
		found := regexp.MustCompile(`(?s)<pre tabindex="0">(.*?)</pre>`).FindStringSubmatch(a.text)
		require.NotNil(t, found, slug)
		text := html.UnescapeString(found[1])
		head, body, answered := strings.Cut(text, "\n\n")
		if !answered {
			head, body = "", text
		}
		var document map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &document), text)
		require.Equal(t, publicURL+"/problems/"+slug, document["type"])
		schema := schemas[!answered]
		if strings.HasPrefix(slug, "batch-") && !answered {
			schema = map[string]any{"$ref": "#/components/schemas/BatchFailureDocument"}
		}
		if answered {
			require.Contains(t, head, "HTTP/1.1 "+strconv.Itoa(int(document["status"].(float64)))+" ")
			require.Contains(t, a.text, "<dt>Send the request again?</dt>")
		}
		samples = append(samples, example{slug, schema, document})
	}
	require.Len(t, samples, len(job.Codes)+len(job.Reasons)+2, "each type URI means one thing")
	compiled := compileInto(t, root, samples)
	for i, s := range samples {
		require.NoError(t, compiled(i).Validate(plainOf(t, s.value)), s.at)
	}
	for _, path := range []string{"/problems", "/problems/"} {
		list := w.send(http.MethodGet, path, "", "Authorization", "-")
		requirePage(t, list, http.StatusOK)
		for _, stage := range job.Stages {
			require.Contains(t, html.UnescapeString(list.text), "<code>"+string(stage.Stage)+"</code></dt><dd>"+stage.About)
		}
		links := regexp.MustCompile(`href="([^"#]+)"`).FindAllStringSubmatch(list.text, -1)
		require.Len(t, links, len(samples)+1)
		for _, link := range links {
			target, err := (&url.URL{Path: path}).Parse(link[1])
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, w.send(http.MethodGet, target.Path, "", "Authorization", "-").StatusCode, target.Path)
		}
	}
}
