package httpkit

import (
	"maps"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/cors"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// Access is the kind of credentials that a route needs. Use cases check who owns a job or client.
type Access int

// Kinds of access.
const (
	Public        Access = iota // no credentials are read
	Registration                // credentials are optional; the use case decides
	Account                     // a client's key or the operator's token
	Renewal                     // like Account, and also a client's key that expired recently
	ClientKey                   // a client's key
	ExpiredKey                  // a client's key, possibly expired: see Route.takesExpired
	OperatorToken               // the operator's token; all routes of the operator API
)

// Handler handles a request.
type Handler func(*Request) error

// Route is a row in the table of routes.
type Route struct {
	Method, Path string
	Access       Access
	Action       string // name of the request's action, also in logs
	Success      int    // usual success status
	Handle       Handler
	Query        []query.Parameter
	Produces     []string // media types of responses; the request must accept one of them. nil: Accept is not checked before the handler runs
	Hidden       bool     // not served to clients; only Kit.currentTag calls it, to check If-Match and If-None-Match
}

// Row returns a route. Row sets Produces to AsJSON, except for public routes.
func Row(method, path string, access Access, action string, success int, handle Handler, parameters ...query.Parameter) Route {
	rt := Route{Method: method, Path: path, Access: access, Action: action, Success: success, Handle: handle, Query: parameters}
	if access != Public {
		rt.Produces = AsJSON
	}
	return rt
}

// As returns a copy of the route that produces the given media types.
func (rt Route) As(media ...string) Route {
	rt.Produces = media
	return rt
}

func (rt *Route) submits() bool {
	return rt.Action == "submit" || rt.Action == "submit_batch" || rt.Action == "retry"
}

func (rt *Route) ofClient() bool { return rt.Access == ClientKey || rt.Access == ExpiredKey }

// takesExpired reports whether the route accepts an expired key. If a test bed's clock passes the expiry of all keys, clients must still
// be able to move the clock and end sessions. For renewals, the use case decides which expired keys it accepts.
func (rt *Route) takesExpired() bool { return rt.Access == Renewal || rt.Access == ExpiredKey }

func (rt *Route) needs() job.Scope {
	switch {
	case rt.Method == Get:
		return job.ScopeRead
	case rt.Action == "submit", rt.Action == "submit_batch":
		return job.ScopeSubmit
	default:
		return job.ScopeAll
	}
}

// HTTP methods of routes.
const (
	Get    = fiber.MethodGet
	Post   = fiber.MethodPost
	Put    = fiber.MethodPut
	Patch  = fiber.MethodPatch
	Delete = fiber.MethodDelete
)

// Media types of responses that are not plain JSON.
const (
	ProblemMedia = problem.Media
	EventStream  = "text/event-stream"
)

// AsJSON has the media types of most routes.
var AsJSON = []string{fiber.MIMEApplicationJSON, ProblemMedia}

var unmatchedRoute = &Route{Method: Get, Path: "unmatched", Access: Public, Action: "none", Success: fiber.StatusNotFound}

// unreadableRoute is the route of requests that cannot be parsed. Such a request may have no Host header to check.
var unreadableRoute = func() *Route { rt := *unmatchedRoute; return &rt }()

// preflight is the route of CORS preflight requests, which carry no credentials.
var preflight = &Route{
	Method: fiber.MethodOptions, Path: "preflight", Access: Public, Action: "preflight", Success: fiber.StatusNoContent,
}

// Register adds the routes. Fiber derives 404 and 405 (with Allow) from them.
func (s *Kit) Register(routes []Route) {
	s.Routes = slices.DeleteFunc(slices.Clone(routes), func(rt Route) bool { return rt.Hidden })
	s.Shown = shownBy(routes)
	s.metrics = newMetrics(telemetry.In(s.Registry), s.Routes)
	s.registerHidden()
	for _, rt := range s.Routes {
		handler := func(c *fiber.Ctx) error {
			s.serve(c, &rt, rt.Handle)
			return nil
		}
		s.app.Add(rt.Method, rt.Path, handler)
		if rt.Method == fiber.MethodGet {
			s.app.Add(fiber.MethodHead, rt.Path, handler)
		}
	}
}

// A fixed path such as /v1/jobs/batch may also match a route with parameters. registerHidden makes unsupported methods of such a path
// return 405. Without it, GET /v1/jobs/batch would look up a job with the id "batch".
func (s *Kit) registerHidden() {
	allowed := map[string][]string{}
	for _, rt := range s.Routes {
		allowed[rt.Path] = append(allowed[rt.Path], rt.Method)
		if rt.Method == Get {
			allowed[rt.Path] = append(allowed[rt.Path], fiber.MethodHead)
		}
	}
	for path, methods := range allowed {
		hidden := func(other string) bool {
			return other != path && matches(strings.Split(other, "/"), strings.Split(path, "/"))
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(allowed)), hidden) {
			continue
		}
		for _, method := range s.app.Config().RequestMethods {
			if slices.Contains(methods, method) {
				continue
			}
			s.app.Add(method, path, func(c *fiber.Ctx) error {
				c.Set(fiber.HeaderAllow, strings.Join(methods, ", "))
				return s.unmatched(c, fiber.ErrMethodNotAllowed)
			})
		}
	}
}

