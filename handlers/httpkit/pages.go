package httpkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/handlers/conn"
)

// Pages are HTML pages on the listener of the API. Fiber's net/http adaptor is not used, because it reads bodies of any size before the
// handler authenticates the caller. Requests from the adaptor also refer to memory that later requests overwrite.
type Pages struct {
	Handler http.Handler // for all paths outside the API; nil: no pages
	Prefix  string       // path prefix of the API
	// Known reports whether the request comes from a known sender, such as an operator; nil: always. A known sender's connection is not closed
	// to make room for others.
	Known func(*http.Request) bool
}

func (p *Pages) has(path []byte) bool {
	return p.Handler != nil && !strings.HasPrefix(string(path)+"/", p.Prefix)
}

func (p *Pages) keeps(c *fasthttp.RequestCtx) bool { return p.Known == nil || p.Known(headOf(c)) }

// Head returns the request without its body as a net/http request. The result is also valid after the end of the request.
func (r *Request) Head() *http.Request {
	head := headOf(r.Context())
	if head.Pattern = strings.Join(r.Route.Segments(), "/"); strings.Contains(head.Pattern, "{id}") {
		head.SetPathValue("id", r.Params("id"))
	}
	return head.WithContext(r.Ctx)
}

func headOf(c *fasthttp.RequestCtx) *http.Request {
	head := &http.Request{
		Method: string(c.Method()), RequestURI: string(c.RequestURI()), Host: string(c.Host()), RemoteAddr: c.RemoteAddr().String(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody,
	}
	for name, value := range c.Request.Header.All() {
		head.Header.Add(string(name), string(value))
	}
	var err error
	if head.URL, err = url.ParseRequestURI(head.RequestURI); err != nil {
		head.URL = &url.URL{Path: string(c.Path())}
	}
	return head
}

// servePage lets the pages handle the request. Their responses are buffered completely.
func (s *Kit) servePage(c *fasthttp.RequestCtx) {
	ctx, cancel := context.WithCancel(s.base)
	defer cancel()
	head, body, w := headOf(c).WithContext(ctx), incoming{}, &pageWriter{c: c, header: http.Header{}}
	defer body.end(c)
	defer func() {
		if v := recover(); v != nil {
			s.Logger.ErrorContext(ctx, "rendering a page failed", slog.String("path", head.URL.Path), slog.String("error_message", fmt.Sprint(v)),
				slog.String("stack", string(debug.Stack())))
			c.Response.Reset()
			c.SetStatusCode(http.StatusInternalServerError)
		}
	}()
	served, _ := c.Conn().(*conn.Conn)
	switch stream := c.Request.BodyStream(); {
	case stream != nil:
		head.ContentLength = int64(max(-1, c.Request.Header.ContentLength()))
		head.Body = io.NopCloser(http.MaxBytesReader(nil, io.NopCloser(&countedBody{stream, &body}), int64(s.MaxBodyBytes)))
	case served != nil:
		defer served.WhenGone(cancel)()
	}
	s.Pages.Handler.ServeHTTP(w, head)
	w.WriteHeader(http.StatusOK)
}

type countedBody struct {
	io.Reader
	body *incoming
}

func (n *countedBody) Read(b []byte) (read int, err error) {
	read, err = n.Reader.Read(b)
	n.body.read += read
	n.body.whole = n.body.whole || errors.Is(err, io.EOF)
	return read, err
}

type pageWriter struct {
	c      *fasthttp.RequestCtx
	header http.Header
	begun  bool
}

func (w *pageWriter) Header() http.Header { return w.header }

func (w *pageWriter) WriteHeader(status int) {
	if w.begun {
		return
	}
	w.begun = true
	w.c.SetStatusCode(status)
	w.c.Response.Header.SetNoDefaultContentType(true)
	for name, values := range w.header {
		for _, value := range values {
			w.c.Response.Header.Add(name, value)
		}
	}
}

func (w *pageWriter) Write(b []byte) (int, error) {
	if !w.begun && w.header.Get("Content-Type") == "" {
		w.header.Set("Content-Type", http.DetectContentType(b))
	}
	w.WriteHeader(http.StatusOK)
	return w.c.Write(b)
}
