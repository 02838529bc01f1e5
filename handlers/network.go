package handlers

import (
	"slices"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/handlers/conn"
)

// otherMethod stands for every method that HTTP itself does not define, so
// that such a request is answered as any other that no route wants.
const otherMethod = "OTHER"

func nameMethod(c *fasthttp.RequestCtx) {
	if !slices.Contains(fiber.DefaultMethods, string(c.Method())) {
		c.Request.Header.SetMethod(otherMethod)
	}
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
