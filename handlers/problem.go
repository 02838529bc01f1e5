package handlers

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"go.opentelemetry.io/otel/codes"

	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/job"
)

// problem is the answer to a request that failed: RFC 9457 with the members
// code, violations, expired_at, job_id and batch_id (section 14).
type problem struct {
	Type       string          `json:"type"`
	Title      string          `json:"title"`
	Status     int             `json:"status"`
	Detail     string          `json:"detail"`
	Instance   string          `json:"instance"`
	Code       job.Code        `json:"code"`
	Violations []job.Violation `json:"violations,omitempty"`
	ExpiredAt  *job.Time       `json:"expired_at,omitempty"` // of 410: since when it is gone
	JobID      *job.ID         `json:"job_id,omitempty"`     // of a conflict of idempotency keys: what the first request made
	BatchID    *job.ID         `json:"batch_id,omitempty"`

	retryAfter time.Duration
}

// statusError is a malformed request that HTTP has a status of its own for.
type statusError struct {
	status int
	detail string
}

func (e statusError) Error() string { return e.detail }

// sendProblem is the only way from an error to an answer. What is not a
// *job.Error shows nothing of itself: it is logged, and the client gets a
// plain internal error.
func (s *Server) sendProblem(r *call, err error) {
	p := s.problemOf(r, err)
	p.Instance = "urn:uuid:" + r.idText
	r.failed = &p
	s.metrics.countRefused(r, p.Code)
	_, wanted := errors.AsType[injected](err)
	switch {
	case wanted: // a client of a test bed asked for it
	case r.refused, r.noPlace: // no failures: the log would be full of them; Admission tells of the former
	case p.Status >= 500 && p.Status != fiber.StatusNotImplemented: // anybody may name a method that there is not
		s.logFailure(r, &p, err)
		r.span.SetStatus(codes.Error, header.Clip(err.Error()))
	case r.slowed || slices.Contains(authCodes, p.Code):
		s.logRefusal(r, &p)
	}
	switch {
	case p.Status == fiber.StatusUnauthorized:
		r.Set(fiber.HeaderWWWAuthenticate, "Bearer")
	case p.Code == job.CodeJobNotFinished, p.Status == fiber.StatusTooManyRequests,
		p.Status == fiber.StatusServiceUnavailable, p.Status == fiber.StatusGatewayTimeout:
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(max(1, seconds(p.retryAfter))))
	}
	r.inLanguage(job.Languages[0])
	if missing, ok := errors.AsType[noPage](err); ok && missing.send(r, &p) {
		return
	}
	_ = r.send(p.Status, mimeProblem, &p) // strings and numbers: cannot fail
}

func (s *Server) problemOf(r *call, err error) problem {
	var (
		known   *job.Error
		status  statusError
		routing *fiber.Error
		crash   panicked
		wanted  injected
	)
	switch {
	case errors.As(err, &wanted):
		p := s.problem(wanted.wanted.Code, "")
		p.retryAfter = wanted.wanted.RetryAfter
		return p
	case errors.As(err, &crash):
		return s.problem(job.CodeInternal, "")
	case errors.As(err, &known) && known.Code.Spec().Status < 500:
		p := s.problem(known.Code, known.Detail)
		p.Violations, p.retryAfter = known.Violations, known.RetryAfter
		p.ExpiredAt, p.JobID, p.BatchID = job.TimeOf(known.ExpiredAt), idOrNull(known.JobID), idOrNull(known.BatchID)
		return p
	case errors.As(err, &status):
		p := s.problem(job.CodeMalformed, status.detail)
		p.Status = status.status
		return p
	case errors.As(err, &routing) && routing.Code == fiber.StatusMethodNotAllowed:
		return s.problem(job.CodeMethodNotAllowed, "This resource does not have that method. It has "+
			string(r.Response().Header.Peek(fiber.HeaderAllow))+".")
	case errors.As(err, &routing) && routing.Code == fiber.StatusNotImplemented:
		p := s.problem(job.CodeMethodNotAllowed,
			"This server does not know the method of the request, for any resource. Methods are written in capitals.")
		p.Status = fiber.StatusNotImplemented
		return p
	case errors.As(err, &routing) && routing.Code == fiber.StatusNotFound:
		return s.problem(job.CodeRequestNotFound,
			"Nothing is at this path."+s.nearPath(r.Path())+" All paths are described at "+s.cfg.PublicURL+"/docs.")
	// Whatever a use case made of its context's end, the reason is known here.
	case errors.Is(r.ctx.Err(), context.DeadlineExceeded):
		return s.problem(job.CodeTimeout, "The request took longer than this server allows. "+
			"Whether it had an effect is not known; repeat it with the same idempotency key.")
	case s.base.Err() != nil:
		return s.problem(job.CodeStorageUnavailable, "The server is shutting down.")
	case known != nil && known.Code != job.CodeInternal:
		p := s.problem(known.Code, known.Detail)
		p.retryAfter = known.RetryAfter
		return p
	}
	return s.problem(job.CodeInternal, "")
}

// problem fills in what the table of codes fixes.
func (s *Server) problem(code job.Code, detail string) problem {
	spec := code.Spec()
	if detail == "" || spec.Code == job.CodeInternal {
		detail = spec.Action
	}
	return problem{
		Type: s.links.ProblemType(spec.Slug), Title: spec.Title, Status: spec.Status,
		Detail: job.PlainText(detail, job.MaxDetailBytes), Code: spec.Code,
	}
}

// logFailure logs what the answer hides: the cause, and where the server
// itself is at fault, the stack.
func (s *Server) logFailure(r *call, p *problem, err error) {
	attrs := []slog.Attr{
		slog.String("request_id", r.idText), slog.String("client_id", idOrEmpty(r.caller.ClientID)),
		slog.String("action", r.route.action), slog.String("error_code", string(p.Code)),
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
	s.log.LogAttrs(r.ctx, slog.LevelError, "request failed", attrs...)
}
