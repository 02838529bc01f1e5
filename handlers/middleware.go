package handlers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// serve handles a request: it gives it an id and a time limit, checks who asks,
// calls the route's handler, and counts, logs and traces the answer.
func (s *Server) serve(c *fiber.Ctx, rt *route, handle func(*call) error) {
	r := &call{Ctx: c, server: s, route: rt, idText: requestID(c.Get("X-Request-Id")).String(), start: time.Now(), span: noop.Span{}}
	r.base = telemetry.WithRequest(s.base, r.idText)
	r.Set("X-Request-Id", r.idText)
	r.Set("X-Content-Type-Options", "nosniff")
	r.Set("Cache-Control", "no-store")
	s.share(r)
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	if err := s.run(r, handle); err != nil {
		s.sendProblem(r, err)
	}
	r.endBody()
	took := time.Since(r.start)
	r.endSpan()
	s.metrics.observe(r, took-r.waited)
	s.logAccess(r, took)
	s.record(r)
	s.finishFault(r)
}

// requestID takes the client's own id if it is a UUID, and makes one
// otherwise: it is also the instance of problem documents.
func requestID(own string) job.ID {
	if id, err := job.ParseID(own); err == nil {
		return id
	}
	return job.ID(uuid.Must(uuid.NewV7()))
}

// panicked is the error of a handler that panicked.
type panicked struct {
	value any
	stack []byte
}

func (p panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

func (s *Server) run(r *call, handle func(*call) error) (err error) {
	s.startTime(r)
	defer func() { r.stop() }()
	defer r.leave()
	defer func() {
		if v := recover(); v != nil {
			err = panicked{v, debug.Stack()}
		}
	}()
	if err := s.checkHost(r); err != nil {
		return err
	}
	if err := s.admit(r); err != nil {
		return err
	}
	r.noteSubject()
	if done, err := s.disturb(r); done || err != nil {
		return err
	}
	stream := slices.Contains(r.route.produces, mimeEventStream) && r.wantsStream() // those have a limit of their own
	if r.route.method == fiber.MethodGet && !stream {                               // others once their body is there
		if err := r.enter(); err != nil {
			return err
		}
	}
	r.requireKey()
	if r.route.method == fiber.MethodGet {
		return s.read(r, handle)
	}
	if err := s.checkConditions(r); err != nil {
		return err
	}
	return handle(r)
}

// requireKey has storage refuse what a client's request changes when its key has ended by then. Changes of keys are checked by their
// use cases, under the lock of the client. A request that moves the clock of a test bed may move it beyond the end of its key.
func (r *call) requireKey() {
	if r.route.method != get && r.route.access == client && r.route.action != "move_clock" {
		r.base, r.ctx = job.WithKey(r.base, r.caller.KeyID), job.WithKey(r.ctx, r.caller.KeyID)
	}
}

// checkHost refuses requests for other hosts than the server's. Of a target in
// absolute form its own host counts (RFC 9112, section 3.2.2).
func (s *Server) checkHost(r *call) error {
	if s.cfg.Hosts == nil || r.route == broken {
		return nil
	}
	for _, host := range []string{string(r.Request().Header.Host()), string(r.Request().URI().Host())} {
		if !s.cfg.Hosts(host) {
			return problem.WithStatus(fiber.StatusMisdirectedRequest, "This server is for the machine that it runs on, and the request is for "+
				"the host "+header.Clip(host)+". Call it as localhost, or set FORGERUN_PUBLIC_URL to an address with that host.")
		}
	}
	return nil
}

// startTime gives the request its whole time, a second time after it has waited
// at its own wish.
func (s *Server) startTime(r *call) {
	if r.stop != nil {
		r.stop()
	}
	r.ctx, r.stop = context.WithTimeout(r.base, s.cfg.RequestTimeout)
}

// admit is what a request must pass before its route sees it.
func (s *Server) admit(r *call) error {
	if r.route.access == public {
		return nil
	}
	err := s.authenticate(r)
	s.startSpan(r)
	if err != nil {
		return err
	}
	if err := s.limitRegistrations(r); err != nil {
		return err
	}
	if err := s.limit(r); err != nil {
		return err
	}
	if err := r.checkAccept(r.route.produces...); err != nil {
		return err
	}
	return r.checkQuery()
}

func (s *Server) logAccess(r *call, took time.Duration) {
	if r.refused || r.unlogged || !s.log.Enabled(r.ctx, slog.LevelInfo) { // Admission and logRefusal log those together
		return
	}
	attrs := make([]slog.Attr, 0, 15)
	attrs = append(attrs,
		slog.String("request_id", r.idText), slog.String("client_id", idOrEmpty(r.caller.ClientID)),
		slog.String("action", r.route.action), slog.String("method", r.Method()),
		slog.String("route", r.route.path), slog.Int("status", r.Response().StatusCode()),
		slog.Duration("duration", took), slog.Int("bytes", len(r.Response().Body())))
	attrs = r.appendSubjects(attrs)
	if r.caller.Admin {
		attrs = append(attrs, slog.Bool("admin", true), slog.String("operator", r.caller.Operator))
	}
	if r.failed != nil {
		attrs = append(attrs, slog.String("error_code", string(r.failed.Code)), slog.String("error_message", header.Clip(r.failed.Detail)))
	}
	telemetry.LogInfo(r.ctx, s.log, "request", attrs)
}

func idOrEmpty(id job.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// unreadable answers a request that never became one: too large, too slow or
// broken. The connection closes after it; fasthttp sees to that.
func (s *Server) unreadable(fctx *fasthttp.RequestCtx, err error) {
	if errors.Is(err, net.ErrClosed) {
		return // the listener made room, and nobody would read the answer
	}
	nameMethod(fctx)
	c := s.app.AcquireCtx(fctx)
	defer s.app.ReleaseCtx(c)
	err = readError(refusal(fctx, err))
	s.serve(c, broken, func(*call) error { return err })
	if sent, ok := fctx.Conn().(*conn.Conn); ok {
		sent.DrainOnClose(unwantedBytes, unwantedTime)
	}
}

// refusal is why a request was not read any further, which fasthttp hides.
func refusal(fctx *fasthttp.RequestCtx, err error) error {
	if c, ok := fctx.Conn().(*conn.Conn); ok {
		return cmp.Or(c.Refused(), err)
	}
	return err
}

// readError turns fasthttp's error into one with a code. The contract has no
// codes for 408 and 431: they are malformed requests with their own status.
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

// expect refuses a body that is declared as too large, instead of sending 100
// Continue.
func (s *Server) expect(fctx *fasthttp.RequestCtx) int {
	if fctx.Request.Header.ContentLength() <= s.cfg.MaxBodyBytes {
		return fasthttp.StatusContinue
	}
	s.unreadable(fctx, fasthttp.ErrBodyTooLarge)
	return fasthttp.StatusRequestEntityTooLarge
}
