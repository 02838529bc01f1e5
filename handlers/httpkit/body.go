package httpkit

import (
	"cmp"
	"errors"
	"io"
	"mime"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/job"
)

const (
	// SmallBody is the maximum size of a body that does not count against the memory limit. Such a body needs less memory than the buffers of
	// its connection.
	SmallBody = 4 << 10
	// A body's buffer has at most bodyGrowth times the size of the bytes that have arrived.
	bodyGrowth = 4
	// A client can use at most 1/bodyShare of the memory for bodies.
	bodyShare = 4
)

// Limits for reading the rest of an unwanted body. Without reading it, the connection would be reset, and the client could lose the
// response. If at most unwantedSmall bytes remain, the connection can be reused.
const (
	unwantedSmall = 64 << 10
	unwantedBytes = 8 << 20
	unwantedTime  = time.Second
)

// bodyMemory limits the memory for bodies that are being received or handled, in total and per client.
type bodyMemory struct {
	limit int

	mu    sync.Mutex
	taken int
	of    map[job.ID]int
}

func newBodyMemory(limit int) *bodyMemory { return &bodyMemory{limit: limit, of: map[job.ID]int{}} }

// BodyMemory returns the number of bytes that are reserved for bodies.
func (s *Kit) BodyMemory() int {
	s.bodies.mu.Lock()
	defer s.bodies.mu.Unlock()
	return s.bodies.taken
}

func (b *bodyMemory) take(client job.ID, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var err *job.Error
	switch {
	case b.taken+n > b.limit:
		err = job.Errorf(job.CodeQueueFull, "The server is receiving too many large request bodies. Try again after Retry-After.")
	case b.of[client]+n > b.limit/bodyShare:
		err = job.Errorf(job.CodeQueueFull, "This client is sending too many large request bodies. Send fewer at once.")
	default:
		b.taken += n
		b.of[client] += n
		return nil
	}
	err.RetryAfter = time.Second
	return err
}

func (b *bodyMemory) give(client job.ID, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= n
	if b.of[client] -= n; b.of[client] == 0 {
		delete(b.of, client)
	}
}

var smallBuffers = sync.Pool{New: func() any { return new([SmallBody]byte) }}

type incoming struct {
	bytes []byte
	whole bool
	wrong error            // why the body was not read completely
	small *[SmallBody]byte // array of the slice `bytes`; nil if the body is larger
	taken int              // bytes reserved in bodyMemory
	read  int              // bytes received before the body was dropped
}

// ReadBody reads the body. Repeated calls return the same body. Routes call ReadBody after authentication, so that unknown callers cannot
// use memory. After a slow body, ReadBody restarts the request's time limit and checks the caller's key again.
func (r *Request) ReadBody() ([]byte, error) {
	stream, in := r.Request().BodyStream(), &r.incoming
	if stream == nil { // the request has no body, or is not from a network connection
		r.passBody(r.Request().Body())
		return r.Request().Body(), nil
	}
	if !in.whole && in.wrong == nil {
		in.wrong = r.receiveBody(stream)
	}
	if in.wrong != nil {
		return nil, in.wrong
	}
	return in.bytes, nil
}

func (r *Request) passBody(body []byte) {
	if r.Kit.Interceptor != nil {
		r.Kit.Interceptor.Body(r, body)
	}
}

// Resume restarts the request's time limit after a wait. It fails if the caller's key or token is no longer valid.
func (r *Request) Resume() error {
	r.startTime()
	return r.Kit.Callers.Recheck(r)
}

func (r *Request) receiveBody(stream io.Reader) error {
	in := &r.incoming
	declared, limit := r.Request().Header.ContentLength(), r.Kit.MaxBodyBytes // negative: chunked
	if declared > limit {
		return readError(fasthttp.ErrBodyTooLarge)
	}
	began := time.Now()
	in.small = smallBuffers.Get().(*[SmallBody]byte)
	in.bytes = in.small[:0]
	for !in.whole {
		if len(in.bytes) == cap(in.bytes) {
			if err := r.growBody(limit); err != nil {
				return err
			}
		}
		n, err := stream.Read(in.bytes[len(in.bytes):cap(in.bytes)])
		in.bytes = in.bytes[:len(in.bytes)+n]
		switch {
		case len(in.bytes) > limit:
			return readError(fasthttp.ErrBodyTooLarge)
		case errors.Is(err, io.EOF) && len(in.bytes) >= declared:
			in.whole = true
		case err != nil:
			return readError(refusal(r.Context(), err))
		}
	}
	r.passBody(in.bytes)
	r.Waited += time.Since(began)
	if time.Since(r.Start) > time.Millisecond { // a body that arrived faster was sent together with the head, so there was no wait
		return r.Resume()
	}
	return nil
}

// growBody allows one byte beyond the limit, to detect a body that is too large.
func (r *Request) growBody(limit int) error {
	in := &r.incoming
	size := min(bodyGrowth*cap(in.bytes), limit+1)
	if declared := r.Request().Header.ContentLength(); declared >= 0 {
		size = min(size, declared)
	}
	if err := r.Kit.bodies.take(r.Caller.ClientID, size-in.taken); err != nil {
		return err
	}
	in.taken = size
	larger := make([]byte, len(in.bytes), size)
	copy(larger, in.bytes)
	in.bytes = larger
	r.releaseSmall()
	return nil
}

// DropBody releases the memory of the body.
func (r *Request) DropBody() {
	in := &r.incoming
	r.releaseSmall()
	if in.taken > 0 {
		r.Kit.bodies.give(r.Caller.ClientID, in.taken)
		in.taken = 0
	}
	in.read += len(in.bytes)
	in.bytes = nil
}

