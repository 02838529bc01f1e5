package httpkit

import (
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/job"
)

// Conditional requests use If-Match and If-None-Match (RFC 9110, section 13). No resource has a Last-Modified date, so conditions with
// dates are ignored (sections 13.1.3 and 13.1.4).

// Unchanged reports whether the client already has the representation with this tag. Representations that a fault rewrites never match.
func (r *Request) Unchanged(tag string) bool {
	return !r.Rewrite && header.MatchesETag(r.List(fiber.HeaderIfNoneMatch), tag)
}

// Has reports whether the request has a header.
func (r *Request) Has(name string) bool { return len(r.Request().Header.PeekAll(name)) > 0 }

// shownBy maps the path of each route to the GET route with the same path. If there is none, it uses the GET route with the nearest
// parent path. A resource without a GET route has no entity tag, so If-Match never matches.
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

// checkConditions checks If-Match and If-None-Match in requests that change something. If a condition fails, checkConditions refuses the
// request. It runs after all other checks of the request's head. If the client cannot read the resource, the response is the error of
// the GET route.
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
		return nil // the change itself checks that the resource exists
	}
	tag, err := s.currentTag(r, shows)
	switch {
	case err != nil:
		return err
	case match && !header.MatchesStrongly(r.List(fiber.HeaderIfMatch), tag):
		return errUnmatched(tag)
	case noneMatch && header.MatchesETag(r.List(fiber.HeaderIfNoneMatch), tag):
		return problem.WithStatus(fiber.StatusPreconditionFailed, "If-None-Match matches the current version. Nothing was done.")
	}
	return nil
}

// `tag` is the current tag, or "".
func errUnmatched(tag string) error {
	detail := "If-Match does not match the current version. Nothing was done."
	if tag == "" || strings.HasPrefix(tag, "W/") {
		detail += " If-Match needs a strong entity tag, and this resource has none: send the request without If-Match."
	}
	return problem.WithStatus(fiber.StatusPreconditionFailed, detail)
}

// currentTag removes these request headers, because they change the response of GET.
var readingHeaders = []string{"Prefer", fiber.HeaderIfNoneMatch, fiber.HeaderRange}

// currentTag returns the entity tag that the client would get from the GET route ("": none), or the route's error. It restores the request
// and the response afterwards.
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
		r.Leave() // the handler of the change takes a slot again after it has read the body
		r.resetResponse(&before)
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

func (r *Request) resetResponse(before *fasthttp.ResponseHeader) {
	before.CopyTo(&r.Response().Header)
	r.Response().ResetBody()
}

// read handles GET. If If-Match or Accept excludes the response, read sends an error instead. It does not check event streams, because
// they have already taken over the connection.
func (s *Kit) read(r *Request, handle Handler) error {
	if !r.Has(fiber.HeaderIfMatch) && !strings.Contains(r.List(fiber.HeaderAccept), ";") { // nothing to check
		return handle(r)
	}
	var before fasthttp.ResponseHeader
	r.Response().Header.CopyTo(&before)
	err := handle(r)
	if err != nil || r.Streams {
		return err
	}
	if err = r.checkResponse(); err != nil {
		r.resetResponse(&before)
	}
	return err
}

func (r *Request) checkResponse() error {
	answer := r.Response()
	tag := string(answer.Header.Peek(fiber.HeaderETag))
	if r.Has(fiber.HeaderIfMatch) && !header.MatchesStrongly(r.List(fiber.HeaderIfMatch), tag) {
		return errUnmatched(tag)
	}
	media, _, _ := strings.Cut(string(answer.Header.ContentType()), ";")
	if status := answer.StatusCode(); status == fiber.StatusOK && header.Excludes(r.List(fiber.HeaderAccept), media) {
		return job.Errorf(job.CodeNotAcceptable,
			"The response is %[1]s, but the Accept header excludes that. Send Accept: %[1]s, or no Accept header.", media)
	}
	return nil
}
