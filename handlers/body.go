package handlers

import (
	"errors"
	"io"
	"mime"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/job"
)

// body gives the request's body as sent, after checking that it is uncompressed
// JSON. It is valid until the handler returns. Where the body may be missing,
// it is nil then.
func (r *call) body(optional bool) ([]byte, error) {
	return r.bodyOf(optional, fiber.MIMEApplicationJSON)
}

// bodyOf is body for JSON of one of the given media types.
func (r *call) bodyOf(optional bool, media ...string) ([]byte, error) {
	body := r.Request().Body()
	if len(body) == 0 && optional {
		return nil, nil
	}
	if len(body) == 0 {
		return nil, job.Errorf(job.CodeMalformed, "The request needs a body.")
	}
	if e := r.Get(fiber.HeaderContentEncoding); e != "" && !strings.EqualFold(e, "identity") {
		return nil, job.Errorf(job.CodeUnsupportedMediaType, "Send the body without a Content-Encoding.")
	}
	if sent := r.Get(fiber.HeaderContentType); !slices.ContainsFunc(media, func(m string) bool { return isMedia(sent, m) }) {
		return nil, job.Errorf(job.CodeUnsupportedMediaType, "Send the body as %s.", strings.Join(media, " or "))
	}
	return body, nil
}

// isMedia takes the given media type, with charset=utf-8 or without parameters.
func isMedia(contentType, want string) bool {
	if contentType == want {
		return true
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || media != want {
		return false
	}
	charset, ok := params["charset"]
	return len(params) == 0 || len(params) == 1 && ok && strings.EqualFold(charset, "utf-8")
}

// unreadable answers a request that never became one: too large, too slow or
// broken. The connection closes after it; fasthttp sees to that.
func (s *Server) unreadable(fctx *fasthttp.RequestCtx, err error) {
	nameMethod(fctx)
	c := s.app.AcquireCtx(fctx)
	defer s.app.ReleaseCtx(c)
	err = readError(err)
	s.serve(c, nowhere, func(*call) error { return err })
	if conn, ok := fctx.Conn().(*conn); ok {
		conn.unread.Store(true)
	}
}

// readError turns fasthttp's error into one with a code. The contract has no
// codes for 408 and 431: they are malformed requests with their own status.
func readError(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		return job.Errorf(job.CodePayloadTooLarge, "The request body is larger than this server allows.")
	case errors.As(err, new(*fasthttp.ErrSmallBuffer)):
		return statusError{fiber.StatusRequestHeaderFieldsTooLarge, "The request's header is larger than this server allows."}
	case errors.As(err, &timeout) && timeout.Timeout():
		return statusError{fiber.StatusRequestTimeout, "The request did not arrive in time."}
	}
	return job.Errorf(job.CodeMalformed, "The request is not valid HTTP.")
}

// expect refuses a body that is announced as too large, instead of inviting it
// with 100 Continue.
func (s *Server) expect(fctx *fasthttp.RequestCtx) int {
	if fctx.Request.Header.ContentLength() <= s.cfg.MaxBodyBytes {
		return fasthttp.StatusContinue
	}
	s.unreadable(fctx, fasthttp.ErrBodyTooLarge)
	return fasthttp.StatusRequestEntityTooLarge
}

// The bounds of what is read after an answer that came before its request was
// read. Closing with unread bytes would reset the connection and could destroy
// the answer on its way.
const (
	drainBytes = 8 << 20
	drainTime  = 2 * time.Second
)

// silentGrace is how long, at shutdown, a connection on which nothing has come
// yet may still bring the request for which it was opened.
const silentGrace = 250 * time.Millisecond

// listener makes conns and knows those that have not said anything yet: HTTP
// clients open connections in advance, and fasthttp's shutdown would wait for
// them. Its Close may come twice.
type listener struct {
	net.Listener
	once sync.Once
	err  error

	mu     sync.Mutex
	silent map[*conn]struct{}
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent[c] = struct{}{}
	return c, nil
}

// Close closes the listener once, and after a grace the silent connections.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.err = l.Listener.Close()
		time.AfterFunc(silentGrace, l.closeSilent)
	})
	return l.err
}

func (l *listener) closeSilent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.silent {
		_ = c.Conn.Close()
	}
}

// conn drains what the client still sends, within bounds, before it closes a
// connection whose last request was not read to its end.
type conn struct {
	net.Conn
	listener *listener
	heard    atomic.Bool // something was read, or the connection is over
	unread   atomic.Bool
	seat     atomic.Pointer[func()] // gives a seat back that a stream on this connection was to have
	ahead    []byte                 // what whenGone has read; the next Read gives it
}

// Read reads what the client sends.
func (c *conn) Read(b []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	n, err := c.Conn.Read(b)
	c.noLongerSilent()
	return n, err
}

// whenGone calls gone if the client hangs up before stop is called. Meanwhile
// nobody else may read: a request is being handled that was read to its end. A
// client that sends the next one already is not watched any further.
func (c *conn) whenGone(gone func()) (stop func()) {
	if len(c.ahead) > 0 {
		return func() {}
	}
	_ = c.SetReadDeadline(time.Time{}) // not that of the request; the next one sets its own
	done := make(chan struct{})
	go func() {
		defer close(done)
		var b [1]byte
		n, err := c.Conn.Read(b[:])
		c.ahead = b[:n]
		if n == 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
			gone()
		}
	}()
	return func() {
		_ = c.SetReadDeadline(time.Unix(1, 0)) // long past: it wakes the read
		<-done
		_ = c.SetReadDeadline(time.Time{})
	}
}

func (c *conn) noLongerSilent() {
	if c.heard.CompareAndSwap(false, true) {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		delete(c.listener.silent, c)
	}
}

// Close ends the connection; after an unread request only once the client has
// stopped sending, or the bounds are reached.
func (c *conn) Close() error {
	c.noLongerSilent()
	if release := c.seat.Swap(nil); release != nil {
		(*release)()
	}
	if c.unread.CompareAndSwap(true, false) {
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		_ = c.SetReadDeadline(time.Now().Add(drainTime))
		_, _ = io.CopyN(io.Discard, c.Conn, drainBytes)
	}
	return c.Conn.Close()
}

// discard makes Close throw away what the client has not taken, instead of
// leaving it to the kernel to offer for minutes.
func (c *conn) discard() {
	c.unread.Store(false)
	if tcp, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
	}
}
