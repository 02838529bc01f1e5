package docs

import (
	"compress/gzip"
	"crypto/sha256"
	_ "embed" // the style and script
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"net/http"
	"sync"

	"github.com/swaggest/swgui/v5/static"
)

// Page is an HTML page that shows an OpenAPI document, and the Content Security Policy of the page.
type Page struct{ Text, Policy string }

var (
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
)

// PageOf returns a page that shows an OpenAPI document with Swagger UI. `document` is the URL of the OpenAPI document. Style and script
// are inline, so the page loads only the document. The policy allows this style and script by hash, requests to the same origin, and data:
// URLs for icons.
func PageOf(title, document string) Page {
	style, script := unzipped("swagger-ui.css.gz")+pageStyle, unzipped("swagger-ui-bundle.js.gz")+pageScript
	return Page{
		Text:   fmt.Sprintf(frame, html.EscapeString(title), style, html.EscapeString(document), script),
		Policy: policy + "; style-src " + hashOf(style) + "; script-src " + hashOf(script) + "; img-src data:; connect-src 'self'",
	}
}

const frame = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s</title>
<style>%s</style>
</head>
<body>
<main id="api" data-document="%s"></main>
<script>%s</script>
</body>
</html>
`

// OperatorPage serves a page that shows the OpenAPI document of the operator API. `document` is the URL of the OpenAPI document.
func OperatorPage(document string) http.Handler {
	page := sync.OnceValue(func() Page { return PageOf("ForgeRun operator API", document) })
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", page().Policy)
		_, _ = io.WriteString(w, page().Text) // after an error, the connection is lost anyway
	})
}

// unzipped panics if the embedded file is missing; a test checks that it exists.
func unzipped(name string) string {
	file, err := static.FS.Open(name)
	if err != nil {
		panic(err)
	}
	defer func() { _ = file.Close() }() // cannot fail: the file is in memory
	r, err := gzip.NewReader(file)
	if err != nil {
		panic(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// PagePolicy is the Content Security Policy (Level 3) of pages without a script. Such a page cannot load anything, submit forms or be
// framed. The policy allows the page's inline style by hash.
var PagePolicy = policy + "; style-src " + hashOf(baseStyle)

const policy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