// endBody decides what happens to the unread rest of the body. A small rest is read after the response, so that the connection can be
// reused. Otherwise the connection closes.
func (r *Request) endBody() {
	r.DropBody()
	r.incoming.end(r.Context())
}

func (in *incoming) end(c *fasthttp.RequestCtx) {
	if in.whole || c.Request.BodyStream() == nil {
		return
	}
	declared := c.Request.Header.ContentLength()
	if declared >= 0 && declared-in.read <= unwantedSmall {
		_ = c.Conn().SetReadDeadline(time.Now().Add(unwantedTime))
		return
	}
	c.Response.SetConnectionClose()
	if served, ok := c.Conn().(*conn.Conn); ok {
		served.DrainOnClose(unwantedBytes, unwantedTime)
	}
}

func (r *Request) releaseSmall() {
	if r.incoming.small != nil {
		smallBuffers.Put(r.incoming.small)
		r.incoming.small = nil
	}
}

// JSONBody reads the body and waits for a storage slot. The body must not be compressed. The media type of the body must be
// application/json or one of `others`. The result is valid until the handler returns. If `optional` is true, a missing body is allowed and
// returned as nil.
func (r *Request) JSONBody(optional bool, others ...string) ([]byte, error) {
	body, err := r.ReadBody()
	if err != nil {
		return nil, err
	}
	if len(body) == 0 && optional {
		return nil, r.Enter()
	}
	if len(body) == 0 {
		return nil, job.Errorf(job.CodeMalformed, "The request needs a body.")
	}
	if e := r.Get(fiber.HeaderContentEncoding); e != "" && !strings.EqualFold(e, "identity") {
		r.Set(fiber.HeaderAcceptEncoding, "identity") // RFC 9110, section 12.5.3
		return nil, job.Errorf(job.CodeUnsupportedMediaType, "Send the body without a Content-Encoding.")
	}
	media := append([]string{fiber.MIMEApplicationJSON}, others...)
	if sent := r.Get(fiber.HeaderContentType); !slices.ContainsFunc(media, func(m string) bool { return isMedia(sent, m) }) {
		return nil, job.Errorf(job.CodeUnsupportedMediaType, "Send the body as %s.", strings.Join(media, " or "))
	}
	return body, r.Enter()
}

// Decoded decodes the body with a function of package decode. See JSONBody.
func Decoded[T any](r *Request, optional bool, decode func(body []byte) (T, error), others ...string) (v T, err error) {
	body, err := r.JSONBody(optional, others...)
	if err != nil {
		return v, err
	}
	return decode(body)
}

// Bodyless wraps the handler of requests that must not have a body.
func Bodyless(handle Handler) Handler {
	return func(r *Request) error {
		body, err := r.JSONBody(true)
		if err == nil {
			err = decode.Empty(body)
		}
		if err != nil {
			return err
		}
		return handle(r)
	}
}

// KeyedBody returns the body and the Idempotency-Key header, "" if there is none.
func (r *Request) KeyedBody() (body []byte, key string, err error) {
	if body, err = r.JSONBody(false); err != nil {
		return nil, "", err
	}
	key, err = r.IdempotencyKey()
	return body, key, err
}

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

// unreadable responds to a request that could not be read: too large, too slow or malformed. fasthttp closes the connection afterwards.
func (s *Kit) unreadable(fctx *fasthttp.RequestCtx, err error) {
	if errors.Is(err, net.ErrClosed) {
		return // the connection was closed to make room, so no response can be sent
	}
	nameMethod(fctx)
	c := s.app.AcquireCtx(fctx)
	defer s.app.ReleaseCtx(c)
	err = readError(refusal(fctx, err))
	s.serve(c, unreadableRoute, func(*Request) error { return err })
	if sent, ok := fctx.Conn().(*conn.Conn); ok {
		sent.DrainOnClose(unwantedBytes, unwantedTime)
	}
}

// refusal returns why reading stopped; fasthttp hides the reason.
func refusal(fctx *fasthttp.RequestCtx, err error) error {
	if c, ok := fctx.Conn().(*conn.Conn); ok {
		return cmp.Or(c.Refused(), err)
	}
	return err
}

// readError maps fasthttp's errors to codes. The statuses 408 and 431 have no code of their own, so they use the code of malformed
// requests.
func readError(err error) error {
	var timeout net.Error
	var misframed conn.FramingError
	switch {
	case errors.As(err, &misframed):
		return job.Errorf(job.CodeMalformed, "%s", misframed)
	case errors.Is(err, fasthttp.ErrBodyTooLarge), errors.Is(err, conn.ErrTooMuch):
		return job.Errorf(job.CodePayloadTooLarge, "The request body is larger than this server allows.")
	case errors.As(err, new(*fasthttp.ErrSmallBuffer)):
		return problem.WithStatus(fiber.StatusRequestHeaderFieldsTooLarge, "The request's header is larger than this server allows.")
	case errors.As(err, &timeout) && timeout.Timeout():
		return problem.WithStatus(fiber.StatusRequestTimeout, "The request did not arrive in time.")
	}
	return job.Errorf(job.CodeMalformed, "The request is not valid HTTP.")
}

// If the Content-Length is too large, expect refuses the request instead of sending 100 Continue.
func (s *Kit) expect(fctx *fasthttp.RequestCtx) int {
	if fctx.Request.Header.ContentLength() <= s.MaxBodyBytes {
		return fasthttp.StatusContinue
	}
	s.unreadable(fctx, fasthttp.ErrBodyTooLarge)
	return fasthttp.StatusRequestEntityTooLarge
}
