package handlers

import (
	"compress/gzip"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/job"
)

// requirePage checks that the answer is a page that loads nothing.
func requirePage(t *testing.T, a *answer) {
	t.Helper()
	require.Equal(t, http.StatusOK, a.StatusCode)
	require.Equal(t, "text/html; charset=utf-8", a.Header.Get("Content-Type"))
	require.Equal(t, "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'", a.Header.Get("Content-Security-Policy"))
	for _, loading := range []string{"<script", "<link", "<img", "src=", "url(", "@import"} {
		require.NotContains(t, a.text, loading)
	}
}

func TestDocsPageShowsTheDocument(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.send(http.MethodGet, "/docs", "", "Authorization", "-")
	requirePage(t, a)
	require.Equal(t, a.text, w.send(http.MethodGet, "/docs", "").text)

	root := treeOf(t, docs.OpenAPI)
	ids := map[string]bool{}
	for _, found := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(a.text, -1) {
		require.False(t, ids[found[1]], "two things have the id %s", found[1])
		ids[found[1]] = true
	}
	for path, item := range root.in("paths") {
		for method := range item.(map[string]any) {
			if id, ok := root.in("paths", path, method)["operationId"].(string); ok {
				require.True(t, ids[id], id)
			}
		}
	}
	for name := range root.in("webhooks") {
		id, _ := root.in("webhooks", name, "post")["operationId"].(string)
		require.True(t, ids[id], name)
	}
	for _, schema := range root.in("components", "schemas").names() {
		require.True(t, ids["schema-"+schema], schema)
	}
	for _, response := range root.in("components", "responses").names() {
		require.True(t, ids["answer-"+response], response)
	}
	for _, found := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(a.text, -1) {
		if target, ok := strings.CutPrefix(found[1], "#"); ok {
			require.True(t, ids[target], "nothing is at #%s", target)
			continue
		}
		require.Equal(t, http.StatusOK, w.send(http.MethodGet, "/"+found[1], "").StatusCode, found[1])
	}
	for _, c := range job.Codes {
		require.Contains(t, a.text, `href="problems/`+c.Slug+`"`)
	}
}

func TestRelationPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"job-result", "batch-jobs"} {
		page, ok := docs.Relation(name)
		require.True(t, ok)
		a := w.send(http.MethodGet, "/rels/"+name, "", "Authorization", "-")
		requirePage(t, a)
		require.Equal(t, string(page), a.text)
	}
	w.send(http.MethodGet, "/rels/other", "").requireProblem(t, job.CodeRequestNotFound)
}

// Documents of a quarter of a megabyte are sent once, and compressed.
func TestDocumentsAreCompressedAndTagged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/docs", "/", "/openapi.yaml", "/openapi.json", "/asyncapi.yaml", "/asyncapi.json"} {
		get := func(headers ...string) *answer {
			a := w.send(http.MethodGet, path, "", append(headers, "Authorization", "-")...)
			require.Equal(t, "Accept-Encoding", a.Header.Get("Vary"), path)
			require.Equal(t, "max-age=3600", a.Header.Get("Cache-Control"), path)
			return a
		}
		plain := get()
		zipped := get("Accept-Encoding", "br, gzip")
		require.Equal(t, "gzip", zipped.Header.Get("Content-Encoding"), path)
		require.Less(t, len(zipped.text), len(plain.text)/3, path)
		r, err := gzip.NewReader(strings.NewReader(zipped.text))
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, plain.text, string(text), path)
		for _, refused := range []string{"identity", "gzip;q=0", "br"} {
			require.Empty(t, get("Accept-Encoding", refused).Header.Get("Content-Encoding"), "%s %s", path, refused)
		}

		tag := zipped.Header.Get("ETag")
		require.NotEqual(t, plain.Header.Get("ETag"), tag, "of another representation")
		again := get("Accept-Encoding", "gzip", "If-None-Match", tag)
		require.Equal(t, http.StatusNotModified, again.StatusCode, path)
		require.Empty(t, again.text)
		require.Equal(t, tag, again.Header.Get("ETag"))
		require.Equal(t, http.StatusOK, get("If-None-Match", tag).StatusCode, path)
		require.Equal(t, http.StatusNotModified, get("If-None-Match", plain.Header.Get("ETag")).StatusCode, path)
	}
}
