package httpkit

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/url"
	"runtime/debug"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

func (s *Kit) serve(c *fiber.Ctx, rt *Route, handle Handler) {
	r := &Request{fiberCtx: c, Kit: s, Route: rt, ID: requestID(c.Get("X-Request-Id")).String(), Start: time.Now(), Span: noop.Span{}}
	r.Base = telemetry.WithRequest(s.base, r.ID)
	r.Set("X-Request-Id", r.ID)
	r.Set("X-Content-Type-Options", "nosniff")
	r.Set("Cache-Control", "no-store")
	s.Origins.Share(c, rt == preflight)
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	if err := s.run(r, handle); err != nil {
		s.sendProblem(r, err)
	}
	r.endBody()
	took := time.Since(r.Start)
	r.endSpan()
	s.metrics.observe(r, took-r.Waited)
	s.logAccess(r, took)
	if s.Interceptor != nil {
		s.Interceptor.After(r)
	}
}

// requestID returns `own`, the X-Request-ID of the client, if it is a UUID. Otherwise it returns a new id. Problem documents contain the
// id as `instance`.
func requestID(own string) job.ID {
	if id, err := job.ParseID(own); err == nil {
		return id
	}
	return job.ID(uuid.Must(uuid.NewV7()))
}

type panicked struct {
	value any
	stack []byte
}

func (p panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

func (s *Kit) run(r *Request, handle Handler) (err error) {
	r.startTime()
	defer func() { r.stop() }()
	defer r.Leave()
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
	if s.Interceptor != nil {
		if done, err := s.Interceptor.Before(r); done || err != nil {
			return err
		}
	}
	stream := slices.Contains(r.Route.Produces, EventStream) && r.WantsStream() // streams have their own limit
	if r.Route.Method == fiber.MethodGet && !stream {                           // other requests wait for a slot after the body was read
		if err := r.Enter(); err != nil {
			return err
		}
	}
	r.requireKey()
	if r.Route.Method == fiber.MethodGet {
		return s.read(r, handle)
	}
	if err := s.checkConditions(r); err != nil {
		return err
	}
	return handle(r)
}

// requireKey makes the store check the client's key again when it writes the request's changes. Use cases that change keys check this
// themselves, under the client's lock. Requests that move a test bed's clock are exempt, because the move may let the key expire.
func (r *Request) requireKey() {
	if r.Route.Method != Get && r.Route.ofClient() && r.Route.Action != "move_clock" && !r.Caller.Expired {
		r.Base, r.Ctx = job.WithKey(r.Base, r.Caller.KeyID), job.WithKey(r.Ctx, r.Caller.KeyID)
	}
}

// checkHost refuses requests for other hosts than the server's. It checks the Host header and the host of an absolute-form target, which
// takes precedence (RFC 9112, section 3.2.2).
func (s *Kit) checkHost(r *Request) error {
	if s.Hosts == nil || r.Route == unreadableRoute {
		return nil
	}
	for _, host := range []string{string(r.Request().Header.Host()), string(r.Request().URI().Host())} {
		if !s.Hosts(host) {
			return problem.WithStatus(fiber.StatusMisdirectedRequest, "This server serves only its own machine, but the request names "+
				"the host "+header.Clip(host)+". Use localhost, or set FORGERUN_PUBLIC_URL to an address with that host.")
		}
	}
	return nil
}

func (r *Request) startTime() {
	if r.stop != nil {
		r.stop()
	}
	r.Ctx, r.stop = context.WithTimeout(r.Base, r.Kit.RequestTimeout)
}

func (s *Kit) admit(r *Request) error {
	if r.Route == unreadableRoute {
		return nil
	}
	if err := s.Callers.Admit(r); err != nil || r.Route.Access == Public {
		return err
	}
	if err := r.CheckAccept(r.Route.Produces...); err != nil {
		return err
	}
	return r.checkQuery()
}

func (r *Request) checkQuery() error {
	if len(r.Request().URI().QueryString()) == 0 {
		return nil
	}
	if err := query.Check(r.Route.Query, textual(r.Request().URI().QueryArgs().All())); err != nil {
		return err
	}
	if _, err := url.QueryUnescape(string(r.Request().URI().QueryString())); err != nil {
		return job.Malformed("The query has an invalid % encoding.")
	}
	return nil
}

func textual(pairs iter.Seq2[[]byte, []byte]) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for name, value := range pairs {
			if !yield(string(name), string(value)) {
				return
			}
		}
	}
}

func (s *Kit) logAccess(r *Request, took time.Duration) {
	// Backlog and Callers.Refused log or count these requests instead.
	if r.refused == overloaded || r.refused == unlogged || !s.Logger.Enabled(r.Ctx, slog.LevelInfo) {
		return
	}
	attrs := make([]slog.Attr, 0, 15)
	attrs = append(attrs,
		slog.String("request_id", r.ID), slog.String("client_id", idOrEmpty(r.Caller.ClientID)),
		slog.String("action", r.Route.Action), slog.String("method", r.Method()),
		slog.String("route", r.Route.Path), slog.Int("status", r.Response().StatusCode()),
		slog.Duration("duration", took))
	if !r.Response().IsBodyStream() { // Body would read the stream to its end
		attrs = append(attrs, slog.Int("bytes", len(r.Response().Body())))
	}
	attrs = r.appendSubjects(attrs)
	if r.Caller.Admin {
		attrs = append(attrs, slog.Bool("admin", true), slog.String("operator", r.Caller.Operator))
	}
	if r.Failed != nil {
		attrs = append(attrs, slog.String("error_code", string(r.Failed.Code)), slog.String("error_message", header.Clip(r.Failed.Detail)))
	}
	telemetry.LogInfo(r.Ctx, s.Logger, "request", attrs)
}

func idOrEmpty(id job.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}
