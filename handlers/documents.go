package handlers

import (
	"crypto/sha256"
	_ "embed" // the documents
	"encoding/hex"

	"github.com/gofiber/fiber/v2"
)

const mimeYAML = "application/yaml" // RFC 9512; it has no charset parameter

// The descriptions of the API, written by hand. Tests hold them against the
// routes, the views and every answer.
var (
	//go:embed openapi.yaml
	openAPIDocument []byte
	//go:embed asyncapi.yaml
	asyncAPIDocument []byte

	openAPITag  = strongTag(openAPIDocument)
	asyncAPITag = strongTag(asyncAPIDocument)
)

func (*Server) openAPI(r *call) error { return r.document(openAPIDocument, openAPITag) }

func (*Server) asyncAPI(r *call) error { return r.document(asyncAPIDocument, asyncAPITag) }

// document answers with a YAML file of the program's own.
func (r *call) document(text []byte, tag string) error {
	r.Set(fiber.HeaderCacheControl, "max-age=3600")
	r.Set(fiber.HeaderETag, tag)
	if match := r.list(fiber.HeaderIfNoneMatch); match != "" && matchesETag(match, tag) {
		r.Status(fiber.StatusNotModified)
		return nil
	}
	r.Set(fiber.HeaderContentType, mimeYAML)
	return r.Send(text)
}

func strongTag(text []byte) string {
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}
