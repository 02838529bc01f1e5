package handlers

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/codes"

	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/job"
)

// sendProblem is the only way from an error to an answer. What is not a
// *job.Error shows nothing of itself: it is logged, and the client gets a
// plain internal error.
func (s *Server) sendProblem(r *call, err error) {
	p := s.problemOf(r, err)
	r.failed = &p
	s.metrics.countRefused(r, p.Code)
	_, wanted := errors.AsType[injected](err)
	switch {
	case wanted: // a client of a test bed asked for it
	case r.refused, r.noSlot: // no failures: the log would be full of them; Admission tells of the former
	case p.Status >= 500 && p.Status != fiber.StatusNotImplemented: // anybody may name a method that there is not
		s.logFailure(r, &p, err)
		r.span.SetStatus(codes.Error, header.Clip(err.Error()))
	case r.slowed || slices.Contains(authCodes, p.Code):
		s.logRefusal(r, &p)
	}
	switch {
	case p.Status == fiber.StatusUnauthorized:
		r.Set(fiber.HeaderWWWAuthenticate, "Bearer")
	case problem.Waits(p.Code, p.Status):
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(max(1, problem.Seconds(p.RetryAfter))))
	}
	r.inLanguage(job.Languages[0])
	if missing, ok := errors.AsType[noPage](err); ok && missing.send(r, &p) {
		return
	}
	_ = r.send(p.Status, mimeProblem, &p) // strings and numbers: cannot fail
}

func (s *Server) problemOf(r *call, err error) problem.Document {
	p := problem.Of(s.links, s.refusalOf(r, err))
	own, _ := errors.AsType[problem.StatusError](err)
	p.Status, p.Instance = cmp.Or(own.Status, p.Status), "urn:uuid:"+r.idText
	return p
}

// refusalOf is what the client gets of an error.
func (s *Server) refusalOf(r *call, err error) *job.Error {
	var (
		known   *job.Error
		routing *fiber.Error
		wanted  injected
	)
	switch {
	case errors.As(err, &wanted):
		return &job.Error{Code: wanted.wanted.Code, RetryAfter: wanted.wanted.RetryAfter}
	case errors.As(err, new(panicked)):
	case errors.As(err, &known) && known.Code.Spec().Status < 500:
		return known
	case errors.As(err, &routing) && routing.Code == fiber.StatusMethodNotAllowed:
		return job.Errorf(job.CodeMethodNotAllowed, "This resource does not have that method. It has %s.",
			r.Response().Header.Peek(fiber.HeaderAllow))
	case errors.As(err, &routing) && routing.Code == fiber.StatusNotFound:
		return job.Errorf(job.CodeRequestNotFound, "Nothing is at this path.%s All paths are described at %s/docs.",
			s.nearPath(r.Path()), s.cfg.PublicURL)
	// Whatever a use case made of its context's end, the reason is known here.
	case errors.Is(r.ctx.Err(), context.DeadlineExceeded):
		return job.Errorf(job.CodeTimeout, "The request took longer than this server allows. "+
			"Whether it had an effect is not known; repeat it with the same idempotency key.")
	case s.base.Err() != nil:
		return job.Errorf(job.CodeStorageUnavailable, "The server is shutting down.")
	case known != nil && known.Code != job.CodeInternal:
		return &job.Error{Code: known.Code, Detail: known.Detail, RetryAfter: known.RetryAfter}
	}
	return &job.Error{Code: job.CodeInternal}
}

