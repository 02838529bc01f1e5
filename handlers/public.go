package handlers

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/gofiber/fiber/v2"

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
	sum := sha256.Sum256(text)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	return func(r *call) error {
		r.Set(fiber.HeaderCacheControl, "max-age=3600")
		r.Set(fiber.HeaderETag, tag)
		if header.MatchesETag(r.list(fiber.HeaderIfNoneMatch), tag) {
			r.Status(fiber.StatusNotModified)
			return nil
		}
		r.Set(fiber.HeaderContentType, mime)
		return r.Send(text)
	}
}

// docsPage answers with the OpenAPI document as a page to read.
func docsPage(r *call) error { return r.html(docs.Page()) }

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

// html answers with a page of the program's own. It loads nothing from
// anywhere.
func (r *call) html(page []byte) error {
	r.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	r.Set(fiber.HeaderContentSecurityPolicy, "default-src 'none'; style-src 'unsafe-inline'")
	r.Set(fiber.HeaderCacheControl, "max-age=3600")
	return r.Send(page)
}
