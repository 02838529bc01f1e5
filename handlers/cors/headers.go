package cors

import (
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// Fiber's CORS middleware is not used, because it adds no headers to early error responses. Pages must be able to read errors, too.

// Methods are the methods that pages may use.
var Methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}

// RequestHeaders are the headers that pages may send: all headers that the API reads, and the tracing headers.
var RequestHeaders = []string{
	"Accept", "Accept-Language", "Authorization", "Content-Type", "ForgeRun-Fault", "ForgeRun-Session", "Idempotency-Key", "If-Match",
	"If-None-Match", "If-Range", "Last-Event-ID", "Prefer", "Range", "traceparent", "tracestate", "X-Correlation-ID", "X-Request-Id",
}

// ExposedHeaders are the headers that pages may read. Some other headers are always readable according to the Fetch standard.
var ExposedHeaders = []string{
	"Accept-Encoding", "Accept-Ranges", "Allow", "Content-Digest", "Content-Range", "ETag", "Idempotency-Replayed", "Link", "Location",
	"Preference-Applied",
	"RateLimit", "RateLimit-Policy", "Repr-Digest", "Retry-After", "WWW-Authenticate", "X-Request-Id",
}

// MaxAge is how long browsers cache a preflight response, in seconds: two hours, Chromium's maximum.
const MaxAge = 7200

// Share lets a page of an allowed origin read the response. Call Share before anything can fail, so that pages can also read errors. For
// a preflight, Share exposes no headers.
func (o Origins) Share(c *fiber.Ctx, isPreflight bool) {
	if o.None() {
		return
	}
	if !o.any {
		c.Vary(fiber.HeaderOrigin) // even if this origin is not allowed: a cache must not reuse the response for another origin
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
		c.Set(fiber.HeaderAccessControlExposeHeaders, strings.Join(ExposedHeaders, ", "))
	}
}

// IsPreflight reports whether the request is a CORS preflight of an allowed origin. Other OPTIONS requests are refused like any
// unsupported method.
func (o Origins) IsPreflight(c *fiber.Ctx) bool {
	return c.Method() == fiber.MethodOptions && c.Get(fiber.HeaderAccessControlRequestMethod) != "" && o.Allows(c.Get(fiber.HeaderOrigin))
}

// AllowPreflight allows the same methods and headers on every path. Pages can then read the error for an unsupported method.
func AllowPreflight(c *fiber.Ctx) {
	c.Response().Header.Del(fiber.HeaderAllow) // Fiber's 405 response had set it
	c.Set(fiber.HeaderAccessControlAllowMethods, strings.Join(Methods, ", "))
	c.Set(fiber.HeaderAccessControlAllowHeaders, strings.Join(RequestHeaders, ", "))
	c.Set(fiber.HeaderAccessControlMaxAge, strconv.Itoa(MaxAge))
	c.Status(fiber.StatusNoContent)
}
