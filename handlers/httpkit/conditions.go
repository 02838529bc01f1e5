package httpkit

import (
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
)

// Conditions are If-Match and If-None-Match (RFC 9110, section 13). No resource has a Last-Modified, so those about times are
// ignored, as sections 13.1.3 and 13.1.4 say.

// Unchanged reports whether the client has the representation with this tag. What a fault rewrites is another one.
func (r *Request) Unchanged(tag string) bool {
	return !r.Rewrite && header.MatchesETag(r.List(fiber.HeaderIfNoneMatch), tag)
}

// Has reports whether the request has a header.
func (r *Request) Has(name string) bool { return len(r.Request().Header.PeekAll(name)) > 0 }

// shownBy maps the path of each changing route to the GET route of the changed resource: at the same path, or at the nearest one above.
// A resource without such a route has no entity tag, so a condition cannot name one.
func shownBy(routes []Route) map[string]*Route {
	reads, shown := map[string]*Route{}, map[string]*Route{}
	for i, rt := range routes {
		if rt.Method == Get && (rt.ofClient() || rt.Access == OperatorToken) {
			reads[rt.Path] = &routes[i]
		}
	}
	for _, rt := range routes {
		for path := rt.Path; path != "" && shown[rt.Path] == nil; path = path[:strings.LastIndexByte(path, '/')] {
			shown[rt.Path] = reads[path]
		}
	}
	return shown
}

// checkConditions refuses a change whose conditions do not hold for what it is about. It comes after all other checks of the request's
// head, and what the client may not see is answered as ever.
func (s *Kit) checkConditions(r *Request) error {
	match, noneMatch := r.Has(fiber.HeaderIfMatch), r.Has(fiber.HeaderIfNoneMatch)
	if r.Route.Access == Public || !match && !noneMatch {
		return nil
	}
	shows := s.Shown[r.Route.Path]
	if shows == nil {
		if match {
			return errUnmatched("")
		}
		return nil
	}
	if !noneMatch && r.List(fiber.HeaderIfMatch) == "*" {
		return nil // whether it is there, the change finds out by itself
	}
	tag, err := s.currentTag(r, shows)
	switch {
	case err != nil:
		return err
	case match && !header.MatchesStrongly(r.List(fiber.HeaderIfMatch), tag):
		return errUnmatched(tag)
	case noneMatch && header.MatchesETag(r.List(fiber.HeaderIfNoneMatch), tag):
		return problem.WithStatus(fiber.StatusPreconditionFailed, problem.NoneMatched)
	}
	return nil
}

// errUnmatched refuses a request whose If-Match does not name the tag of what there is, "" if it has none.
func errUnmatched(tag string) error {
	detail := problem.Unmatched
	if tag == "" || strings.HasPrefix(tag, "W/") {
		detail += " If-Match needs a strong entity tag, and this resource has none: send the request without If-Match."
	}
	return problem.WithStatus(fiber.StatusPreconditionFailed, detail)
}

// The headers of a request that change what GET answers, besides Accept.
var readingHeaders = []string{"Prefer", fiber.HeaderIfNoneMatch, fiber.HeaderRange}

// currentTag returns the entity tag that the given route of GET would answer the client with now, "" for none, or its refusal. Nothing
// of its answer stays.
func (s *Kit) currentTag(r *Request, shows *Route) (string, error) {
	change, sent := r.Route, map[string]string{}
	for _, name := range readingHeaders {
		sent[name] = r.List(name)
		r.Request().Header.Del(name)
	}
	var before fasthttp.ResponseHeader
	r.Response().Header.CopyTo(&before)
	defer func() {
		r.Route = change
		r.Leave() // what follows takes one of its own, once the body is there
		r.resetAnswer(&before)
		for name, value := range sent {
			if value != "" {
				r.Request().Header.Set(name, value)
			}
		}
	}()
	r.Route = shows
	if err := r.Enter(); err != nil {
		return "", err
	}
	if err := shows.Handle(r); err != nil {
		return "", err
	}
	return string(r.Response().Header.Peek(fiber.HeaderETag)), nil
}

// resetAnswer makes the answer as it was when it had these headers, and no body.
func (r *Request) resetAnswer(before *fasthttp.ResponseHeader) {
	before.CopyTo(&r.Response().Header)
	r.Response().ResetBody()
}

// read answers GET, unless the answer is one that the request says is not wanted. A stream is one of a kind that was asked for.
func (s *Kit) read(r *Request, handle Handler) error {
	if !r.Has(fiber.HeaderIfMatch) && !strings.Contains(r.List(fiber.HeaderAccept), ";") { // no range has a weight
		return handle(r)
	}
	var before fasthttp.ResponseHeader
	r.Response().Header.CopyTo(&before)
	err := handle(r)
	if err != nil || r.Streams {
		return err
	}
	if err = r.checkAnswer(); err != nil {
		r.resetAnswer(&before)
	}
	return err
}

// checkAnswer refuses an answer to GET that has not the entity tag or the media type that the request wants.
func (r *Request) checkAnswer() error {
	answer := r.Response()
	tag := string(answer.Header.Peek(fiber.HeaderETag))
	if r.Has(fiber.HeaderIfMatch) && !header.MatchesStrongly(r.List(fiber.HeaderIfMatch), tag) {
		return errUnmatched(tag)
	}
	media, _, _ := strings.Cut(string(answer.Header.ContentType()), ";")
	if status := answer.StatusCode(); status == fiber.StatusOK && header.Excludes(r.List(fiber.HeaderAccept), media) {
		return problem.NotAcceptable(media)
	}
	return nil
}
