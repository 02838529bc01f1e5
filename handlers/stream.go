package handlers

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime/debug"
	"time"

	"github.com/gofiber/fiber/v2"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/job"
)

// stream is one open event stream. It is run by one goroutine; a second one
// notices when the client goes. Between events it holds little memory: the
// request it came with, and its buffers, are gone.
type stream struct {
	server   *Server
	source   source
	job      *jobSource     // the source of a job's stream, nil for a client's
	progress *shownProgress // nil for a client's

	conn    net.Conn
	out     sseWriter
	head    []byte // what is written first
	first   part   // what is written next
	release func() // gives the seat back

	client        job.ID
	authorization [][]byte
	nextBeat      time.Time
	timer         *time.Timer
	lastRead      time.Time

	requestID job.ID
	span      trace.SpanContext // of the request, for the log
	action    string
	start     time.Time
	sent      int // events
}

// pageSize is how many events a stream reads at once, at most: storage gives
// fewer where they are large.
const pageSize = 100

// stream answers with an event stream. What can go wrong at its start is
// answered as anywhere else: the stream begins only once its first events have
// been read.
func (s *Server) stream(r *call, st *stream) error {
	release, err := s.seats.take(r.caller.ClientID)
	if err != nil {
		return err
	}
	kept := false
	defer func() {
		if !kept {
			release()
		}
	}()
	st.server, st.client, st.release = s, r.caller.ClientID, release
	st.requestID, st.span, st.action, st.start = r.id, r.span.SpanContext(), r.route.action, r.start
	if err := st.begin(r); err != nil {
		return err
	}
	if st.first.ended && len(st.first.events) == 0 {
		r.Status(fiber.StatusNoContent) // tells the reader not to come back
		return nil
	}
	r.Set(fiber.HeaderContentType, mimeEventStream)
	r.Set(fiber.HeaderCacheControl, "no-store, no-transform")
	r.Set("X-Accel-Buffering", "no") // for nginx in front
	c, ok := r.Context().Conn().(*conn)
	if !ok || r.Method() == fiber.MethodHead {
		return nil
	}
	kept = true
	st.takeOver(r, c)
	return nil
}

// begin goes to where the stream starts and reads what it writes first.
func (st *stream) begin(r *call) (err error) {
	lastID, cursor := r.list("Last-Event-ID"), r.Query("cursor")
	if lastID == "" && cursor != "" {
		err = st.source.seek(r.ctx, cursor)
	} else {
		err = st.source.resume(r.ctx, lastID)
	}
	if err != nil {
		return err
	}
	var place string
	if st.job == nil {
		if place, err = st.source.cursor(r.ctx); err != nil {
			return err
		}
	}
	st.first, err = st.source.read(r.ctx, pageSize)
	st.head = startFrame(place)
	return err
}

// takeOver takes the connection out of fasthttp's hands: it sends no answer of
// its own, and forgets the connection and the request.
func (st *stream) takeOver(r *call, c *conn) {
	r.Response().Header.SetConnectionClose()
	st.head = append(append([]byte(nil), r.Response().Header.Header()...), st.head...)
	for _, value := range r.Request().Header.PeekAll(fiber.HeaderAuthorization) {
		st.authorization = append(st.authorization, append([]byte(nil), value...))
	}
	st.conn = c
	// Until the stream runs, the connection may fail in fasthttp's hands.
	c.seat.Store(&st.release)
	r.Context().HijackSetNoResponse(true)
	r.Context().Hijack(func(net.Conn) {
		c.seat.Store(nil)
		go st.run() // returning lets fasthttp's own buffers go
	})
}

// run is the stream's life.
func (st *stream) run() {
	defer st.release()
	s := st.server
	open := s.streams.open.WithLabelValues(st.kind())
	open.Inc()
	defer open.Dec()

	ctx, end := context.WithCancelCause(trace.ContextWithSpanContext(s.seats.ctx, st.span))
	context.AfterFunc(ctx, func() { _ = st.conn.Close() }) // also wakes a write that is stuck
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		st.listen()
		end(endClientGone)
	}()
	err := st.tellAll(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx) // an error that came of it says less
	}
	if c, ok := st.conn.(*conn); ok && errors.Is(err, endStalled) {
		c.discard()
	}
	end(err)
	<-gone
	st.note(ctx, err)
}

// tellAll is follow, except that a panic is the stream's end only.
func (st *stream) tellAll(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked{v, debug.Stack()}
		}
	}()
	st.nextBeat = time.Now().Add(st.server.cfg.Heartbeat)
	st.timer = time.NewTimer(st.server.cfg.Heartbeat)
	defer st.timer.Stop()
	st.out = sseWriter{conn: st.conn, stall: st.server.cfg.StallTimeout}
	defer st.out.release()
	if err := st.out.write(st.head); err != nil {
		return err
	}
	st.head = nil
	return st.follow(ctx)
}

// talkative is how much a client may send after its request, in bytes. Nobody
// has a reason to; what comes is not looked at.
const talkative = 64 << 10

// listen returns when the client has gone. Blocking in a read costs a small
// goroutine for each stream, and sees it at once.
func (st *stream) listen() {
	var b [128]byte
	for n := 0; n < talkative; {
		k, err := st.conn.Read(b[:])
		if err != nil {
			return
		}
		n += k
		if c, ok := st.conn.(*conn); ok {
			c.unread.Store(true) // closing must not reset the connection
		}
	}
}

func (st *stream) kind() string {
	if st.job != nil {
		return streamOfJob
	}
	return streamOfClient
}

// note counts and logs the stream's end.
func (st *stream) note(ctx context.Context, err error) {
	reason := endInternalError
	errors.As(err, &reason)
	s := st.server
	attrs := append(st.who(), slog.String("reason", string(reason)),
		slog.Duration("duration", time.Since(st.start)), slog.Int("events", st.sent))
	level := slog.LevelInfo
	switch reason {
	case endUnauthorized:
		code := job.CodeOf(err)
		s.metrics.authFailures.WithLabelValues(string(code)).Inc()
		attrs = append(attrs, slog.String("error_code", string(code)), slog.String("error_message", clip(err.Error())))
	case endInternalError:
		level = slog.LevelError
		attrs = append(attrs, slog.String("error_code", string(job.CodeInternal)), slog.String("error_message", clip(err.Error())))
		if crash := (panicked{}); errors.As(err, &crash) {
			attrs = append(attrs, slog.String("stack", string(crash.stack)))
		}
	}
	s.streams.closed.WithLabelValues(string(reason)).Inc()
	s.log.LogAttrs(ctx, level, "stream ended", attrs...)
}

// who says in the log whose stream it is, and of what.
func (st *stream) who() []slog.Attr {
	attrs := []slog.Attr{
		slog.String("request_id", st.requestID.String()), slog.String("client_id", st.client.String()), slog.String("action", st.action),
	}
	if st.job != nil {
		attrs = append(attrs, slog.String("job_id", st.job.job.String()))
	}
	return attrs
}