func matches(general, path []string) bool {
	return slices.EqualFunc(general, path, func(a, b string) bool { return a == b || strings.HasPrefix(a, ":") && b != "" })
}

// nearPath suggests nothing for longer paths.
const (
	maxNearPath     = 256 // bytes
	maxNearSegments = 8
)

// nearPath suggests the route that was probably meant, or "". The path may differ by typos, case, a missing /v1 or a trailing slash.
func (s *Kit) nearPath(path string) string {
	path = strings.TrimSuffix(path, "/")
	if len(path) > maxNearPath || strings.Count(path, "/") > maxNearSegments {
		return ""
	}
	for _, sent := range []string{path, "/v1" + path} {
		var near string
		for i := range s.Routes {
			segments := s.Routes[i].Segments()
			known := strings.Join(segments, "/")
			fewer := near == "" || strings.Count(known, "{") < strings.Count(near, "{")
			if fewer && isNear(strings.Split(sent, "/"), segments) {
				near = known
			}
		}
		if near != "" && s.Pages.Handler == nil { // suggest a full URL, except on the admin listener: PublicURL does not lead there
			near = s.Links.At(near)
		}
		if near != "" {
			return " Did you mean " + near + "?"
		}
	}
	return ""
}

func isNear(sent, route []string) bool {
	if len(sent) != len(route) {
		return false
	}
	for i, name := range route {
		if !strings.HasPrefix(name, "{") && name != sent[i] && decode.Nearest(sent[i], route[i:i+1]) == "" {
			return false
		}
	}
	return true
}

// Segments returns the segments of the path, with parameters as {name}.
func (rt *Route) Segments() []string {
	segments := strings.Split(rt.Path, "/")
	for i, name := range segments {
		if parameter, ok := strings.CutPrefix(name, ":"); ok {
			segments[i] = "{" + parameter + "}"
		}
	}
	return segments
}

// unmatched responds to requests without a route: with 204 to CORS preflights, 501 for unknown methods, otherwise 404 or 405.
func (s *Kit) unmatched(c *fiber.Ctx, err error) error {
	if c.Method() == otherMethod {
		c.Response().Header.Del(fiber.HeaderAllow)
		err = problem.StatusError{Status: fiber.StatusNotImplemented, Cause: job.Errorf(job.CodeMethodNotAllowed,
			"Unknown request method. Methods are written in capitals.")}
	}
	if s.Origins.IsPreflight(c) {
		s.serve(c, preflight, func(*Request) error {
			cors.AllowPreflight(c)
			return nil
		})
		return nil
	}
	s.serve(c, unmatchedRoute, func(*Request) error { return err })
	return nil
}
