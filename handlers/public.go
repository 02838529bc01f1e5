package handlers

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/job"
)

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

// document is the handler of a document of the program's own.
func document(mime string, text []byte) func(*call) error {
	d := newAsset(mime, text)
	return d.send
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

// docsPage is the handler of the OpenAPI document as a page to read.
func docsPage() func(*call) error {
	page := sync.OnceValue(func() *asset { return newAsset(fiber.MIMETextHTMLCharsetUTF8, docs.Page()) })
	return func(r *call) error {
		r.Set(fiber.HeaderContentSecurityPolicy, pagePolicy)
		return page().send(r)
	}
}

// problemIndex answers with the list of all problem types. Their pages are at
// base, seen from the list: the list has an address with a slash at its end too.
func problemIndex(base string) func(*call) error {
	return func(r *call) error { return r.html(docs.ProblemIndex(base)) }
}

// problemPage answers with the page that a problem type URI points to.
func problemPage(r *call) error {
	page, ok := docs.Problem(r.Params("slug"))
	if !ok {
		return job.Errorf(job.CodeRequestNotFound, "There is no problem type of this name.")
	}
	return r.html(page)
}

// relationPage answers with the page that a relation type points to.
func relationPage(r *call) error {
	page, ok := docs.Relation(r.Params("name"))
	if !ok {
		return job.Errorf(job.CodeRequestNotFound, "There is no link relation of this name.")
	}
	return r.html(page)
}

// pagePolicy: pages load nothing from anywhere, and stand in no frame.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

// html answers with a page of the program's own. It loads nothing from
// anywhere.
func (r *call) html(page []byte) error {
	r.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	r.Set(fiber.HeaderContentSecurityPolicy, pagePolicy)
	r.Set(fiber.HeaderCacheControl, "max-age=3600")
	return r.Send(page)
}
