package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/handlers/cors"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/job"
)

// Health reports whether the process can do its work.
type Health interface {
	Ready(ctx context.Context) Readiness
}

// Readiness is the answer of /readyz.
type Readiness struct {
	OK     bool              `json:"-"`      // false: 503
	Status string            `json:"status"` // "ok", "degraded" or "unavailable"
	Checks map[string]string `json:"checks"` // by dependency
}

// healthz answers as long as the process serves at all.
func (s *Server) healthz(r *call) error {
	return r.json(fiber.StatusOK, healthView{"ok"})
}

func (s *Server) readyz(r *call) error {
	ready := s.deps.Health.Ready(r.ctx)
	status := fiber.StatusOK
	if !ready.OK {
		status = fiber.StatusServiceUnavailable
		r.Set(fiber.HeaderRetryAfter, "1")
	}
	return r.json(status, ready)
}

type healthView struct {
	Status string `json:"status"`
}

const mimeYAML = "application/yaml" // RFC 9512; it has no charset parameter

// document is the handler of a document of the program's own. Most processes
// are never asked for it, so nothing is made of it before.
func document(mime string, text func() []byte) func(*call) error {
	made := sync.OnceValue(func() *asset { return newAsset(mime, text()) })
	return func(r *call) error { return made().send(r) }
}

func inJSON(text func() []byte) func(*call) error {
	return document(fiber.MIMEApplicationJSON, func() []byte { return docs.AsJSON(text()) })
}

// asset is a text that is the same for all, with its entity tag and, made when
// the first client asks for it, its compressed form.
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

