package httpkit

import (
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/cors"
)

// Fiber's middleware for CORS is not used: answers to requests that no route
// takes, or that cannot be read, and those to other hosts do not pass it, and
// errors are what a page needs to read most.

// preflight is the route of a browser's question whether a page may send a
// request. It is asked without credentials, and answered from memory.
var preflight = &Route{
	Method: fiber.MethodOptions, Path: "preflight", Access: Public, Action: "preflight", Success: fiber.StatusNoContent,
}

var (
	corsMethods = strings.Join(cors.Methods, ", ")
	corsHeaders = strings.Join(cors.RequestHeaders, ", ")
	corsExposed = strings.Join(cors.AnswerHeaders, ", ")
	corsMaxAge  = strconv.Itoa(cors.MaxAge)
)

// share lets the page that asks read the answer, if its origin may. It comes
// before all that may fail.
func (s *Kit) share(r *Request) {
	if s.Origins.None() {
		return
	}
	if !s.Origins.Any() {
		r.Vary(fiber.HeaderOrigin) // also without one: caches must not give that answer to a page
	}
	origin := r.Get(fiber.HeaderOrigin)
	if !s.Origins.Allows(origin) {
		return
	}
	if s.Origins.Any() {
		origin = cors.Any
	}
	r.Set(fiber.HeaderAccessControlAllowOrigin, origin)
	if r.Route != preflight {
		r.Set(fiber.HeaderAccessControlExposeHeaders, corsExposed)
	}
}

// isPreflight reports whether a browser asks for a page whose origin may call.
// For others OPTIONS is a method as any that no route has.
func (s *Kit) isPreflight(c *fiber.Ctx) bool {
	return c.Method() == fiber.MethodOptions && c.Get(fiber.HeaderAccessControlRequestMethod) != "" &&
		s.Origins.Allows(c.Get(fiber.HeaderOrigin))
}

// answerPreflight names all that pages may send, whatever the path: so a page can
// read what is wrong with a request.
func answerPreflight(r *Request) error {
	r.Response().Header.Del(fiber.HeaderAllow) // of the refusal that it would be otherwise
	r.Set(fiber.HeaderAccessControlAllowMethods, corsMethods)
	r.Set(fiber.HeaderAccessControlAllowHeaders, corsHeaders)
	r.Set(fiber.HeaderAccessControlMaxAge, corsMaxAge)
	r.Status(fiber.StatusNoContent)
	return nil
}
