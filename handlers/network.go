package handlers

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/cors"
)

// otherMethod stands for every method that HTTP itself does not define.
const otherMethod = "OTHER"

func nameMethod(c *fasthttp.RequestCtx) {
	if !slices.Contains(fiber.DefaultMethods, string(c.Method())) {
		c.Request.Header.SetMethod(otherMethod)
	}
}

// decodePath writes those characters of the path plainly that mean the same so (RFC 3986, section 6.2.2.2), once. Others, such as %2F,
// stay as they are, and are never part of an id.
func decodePath(c *fasthttp.RequestCtx) {
	path := c.URI().PathOriginal()
	if bytes.IndexByte(path, '%') < 0 {
		return
	}
	plain := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		if path[i] == '%' && i+2 < len(path) {
			if b, err := hex.DecodeString(string(path[i+1 : i+3])); err == nil && isUnreserved(b[0]) {
				plain = append(plain, b[0])
				i += 2
				continue
			}
		}
		plain = append(plain, path[i])
	}
	c.URI().SetPathBytes(plain)
}

// isUnreserved reports whether a character has no meaning of its own in a URI (RFC 3986, section 2.3).
func isUnreserved(b byte) bool {
	return b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z' || strings.IndexByte("-._~", b) >= 0
}

// What a request may take on its connection, once its head is read: so many times
// the largest body, and a head of the request behind it. Extensions of chunks, which
// nobody has a use for, would otherwise have no end.
const (
	framingFactor = 2
	framingSlack  = 64 << 10
)

// underWay keeps the connection from being closed as an idle one while its
// request is answered, and for good if it becomes a stream.
func (s *Server) underWay(c *fasthttp.RequestCtx, handle fasthttp.RequestHandler) {
	served, ok := c.Conn().(*conn.Conn)
	if !ok {
		handle(c)
		return
	}
	served.Begin()
	served.AtMost(framingFactor*s.cfg.MaxBodyBytes + framingSlack)
	handle(c)
	if !c.Hijacked() {
		served.End()
	}
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
