// Package site serves the public routes: health checks, the OpenAPI and AsyncAPI documents, and the documentation pages.
package site

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
)

// Readiness is the state that /readyz reports.
type Readiness struct {
	OK     bool              `json:"-"`      // false: 503
	Status string            `json:"status"` // "ok", "degraded" or "unavailable"
	Checks map[string]string `json:"checks"` // by dependency
}

// API handles public requests.
type API struct {
	*httpkit.Kit
	Health   func(context.Context) Readiness // reports whether the process can work
	problems func() map[string][]byte        // pages of problem types, rendered on first use
}

// New returns the API.
func New(kit *httpkit.Kit, health func(context.Context) Readiness) *API {
	return &API{kit, health, sync.OnceValue(func() map[string][]byte { return docs.ProblemPages(kit.PublicURL) })}
}

// Routes returns the routes of the site.
func (s *API) Routes() []httpkit.Route {
	page := docsPage()
	row := func(path, action string, handle httpkit.Handler) httpkit.Route {
		return httpkit.Row(httpkit.Get, path, httpkit.Public, action, fiber.StatusOK, handle)
	}
	return []httpkit.Route{
		row("/healthz", "health", healthz),
		row("/readyz", "ready", s.readyz),
		row("/openapi.yaml", "openapi", document(mimeYAML, s.openAPI)),
		row("/openapi.json", "openapi_json", inJSON(s.openAPI)),
		row("/asyncapi.yaml", "asyncapi", document(mimeYAML, s.asyncAPI)),
		row("/asyncapi.json", "asyncapi_json", inJSON(s.asyncAPI)),
		row("/", "root", s.root(page)),
		row("/docs", "docs", page),
		row("/rels/:name", "relation", relationPage),
		row("/problems", "problem_types", problemIndex("problems/", "docs")),
		row("/problems/", "problems", problemIndex("", "../docs")),
		row("/problems/:slug", "problem", s.problemPage),
	}
}

// healthz responds as long as the process can handle requests.
func healthz(r *httpkit.Request) error {
	return r.JSON(fiber.StatusOK, map[string]string{"status": "ok"})
}

func (s *API) readyz(r *httpkit.Request) error {
	ready := s.Health(r.Ctx)
	status := fiber.StatusOK
	if !ready.OK {
		status = fiber.StatusServiceUnavailable
		r.Set(fiber.HeaderRetryAfter, "1")
	}
	return r.JSON(status, ready)
}

const mimeYAML = "application/yaml" // RFC 9512; it has no charset parameter

// Most processes never serve a document, so it is prepared on first use.
func document(mime string, text func() []byte) httpkit.Handler {
	made := sync.OnceValue(func() *asset { return newAsset(mime, text()) })
	return func(r *httpkit.Request) error { return made().send(r) }
}

func (s *API) openAPI() []byte {
	return s.below(docs.OpenAPI, "  - url: /\n", "  - url: %s\n")
}

func (s *API) asyncAPI() []byte {
	const server = "    host: \"{host}\"\n    protocol: http\n"
	return s.below(docs.AsyncAPI, server, server+"    pathname: %s\n")
}

// below replaces the text `server` in a document with `there`, which contains the path of the public URL. If the public URL has no path,
// below returns the document unchanged.
func (s *API) below(document []byte, server, there string) []byte {
	public, err := url.Parse(s.PublicURL)
	if err != nil || public.Path == "" {
		return document
	}
	return bytes.Replace(document, []byte(server), fmt.Appendf(nil, there, public.EscapedPath()), 1)
}

func inJSON(text func() []byte) httpkit.Handler {
	return document(fiber.MIMEApplicationJSON, func() []byte { return docs.AsJSON(text()) })
}

// asset is a text that is the same for all clients, with its entity tag. It is compressed on first use.
type asset struct {
	mime, tag string
	text      []byte
	gzip      func() []byte
}

func newAsset(mime string, text []byte) *asset {
	sum := sha256.Sum256(text)
	return &asset{mime, hex.EncodeToString(sum[:16]), text, sync.OnceValue(func() []byte {
		return fasthttp.AppendGzipBytesLevel(nil, text, fasthttp.CompressBestCompression)
	})}
}

func (a *asset) send(r *httpkit.Request) error {
	text, tag := a.text, `"`+a.tag+`"`
	r.Set(fiber.HeaderCacheControl, "max-age=3600")
	r.Vary(fiber.HeaderAcceptEncoding)
	zipped := r.Get(fiber.HeaderAcceptEncoding) != "" && r.AcceptsEncodings("gzip", "identity") == "gzip"
	if zipped { // representations need different tags (RFC 9110, section 8.8.3.3)
		tag = `"` + a.tag + `-gzip"`
	}
	r.Set(fiber.HeaderETag, tag)
	if header.MatchesETag(r.List(fiber.HeaderIfNoneMatch), tag) {
		r.Status(fiber.StatusNotModified)
		return nil
	}
	if zipped {
		text = a.gzip()
		r.Set(fiber.HeaderContentEncoding, "gzip")
	}
	r.Set(fiber.HeaderContentType, a.mime)
	return r.Send(text)
}

func docsPage() httpkit.Handler {
	page := sync.OnceValue(func() docs.Page { return docs.PageOf("ForgeRun API", "openapi.yaml") })
	text := sync.OnceValue(func() *asset { return newAsset(fiber.MIMETextHTMLCharsetUTF8, []byte(page().Text)) })
	return func(r *httpkit.Request) error {
		r.Set(fiber.HeaderContentSecurityPolicy, page().Policy)
		return text().send(r)
	}
}

// root sends the documentation page to browsers. Other clients get a JSON document with links.
func (s *API) root(page httpkit.Handler) httpkit.Handler {
	addresses := sync.OnceValue(func() *asset {
		at := s.Links.At
		text, _ := json.Marshal(api.Root{ // cannot fail for strings
			Service: "ForgeRun", API: at("/v1"), Docs: at("/docs"), Openapi: at("/openapi.json"), Asyncapi: at("/asyncapi.json"),
			Ready: at("/readyz"),
		})
		return newAsset(fiber.MIMEApplicationJSON, append(text, '\n'))
	})
	return func(r *httpkit.Request) error {
		r.Vary(fiber.HeaderAccept)
		if header.Prefers(r.List(fiber.HeaderAccept), fiber.MIMETextHTML, fiber.MIMEApplicationJSON) {
			return page(r)
		}
		r.Set(fiber.HeaderContentSecurityPolicy, docs.PagePolicy)
		return addresses().send(r)
	}
}

// problemIndex sends the list of all problem types. Links to their pages begin with `base`: "problems/" for the list at /problems, and ""
// for /problems/.
func problemIndex(base, docsURL string) httpkit.Handler {
	return func(r *httpkit.Request) error { return r.HTML(docs.ProblemIndex(base, docsURL)) }
}

func (s *API) problemPage(r *httpkit.Request) error {
	slug := r.Params("slug")
	page, ok := s.problems()[slug]
	if !ok {
		return httpkit.NoPage{Err: job.Errorf(job.CodeRequestNotFound, "There is no problem type with this name.%s",
			decode.DidYouMean(slug, docs.ProblemTypes()))}
	}
	return r.HTML(page)
}

func relationPage(r *httpkit.Request) error {
	page, ok := docs.Relation(r.Params("name"))
	if !ok {
		return httpkit.NoPage{Err: job.Errorf(job.CodeRequestNotFound, "There is no link relation with this name.")}
	}
	return r.HTML(page)
}
