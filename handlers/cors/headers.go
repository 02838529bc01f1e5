package cors

import (
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// Fiber's middleware is not used: answers to requests that no route takes, or that cannot be read, and those to other hosts do not pass
// it, and errors are what a page needs to read most.

// Methods are those that pages may use. HEAD and GET need no leave.
var Methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}

// RequestHeaders are those that pages may send: all that the API reads, and
// those of tracing.
var RequestHeaders = []string{
	"Accept", "Accept-Language", "Authorization", "Content-Type", "ForgeRun-Fault", "ForgeRun-Session", "Idempotency-Key", "If-Match",
	"If-None-Match", "If-Range", "Last-Event-ID", "Prefer", "Range", "traceparent", "tracestate", "X-Correlation-ID", "X-Request-Id",
}

// AnswerHeaders are those that pages may read besides the few that the Fetch
// standard lets all read.
var AnswerHeaders = []string{
	"Accept-Encoding", "Accept-Ranges", "Allow", "Content-Digest", "Content-Range", "ETag", "Idempotency-Replayed", "Link", "Location",
	"Preference-Applied",
	"RateLimit", "RateLimit-Policy", "Repr-Digest", "Retry-After", "WWW-Authenticate", "X-Request-Id",
}

// MaxAge is how long a browser need not ask again, in seconds: two hours, the
// most that Chromium keeps.
const MaxAge = 7200

// Share lets the page that asks read the answer, if its origin may. It comes before all that may fail. A preflight has no other headers to
// read.
func (o Origins) Share(c *fiber.Ctx, isPreflight bool) {
	if o.None() {
		return
	}
	if !o.any {
		c.Vary(fiber.HeaderOrigin) // also without one: caches must not give that answer to a page
	}
	origin := c.Get(fiber.HeaderOrigin)
	if !o.Allows(origin) {
		return
	}
	if o.any {
		origin = Any
	}
	c.Set(fiber.HeaderAccessControlAllowOrigin, origin)
	if !isPreflight {
		c.Set(fiber.HeaderAccessControlExposeHeaders, strings.Join(AnswerHeaders, ", "))
	}
}

// IsPreflight reports whether a browser asks, for a page whose origin may call, what the page may send. For others OPTIONS is a method as
// any that no route has.
func (o Origins) IsPreflight(c *fiber.Ctx) bool {
	return c.Method() == fiber.MethodOptions && c.Get(fiber.HeaderAccessControlRequestMethod) != "" && o.Allows(c.Get(fiber.HeaderOrigin))
}

// AnswerPreflight names all that pages may send, whatever the path: so a page can read what is wrong with a request.
func AnswerPreflight(c *fiber.Ctx) {
	c.Response().Header.Del(fiber.HeaderAllow) // of the refusal that it would be otherwise
	c.Set(fiber.HeaderAccessControlAllowMethods, strings.Join(Methods, ", "))
	c.Set(fiber.HeaderAccessControlAllowHeaders, strings.Join(RequestHeaders, ", "))
	c.Set(fiber.HeaderAccessControlMaxAge, strconv.Itoa(MaxAge))
	c.Status(fiber.StatusNoContent)
}
