package console

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func get(t *testing.T, at string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, at, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

// The content security policy forbids inline styles and scripts, so the page has none.
func TestPolicy(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"/", Prefix + "main.js", Prefix + "base.css", Prefix + "nothing.js"} {
		given := get(t, at).Header().Get("Content-Security-Policy")
		require.Contains(t, given, "default-src 'none'; script-src 'self'; style-src 'self';", at)
		require.Contains(t, given, "base-uri 'none'; frame-ancestors 'none'", at)
		require.NotContains(t, given, "unsafe", at)
	}
	page := get(t, "/").Body.String()
	require.NotRegexp(t, `(?i)<style|<script(>| [^>]*>[^<])| style=| on[a-z]+=`, page)
	require.NotRegexp(t, `(?i)(src|href)="(/|https?:)`, page, "URLs are relative, because a proxy may add a prefix")
}

// No module converts text to HTML or code.
func TestModules(t *testing.T) {
	t.Parallel()
	assets, err := load(files)
	require.NoError(t, err)
	imports := regexp.MustCompile(`(?m)^import .* from "([^"]+)";$`)
	scripts := 0
	for name, a := range assets {
		if path.Ext(name) != ".js" {
			continue
		}
		scripts += len(a.plain)
		require.Contains(t, string(assets["index.html"].plain), `<link rel="modulepreload" href="console/`+name+`">`)
		for _, match := range imports.FindAllStringSubmatch(string(a.plain), -1) {
			require.Contains(t, assets, path.Join(path.Dir(name), match[1]), name)
		}
		require.NotRegexp(t, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function`, string(a.plain), name)
	}
	require.Positive(t, scripts)
	require.Less(t, scripts, 200_000)
}

func TestAssets(t *testing.T) {
	t.Parallel()
	for at, mediaType := range map[string]string{
		"/": "text/html; charset=utf-8", Prefix + "main.js": "text/javascript; charset=utf-8",
		Prefix + "base.css": "text/css; charset=utf-8", Prefix + "icon.svg": "image/svg+xml",
	} {
		plain := get(t, at)
		require.Equal(t, http.StatusOK, plain.Code, at)
		require.Equal(t, mediaType, plain.Header().Get("Content-Type"))
		require.Equal(t, "no-cache", plain.Header().Get("Cache-Control"))
		squeezed := get(t, at, "Accept-Encoding", "br, gzip;q=0.5")
		require.Equal(t, "gzip", squeezed.Header().Get("Content-Encoding"))
		z, err := gzip.NewReader(bytes.NewReader(squeezed.Body.Bytes()))
		require.NoError(t, err)
		body, err := io.ReadAll(z)
		require.NoError(t, err)
		require.Equal(t, plain.Body.String(), string(body))
		require.NotEqual(t, plain.Header().Get("ETag"), squeezed.Header().Get("ETag"), "each representation has its own tag")
		for _, given := range []string{plain.Header().Get("ETag"), `"x", W/` + plain.Header().Get("ETag")} {
			again := get(t, at, "If-None-Match", given)
			require.Equal(t, http.StatusNotModified, again.Code)
			require.Empty(t, again.Body.String())
		}
		require.Equal(t, http.StatusOK, get(t, at, "If-None-Match", `"x"`).Code)
		require.Empty(t, get(t, at, "Accept-Encoding", "gzip;q=0").Header().Get("Content-Encoding"))
	}
	for _, at := range []string{Prefix, Prefix + "nothing.js", Prefix + "../console.go", Prefix + strings.Repeat("x", 5000)} {
		require.Equal(t, http.StatusNotFound, get(t, at).Code, at)
	}
}