func (a *asset) send(r *call) error {
	text, tag := a.text, `"`+a.tag+`"`
	r.Set(fiber.HeaderCacheControl, "max-age=3600")
	r.Vary(fiber.HeaderAcceptEncoding)
	zipped := r.Get(fiber.HeaderAcceptEncoding) != "" && r.AcceptsEncodings("gzip", "identity") == "gzip"
	if zipped { // another representation has another tag (RFC 9110, section 8.8.3.3)
		tag = `"` + a.tag + `-gzip"`
	}
	r.Set(fiber.HeaderETag, tag)
	if header.MatchesETag(r.list(fiber.HeaderIfNoneMatch), tag) {
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

// docsPage is the handler of the OpenAPI document as a page to read and to try.
func (s *Server) docsPage() func(*call) error {
	page := sync.OnceValue(func() *asset { return newAsset(fiber.MIMETextHTMLCharsetUTF8, []byte(s.site.Docs().Text)) })
	return func(r *call) error {
		r.Set(fiber.HeaderContentSecurityPolicy, s.site.Docs().Policy)
		return page().send(r)
	}
}

// rootView says where things are.
type rootView struct {
	Service  string `json:"service"`
	API      string `json:"api"`
	Docs     string `json:"docs"`
	OpenAPI  string `json:"openapi"`
	AsyncAPI string `json:"asyncapi"`
	Ready    string `json:"ready"`
}

// root gives browsers the page of the documentation, and programs where things are.
func (s *Server) root(page func(*call) error) func(*call) error {
	addresses := sync.OnceValue(func() *asset {
		at := s.links.At
		text, _ := json.Marshal(rootView{ // which cannot fail for texts
			"ForgeRun", at("/v1"), at("/docs"), at("/openapi.json"), at("/asyncapi.json"), at("/readyz"),
		})
		return newAsset(fiber.MIMEApplicationJSON, append(text, '\n'))
	})
	return func(r *call) error {
		r.Vary(fiber.HeaderAccept)
		if header.Prefers(r.list(fiber.HeaderAccept), fiber.MIMETextHTML, fiber.MIMEApplicationJSON) {
			return page(r)
		}
		r.Set(fiber.HeaderContentSecurityPolicy, docs.PagePolicy)
		return addresses().send(r)
	}
}

// problemIndex answers with the list of all problem types. Their pages are at
// base, seen from the list: the list has an address with a slash at its end too.
func problemIndex(base, docsURL string) func(*call) error {
	return func(r *call) error { return r.html(docs.ProblemIndex(base, docsURL)) }
}

// problemPage answers with the page that a problem type URI points to.
func (s *Server) problemPage(r *call) error {
	slug := r.Params("slug")
	page, ok := s.site.Problem(slug)
	if !ok {
		return noPage{job.Errorf(job.CodeRequestNotFound, "There is no problem type of this name.%s",
			decode.DidYouMean(slug, docs.ProblemTypes()))}
	}
	return r.html(page)
}

// relationPage answers with the page that a relation type points to.
func relationPage(r *call) error {
	page, ok := docs.Relation(r.Params("name"))
	if !ok {
		return noPage{job.Errorf(job.CodeRequestNotFound, "There is no link relation of this name.")}
	}
	return r.html(page)
}

// noPage is the error of a path at which a page could be. In a browser it is a
// page too.
type noPage struct{ error }

func (e noPage) Unwrap() error { return e.error }

// send answers with a page instead of the problem document p, if the client
// prefers that. It reports whether it did.
func (e noPage) send(r *call, p *problem.Document) bool {
	r.Vary(fiber.HeaderAccept)
	if !header.Prefers(r.list(fiber.HeaderAccept), fiber.MIMETextHTML, mimeProblem) {
		return false
	}
	_ = r.html(docs.Missing(p.Detail, "../")) // bytes: cannot fail
	r.Set(fiber.HeaderCacheControl, "no-store")
	r.Status(p.Status)
	return true
}

// html answers with a page of the program's own.
func (r *call) html(page []byte) error {
	r.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	r.Set(fiber.HeaderContentSecurityPolicy, docs.PagePolicy)
	r.Set(fiber.HeaderCacheControl, "max-age=3600")
	return r.Send(page)
}

// Fiber's middleware for CORS is not used: answers to requests that no route
// takes, or that cannot be read, and those to other hosts do not pass it, and
// errors are what a page needs to read most.

// preflight is the route of a browser's question whether a page may send a
// request. It is asked without credentials, and answered from memory.
var preflight = &route{
	method: fiber.MethodOptions, path: "preflight", access: public, action: "preflight", success: fiber.StatusNoContent,
}

var (
	corsMethods = strings.Join(cors.Methods, ", ")
	corsHeaders = strings.Join(cors.RequestHeaders, ", ")
	corsExposed = strings.Join(cors.AnswerHeaders, ", ")
	corsMaxAge  = strconv.Itoa(cors.MaxAge)
)

// share lets the page that asks read the answer, if its origin may. It comes
// before all that may fail.
func (s *Server) share(r *call) {
	if s.cfg.Origins.None() {
		return
	}
	if !s.cfg.Origins.Any() {
		r.Vary(fiber.HeaderOrigin) // also without one: caches must not give that answer to a page
	}
	origin := r.Get(fiber.HeaderOrigin)
	if !s.cfg.Origins.Allows(origin) {
		return
	}
	if s.cfg.Origins.Any() {
		origin = cors.Any
	}
	r.Set(fiber.HeaderAccessControlAllowOrigin, origin)
	if r.route != preflight {
		r.Set(fiber.HeaderAccessControlExposeHeaders, corsExposed)
	}
}

// isPreflight reports whether a browser asks for a page whose origin may call.
// For others OPTIONS is a method as any that no route has.
func (s *Server) isPreflight(c *fiber.Ctx) bool {
	return c.Method() == fiber.MethodOptions && c.Get(fiber.HeaderAccessControlRequestMethod) != "" &&
		s.cfg.Origins.Allows(c.Get(fiber.HeaderOrigin))
}

// answerPreflight names all that pages may send, whatever the path: so a page can
// read what is wrong with a request.
func answerPreflight(r *call) error {
	r.Response().Header.Del(fiber.HeaderAllow) // of the refusal that it would be otherwise
	r.Set(fiber.HeaderAccessControlAllowMethods, corsMethods)
	r.Set(fiber.HeaderAccessControlAllowHeaders, corsHeaders)
	r.Set(fiber.HeaderAccessControlMaxAge, corsMaxAge)
	r.Status(fiber.StatusNoContent)
	return nil
}