// logFailure logs what the answer hides: the cause, and where the server
// itself is at fault, the stack.
func (s *Server) logFailure(r *call, p *problem.Document, err error) {
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

// Conditions are If-Match and If-None-Match (RFC 9110, section 13). No resource has a Last-Modified, so those about times are
// ignored, as sections 13.1.3 and 13.1.4 say.

// unchanged reports whether the client has the representation with this tag. What a fault rewrites is another one.
func (r *call) unchanged(tag string) bool {
	return (r.fault == nil || !r.fault.Rewrites()) && header.MatchesETag(r.list(fiber.HeaderIfNoneMatch), tag)
}

func (r *call) has(name string) bool { return len(r.Request().Header.PeekAll(name)) > 0 }

// shownBy gives for the path of each change the route that shows what the change is about: that of the same path, or of the nearest one
// above. What nothing shows has no representation, whose tag a condition could name.
func (s *Server) shownBy(routes []route) map[string]*route {
	rule := faultsPath + "/:id"
	reads, shown := map[string]*route{rule: {method: get, path: rule, access: client, handle: s.showFault}}, map[string]*route{}
	for i, rt := range routes {
		if rt.method == get && rt.access == client {
			reads[rt.path] = &routes[i]
		}
	}
	for _, rt := range routes {
		for path := rt.path; path != "" && shown[rt.path] == nil; path = path[:strings.LastIndexByte(path, '/')] {
			shown[rt.path] = reads[path]
		}
	}
	return shown
}

// showFault answers as GET of one rule would, which there is not.
func (s *Server) showFault(r *call) error {
	rules, err := s.faults(r)
	if err != nil {
		return err
	}
	id := r.pathID().String()
	for _, rule := range rules {
		if rule.ID == id {
			return nil
		}
	}
	return job.Errorf(job.CodeRequestNotFound, "No rule with this id was found.")
}

// checkConditions refuses a change whose conditions do not hold for what it is about. It comes after all other checks of the request's
// head, and what the client may not see is answered as ever.
func (s *Server) checkConditions(r *call) error {
	match, noneMatch := r.has(fiber.HeaderIfMatch), r.has(fiber.HeaderIfNoneMatch)
	if r.route.access == public || !match && !noneMatch {
		return nil
	}
	shows := s.shown[r.route.path]
	if shows == nil {
		if match {
			return errUnmatched("")
		}
		return nil
	}
	if !noneMatch && r.list(fiber.HeaderIfMatch) == "*" {
		return nil // whether it is there, the change finds out by itself
	}
	tag, err := s.currentTag(r, shows)
	switch {
	case err != nil:
		return err
	case match && !header.MatchesStrongly(r.list(fiber.HeaderIfMatch), tag):
		return errUnmatched(tag)
	case noneMatch && header.MatchesETag(r.list(fiber.HeaderIfNoneMatch), tag):
		return problem.WithStatus(fiber.StatusPreconditionFailed, problem.NoneMatched)
	}
	return nil
}

// errUnmatched refuses a request whose If-Match does not name the tag of what there is, "" if it has none.
func errUnmatched(tag string) error {
	detail := problem.Unmatched
	if tag == "" || strings.HasPrefix(tag, "W/") {
		detail += " It has no strong entity tag, which If-Match needs: send the request without If-Match."
	}
	return problem.WithStatus(fiber.StatusPreconditionFailed, detail)
}

// The headers of a request that change what GET answers, besides Accept.
var readingHeaders = []string{"Prefer", fiber.HeaderIfNoneMatch, fiber.HeaderRange}

// currentTag gives the entity tag that the given route of GET would answer the client with now, "" for none, or its refusal. Nothing
// of its answer stays.
func (s *Server) currentTag(r *call, shows *route) (string, error) {
	change, sent := r.route, map[string]string{}
	for _, name := range readingHeaders {
		sent[name] = r.list(name)
		r.Request().Header.Del(name)
	}
	var before fasthttp.ResponseHeader
	r.Response().Header.CopyTo(&before)
	defer func() {
		r.route = change
		r.leave() // what follows takes one of its own, once the body is there
		r.resetAnswer(&before)
		for name, value := range sent {
			if value != "" {
				r.Request().Header.Set(name, value)
			}
		}
	}()
	r.route = shows
	if err := r.enter(); err != nil {
		return "", err
	}
	if err := shows.handle(r); err != nil {
		return "", err
	}
	return string(r.Response().Header.Peek(fiber.HeaderETag)), nil
}

// resetAnswer makes the answer as it was when it had these headers, and no body.
func (r *call) resetAnswer(before *fasthttp.ResponseHeader) {
	before.CopyTo(&r.Response().Header)
	r.Response().ResetBody()
}

// read answers GET, unless the answer is one that the request says is not wanted. A stream is one of a kind that was asked for.
func (s *Server) read(r *call, handle func(*call) error) error {
	if !r.has(fiber.HeaderIfMatch) && !strings.Contains(r.list(fiber.HeaderAccept), ";") { // no range has a weight
		return handle(r)
	}
	var before fasthttp.ResponseHeader
	r.Response().Header.CopyTo(&before)
	err := handle(r)
	if err != nil || r.streams {
		return err
	}
	if err = r.checkAnswer(); err != nil {
		r.resetAnswer(&before)
	}
	return err
}

// checkAnswer refuses an answer to GET that has not the entity tag or the media type that the request wants.
func (r *call) checkAnswer() error {
	answer := r.Response()
	tag := string(answer.Header.Peek(fiber.HeaderETag))
	if r.has(fiber.HeaderIfMatch) && !header.MatchesStrongly(r.list(fiber.HeaderIfMatch), tag) {
		return errUnmatched(tag)
	}
	media, _, _ := strings.Cut(string(answer.Header.ContentType()), ";")
	if status := answer.StatusCode(); status == fiber.StatusOK && header.Excludes(r.list(fiber.HeaderAccept), media) {
		return problem.NotAcceptable(media)
	}
	return nil
}
