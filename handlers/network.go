package handlers

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/handlers/conn"
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
