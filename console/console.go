// Package console embeds the operator console in the binary: plain JavaScript modules for browsers. The console calls the operator API by
// relative URLs, so one listener must serve both.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

//go:embed assets
var files embed.FS

// Prefix is the path of the console's files. The page itself is at /.
const Prefix = "/console/"

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// asset is an embedded file. It is compressed only when first requested, because most processes never serve the console.
type asset struct {
	mediaType, tag string
	plain          []byte
	squeezed       func() []byte
}

// Handler serves the page at / and its files below Prefix.
func Handler() http.Handler {
	assets, err := load(files)
	if err != nil {
		panic(err) // cannot fail: the files are embedded
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, Prefix)
		if r.URL.Path == "/" {
			name = "index.html"
		}
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		a, ok := assets[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		a.serve(w, r)
	})
}

// load reads the files. It adds a preload link per module to the page, so that browsers load them in parallel.
func load(from fs.FS) (map[string]asset, error) {
	bodies := map[string][]byte{}
	var modules strings.Builder
	err := fs.WalkDir(from, "assets", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name := strings.TrimPrefix(file, "assets/")
		if bodies[name], err = fs.ReadFile(from, file); err != nil {
			return err
		}
		if path.Ext(name) == ".js" {
			fmt.Fprintf(&modules, "<link rel=\"modulepreload\" href=\"console/%s\">\n", name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	bodies["index.html"] = bytes.Replace(bodies["index.html"], []byte("<!-- modules -->\n"), []byte(modules.String()), 1)
	assets := make(map[string]asset, len(bodies))
	for name, body := range bodies {
		if assets[name], err = newAsset(name, body); err != nil {
			return nil, err
		}
	}
	return assets, nil
}

// The media types are fixed here, because the tables of operating systems differ.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
}

func newAsset(name string, body []byte) (asset, error) {
	sum := sha256.Sum256(body)
	a := asset{
		mediaType: types[path.Ext(name)], tag: hex.EncodeToString(sum[:12]), plain: body,
		squeezed: sync.OnceValue(func() []byte { return squeeze(body) }),
	}
	if a.mediaType == "" {
		if a.mediaType = mime.TypeByExtension(path.Ext(name)); a.mediaType == "" {
			return asset{}, fmt.Errorf("%s: no media type is known", name)
		}
	}
	return a, nil
}

func squeeze(body []byte) []byte {
	var squeezed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&squeezed, gzip.BestCompression) // cannot fail: the level is valid
	_, _ = z.Write(body)                                         // to memory: cannot fail
	_ = z.Close()
	return squeezed.Bytes()
}

// serve sends the file, or 304 if the browser has it. Browsers must check a cached file with the server before use, because an upgrade
// may have changed the file.
func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	header, body, tag := w.Header(), a.plain, `"`+a.tag+`"`
	if acceptsGzip(r) {
		body, tag = a.squeezed(), `"`+a.tag+`-gzip"`
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Vary", "Accept-Encoding")
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", tag)
	header.Set("Content-Type", a.mediaType)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

func acceptsGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if strings.EqualFold(name, "gzip") {
			return strings.TrimRight(strings.TrimSpace(weight), "0.") != "q="
		}
	}
	return false
}
