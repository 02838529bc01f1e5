package httpkit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/gofiber/fiber/v2"
	"go.opentelemetry.io/otel/codes"

	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/job"
)

// sendProblem converts every error to a response. Details of errors that are not a *job.Error are only logged; the client gets a plain
// internal error.
func (s *Kit) sendProblem(r *Request, err error) {
	p := s.problemOf(r, err)
	r.Failed = &p
	s.metrics.countRefused(r, p.Code)
	_, wanted := errors.AsType[Wanted](err)
	switch {
	case wanted: // the client of a test bed asked for this error
	case r.refused == overloaded, r.refused == noSlot: // not logged here: there may be very many such requests; Backlog logs overload
	case p.Status >= 500 && p.Status != fiber.StatusNotImplemented: // 501 means an unknown method, which is the client's mistake
		s.logFailure(r, &p, err)
		r.Span.SetStatus(codes.Error, header.Clip(err.Error()))
	case r.refused == slowed || slices.Contains(authCodes, p.Code):
		s.Callers.Refused(r, &p)
	}
	switch {
	case p.Status == fiber.StatusUnauthorized && len(r.Response().Header.Peek(fiber.HeaderWWWAuthenticate)) == 0:
		r.Set(fiber.HeaderWWWAuthenticate, "Bearer")
	case problem.Waits(p.Code, p.Status):
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(max(1, problem.Seconds(p.RetryAfter))))
	}
	r.InLanguage(job.Languages[0])
	if missing, ok := errors.AsType[NoPage](err); ok && missing.send(r, &p) {
		return
	}
	_ = r.SendAs(p.Status, ProblemMedia, &p) // cannot fail for strings and numbers
}

// StatusOf returns the status of the response to an error.
func (r *Request) StatusOf(err error) int { return r.Kit.problemOf(r, err).Status }

func (s *Kit) problemOf(r *Request, err error) problem.Document {
	p := problem.Of(s.Links, s.refusalOf(r, err))
	own, _ := errors.AsType[problem.StatusError](err)
	p.Status, p.Instance = cmp.Or(own.Status, p.Status), "urn:uuid:"+r.ID
	return p
}

func (s *Kit) refusalOf(r *Request, err error) *job.Error {
	var (
		known   *job.Error
		routing *fiber.Error
		wanted  Wanted
	)
	switch {
	case errors.As(err, &wanted):
		return &job.Error{Code: wanted.Code}
	case errors.As(err, new(panicked)):
	case errors.As(err, &known) && known.Code.Spec().Status < 500:
		return known
	case errors.As(err, &routing) && routing.Code == fiber.StatusMethodNotAllowed:
		return job.Errorf(job.CodeMethodNotAllowed, "This resource does not support that method. It supports %s.",
			r.Response().Header.Peek(fiber.HeaderAllow))
	case errors.As(err, &routing) && routing.Code == fiber.StatusNotFound:
		return job.Errorf(job.CodeRequestNotFound, "There is no resource at this path.%s All paths are described at %s.",
			s.nearPath(r.Path()), s.DocsURL)
	// After the context has ended, the use case may return any error: take the reason from the context.
	case errors.Is(r.Ctx.Err(), context.DeadlineExceeded):
		return job.Errorf(job.CodeTimeout, "The request took longer than this server allows. "+
			"The request may have had an effect; repeat it with the same idempotency key.")
	case s.base.Err() != nil:
		return job.Errorf(job.CodeStorageUnavailable, "The server is shutting down.")
	case known != nil && known.Code != job.CodeInternal:
		return &job.Error{Code: known.Code, Detail: known.Detail, RetryAfter: known.RetryAfter}
	}
	return &job.Error{Code: job.CodeInternal}
}

// logFailure logs the cause that the response hides. For internal errors and panics it also logs the stack.
func (s *Kit) logFailure(r *Request, p *problem.Document, err error) {
	attrs := []slog.Attr{
		slog.String("request_id", r.ID), slog.String("client_id", idOrEmpty(r.Caller.ClientID)),
		slog.String("action", r.Route.Action), slog.String("error_code", string(p.Code)),
		slog.String("error_message", header.Clip(err.Error())),
	}
	attrs = r.appendSubjects(attrs)
	var crash panicked
	switch {
	case errors.As(err, &crash):
		attrs = append(attrs, slog.String("stack", string(crash.stack)))
	case p.Code == job.CodeInternal:
		attrs = append(attrs, slog.String("stack", string(debug.Stack())))
	}
	s.Logger.LogAttrs(r.Ctx, slog.LevelError, "request failed", attrs...)
}

// Wanted is the error of a request that fails because a client asked for this fault.
type Wanted struct{ Code job.Code }

func (e Wanted) Error() string { return string(e.Code) }

// NoPage is the error of an unknown path outside the API. Browsers get an HTML page instead of a problem document.
type NoPage struct{ Err error }

func (e NoPage) Error() string { return e.Err.Error() }
func (e NoPage) Unwrap() error { return e.Err }

func (e NoPage) send(r *Request, p *problem.Document) bool {
	r.Vary(fiber.HeaderAccept)
	if !header.Prefers(r.List(fiber.HeaderAccept), fiber.MIMETextHTML, ProblemMedia) {
		return false
	}
	_ = r.HTML(docs.Missing(p.Detail, "../")) // cannot fail for bytes
	r.Set(fiber.HeaderCacheControl, "no-store")
	r.Status(p.Status)
	return true
}
