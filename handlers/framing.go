package handlers

import (
	"bytes"
	"slices"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/job"
)

// checkFraming refuses a request that a proxy in front could end elsewhere than
// this server does (RFC 9112, sections 2.2, 5.2 and 6.3): what the proxy takes
// for its body would be a request here. fasthttp itself refuses a space before
// the colon, several lengths, and Transfer-Encoding with HTTP/1.0.
func checkFraming(h *fasthttp.RequestHeader) error {
	raw := h.RawHeaders()
	for rest := raw; ; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			break
		}
		if i == 0 || rest[i-1] != '\r' {
			return job.Errorf(job.CodeMalformed, "A line of the request's header ends without a carriage return. End each one with CR LF.")
		}
		rest = rest[i+1:]
		if len(rest) > 0 && (rest[0] == ' ' || rest[0] == '\t') {
			return job.Errorf(job.CodeMalformed, "A line of the request's header begins with a space. Send each field on one line.")
		}
	}
	if hasField(raw, fasthttp.HeaderContentLength) && hasField(raw, fasthttp.HeaderTransferEncoding) {
		return job.Errorf(job.CodeMalformed, "The request has both a Content-Length and a Transfer-Encoding. Send one of them.")
	}
	return nil
}

// hasField looks for a field in a header's lines: what fasthttp keeps of them
// depends on one another.
func hasField(raw []byte, name string) bool {
	for line := range bytes.Lines(raw) {
		if len(line) > len(name) && line[len(name)] == ':' && bytes.EqualFold(line[:len(name)], []byte(name)) {
			return true
		}
	}
	return false
}

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
