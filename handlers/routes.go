package handlers

import (
	"maps"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// access says whose requests a route takes. It is the only authorisation in
// this package; whose job or client it is, the use cases decide.
type access int

const (
	public       access = iota // no credentials are read
	registration               // credentials are optional, the use case decides
	account                    // a client's key or the operator's token
	renewal                    // as account, or a client's key that expired not long ago
	client                     // a client's key
	operator                   // the operator's token
)

// route is one row of the table.
type route struct {
	method, path string
	access       access
	action       string // in logs
	query        []query.Parameter
	produces     []string // media types, one of which must be acceptable; nil: not checked in advance
	success      int      // status of the usual good answer, for metrics from zero
	handle       func(*call) error
}

// submits reports whether a request of this route may end in a new attempt.
func (rt *route) submits() bool {
	return rt.action == "submit" || rt.action == "submit_batch" || rt.action == "retry"
}

// takesExpired reports whether a key will do that has expired: on a test bed, whoever moves the clock may move it beyond the end of all
// keys, and still has to move it on, or to end a session. What is to be renewed the use case decides.
func (rt *route) takesExpired() bool {
	return rt.access == renewal || rt.path == clockPath || strings.HasPrefix(rt.path, sessionsPath)
}

// needs is the scope that a client's key needs for a request of this route.
func (rt *route) needs() job.Scope {
	switch {
	case rt.method == get:
		return job.ScopeRead
	case rt.action == "submit", rt.action == "submit_batch":
		return job.ScopeSubmit
	default:
		return job.ScopeAll
	}
}

// The methods of routes, patch and delete aside.
const get, post = fiber.MethodGet, fiber.MethodPost

// Media types of answers that are not plain JSON.
const (
	mimeProblem     = problem.Media
	mimeEventStream = "text/event-stream"
)

// What routes produce.
var (
	asJSON   = []string{fiber.MIMEApplicationJSON, mimeProblem}
	asEvents = []string{fiber.MIMEApplicationJSON, mimeProblem, mimeEventStream}
)

// routes is the whole HTTP surface. Fiber gets it row by row, and derives 404
// and 405 with Allow from it.
func (s *Server) routes() []route {
	return slices.Concat(s.testbedRoutes(), s.jobRoutes(), s.scheduleRoutes(), s.webhookRoutes(), s.documentRoutes())
}

func (s *Server) jobRoutes() []route {
	return []route{
		{post, "/v1/clients", registration, "create_client", nil, asJSON, fiber.StatusCreated, s.once(noBody(s.createClient))},
		{post, "/v1/clients/:id/keys", registration, "create_key", nil, asJSON, fiber.StatusCreated, s.once(s.createKey)},
		{post, "/v1/clients/:id/keys/renew", renewal, "renew_key", nil, asJSON, fiber.StatusOK, s.once(noBody(s.renewKey))},
		{post, "/v1/clients/:id/keys/revoke", account, "revoke_key", nil, asJSON, fiber.StatusOK, s.once(s.revokeKey)},
		{post, "/v1/clients/:id/jobs/cancel", operator, "cancel_client", nil, asJSON, fiber.StatusOK, s.once(noBody(s.cancelClient))},

		{post, "/v1/jobs", client, "submit", nil, asJSON, fiber.StatusAccepted, s.submit},
		{get, "/v1/jobs", client, "list", listQuery, asJSON, fiber.StatusOK, s.listJobs},
		{post, "/v1/jobs/batch", client, "submit_batch", nil, asJSON, fiber.StatusAccepted, s.submitBatch},
		{get, "/v1/jobs/:id", client, "get", nil, asJSON, fiber.StatusOK, s.getJob},
		{fiber.MethodDelete, "/v1/jobs/:id", client, "delete", nil, asJSON, fiber.StatusNoContent, noBody(removing(s.deps.Jobs.Delete))},
		{post, "/v1/jobs/:id/cancel", client, "cancel", nil, asJSON, fiber.StatusOK,
			s.once(noBody(answering(s.deps.Jobs.Cancel, view.ChangeOf)))},
		{post, "/v1/jobs/:id/retry", client, "retry", nil, asJSON, fiber.StatusOK, s.once(noBody(answering(s.deps.Jobs.Retry, view.RetriedOf)))},
		{get, "/v1/jobs/:id/report", client, "report", reportQuery, asJSON, fiber.StatusOK, s.getReport},
		{get, "/v1/jobs/:id/attempts", client, "attempts", nil, asJSON, fiber.StatusOK, s.listAttempts},
		{get, "/v1/jobs/:id/attempts/:n", client, "attempt", nil, asJSON, fiber.StatusOK, s.getAttempt},
		{get, "/v1/jobs/:id/result", client, "result", nil, nil, fiber.StatusOK, s.getResult},
		{get, "/v1/jobs/:id/events", client, "events", query.Page, asEvents, fiber.StatusOK, s.jobEvents},
		{get, "/v1/events", client, "client_events", query.Page, asEvents, fiber.StatusOK, s.clientEvents},

		{get, "/v1/batches/:id", client, "get_batch", nil, asJSON, fiber.StatusOK, s.getBatch},
		{get, "/v1/batches/:id/jobs", client, "list_batch", query.Page, asJSON, fiber.StatusOK, s.listBatch},
		{post, "/v1/batches/:id/cancel", client, "cancel_batch", nil, asJSON, fiber.StatusOK, s.once(noBody(s.cancelBatch))},

		{post, "/v1/bulk", client, "begin_bulk", nil, asJSON, fiber.StatusAccepted, s.beginBulk},
		{get, "/v1/bulk", client, "list_bulks", query.Page, asJSON, fiber.StatusOK, s.listBulks},
		{get, "/v1/bulk/:id", client, "get_bulk", nil, asJSON, fiber.StatusOK, s.getBulk},
		{get, "/v1/bulk/:id/items", client, "list_bulk_items", bulkItemsQuery, asJSON, fiber.StatusOK, s.listBulkItems},
		{post, "/v1/bulk/:id/abort", client, "abort_bulk", nil, asJSON, fiber.StatusOK, s.once(noBody(s.abortBulk))},
	}
}

func (s *Server) webhookRoutes() []route {
	return []route{
		{post, "/v1/webhooks", client, "register_webhook", nil, asJSON, fiber.StatusCreated, s.registerWebhook},
		{get, "/v1/webhooks", client, "list_webhooks", nil, asJSON, fiber.StatusOK, s.listWebhooks},
		{get, "/v1/webhooks/:id", client, "get_webhook", nil, asJSON, fiber.StatusOK, answering(s.deps.Webhooks.Webhook, s.webhookViewOf)},
		{fiber.MethodPatch, "/v1/webhooks/:id", client, "update_webhook", nil, asJSON, fiber.StatusOK, s.updateWebhook},
		{fiber.MethodDelete, "/v1/webhooks/:id", client, "unregister_webhook", nil, asJSON, fiber.StatusOK, noBody(s.unregisterWebhook)},
		{post, "/v1/webhooks/:id/rotate-secret", client, "rotate_secret", nil, asJSON, fiber.StatusOK, s.once(noBody(s.rotateSecret))},
		{post, "/v1/webhooks/:id/test", client, "test_webhook", nil, asJSON, fiber.StatusAccepted, s.once(noBody(s.testWebhook))},
		{post, "/v1/webhooks/:id/redeliver", client, "redeliver_failed", nil, asJSON, fiber.StatusAccepted, s.once(s.redeliverFailed)},
		{post, "/v1/webhooks/:id/replay", client, "replay_webhook", nil, asJSON, fiber.StatusAccepted, s.once(s.replayWebhook)},
		{get, "/v1/webhooks/:id/deliveries", client, "webhook_deliveries", deliveryQuery, asJSON, fiber.StatusOK, s.listDeliveries},
		{get, "/v1/webhooks/:id/deliveries/:delivery_id", client, "webhook_delivery", nil, asJSON, fiber.StatusOK, s.getDelivery},
		{post, "/v1/webhooks/:id/deliveries/:delivery_id/redeliver", client, "redeliver",
			nil, asJSON, fiber.StatusAccepted, s.once(noBody(s.redeliver))},
		{get, "/v1/jobs/:id/deliveries", client, "job_deliveries", deliveryQuery, asJSON, fiber.StatusOK, s.listDeliveries},
		{get, "/v1/jobs/:id/deliveries/:delivery_id", client, "job_delivery", nil, asJSON, fiber.StatusOK, s.getDelivery},
		{post, "/v1/jobs/:id/deliveries/:delivery_id/redeliver", client, "redeliver_of_job",
			nil, asJSON, fiber.StatusAccepted, s.once(noBody(s.redeliver))},
	}
}

// documentRoutes are open to everybody.
func (s *Server) documentRoutes() []route {
	page := s.docsPage()
	return []route{
		{get, "/healthz", public, "health", nil, nil, fiber.StatusOK, s.healthz},
		{get, "/readyz", public, "ready", nil, nil, fiber.StatusOK, s.readyz},
		{get, "/openapi.yaml", public, "openapi", nil, nil, fiber.StatusOK, document(mimeYAML, s.site.OpenAPI)},
		{get, "/openapi.json", public, "openapi_json", nil, nil, fiber.StatusOK, inJSON(s.site.OpenAPI)},
		{get, "/asyncapi.yaml", public, "asyncapi", nil, nil, fiber.StatusOK, document(mimeYAML, s.site.AsyncAPI)},
		{get, "/asyncapi.json", public, "asyncapi_json", nil, nil, fiber.StatusOK, inJSON(s.site.AsyncAPI)},
		{get, "/.well-known/http-message-signatures-directory", public, "signing_keys", nil, nil, fiber.StatusOK, s.signingKeys},
		{get, "/", public, "root", nil, nil, fiber.StatusOK, s.root(page)},
		{get, "/docs", public, "docs", nil, nil, fiber.StatusOK, page},
		{get, "/rels/:name", public, "relation", nil, nil, fiber.StatusOK, relationPage},
		{get, "/problems", public, "problem_types", nil, nil, fiber.StatusOK, problemIndex("problems/", "docs")},
		{get, "/problems/", public, "problems", nil, nil, fiber.StatusOK, problemIndex("", "../docs")},
		{get, "/problems/:slug", public, "problem", nil, nil, fiber.StatusOK, s.problemPage},
	}
}

// unmatchedRoute is the route of requests that no row takes.
var unmatchedRoute = &route{method: get, path: "unmatched", access: public, action: "none", success: fiber.StatusNotFound}

// unreadableRoute is that of requests that cannot be read: their Host may not be there.
var unreadableRoute = func() *route { rt := *unmatchedRoute; return &rt }()

func (s *Server) register() {
	s.registerHidden()
	for _, rt := range s.routes() {
		handler := func(c *fiber.Ctx) error {
			s.serve(c, &rt, rt.handle)
			return nil
		}
		s.app.Add(rt.method, rt.path, handler)
		if rt.method == fiber.MethodGet {
			s.app.Add(fiber.MethodHead, rt.path, handler)
		}
	}
}

// registerHidden has Fiber refuse the methods that a path lacks where it would take the path for that of another route, a part of
// it for a parameter: GET /v1/jobs/batch for a job that has a name.
func (s *Server) registerHidden() {
	allowed := map[string][]string{}
	for _, rt := range s.routes() {
		allowed[rt.path] = append(allowed[rt.path], rt.method)
		if rt.method == get {
			allowed[rt.path] = append(allowed[rt.path], fiber.MethodHead)
		}
	}
	for path, methods := range allowed {
		hidden := func(other string) bool {
			return other != path && hides(strings.Split(other, "/"), strings.Split(path, "/"))
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

// hides reports whether a path with parameters is also that of another one.
func hides(general, path []string) bool {
	return slices.EqualFunc(general, path, func(a, b string) bool { return a == b || strings.HasPrefix(a, ":") && b != "" })
}

// The paths for which a near one is looked for.
const (
	maxNearPath     = 256 // bytes
	maxNearSegments = 8
)

// nearPath suggests the route whose path was probably meant, "" if there is none:
// one that differs in little, or in /v1, case or a slash at the end alone.
func (s *Server) nearPath(path string) string {
	path = strings.TrimSuffix(path, "/")
	if len(path) > maxNearPath || strings.Count(path, "/") > maxNearSegments {
		return ""
	}
	for _, sent := range []string{path, "/v1" + path} {
		segments := strings.Split(sent, "/")
		for _, rt := range s.paths {
			if isNear(segments, rt) {
				return " Did you mean " + s.links.At(strings.Join(rt, "/")) + "?"
			}
		}
	}
	return ""
}

// isNear reports whether a path may be meant to be that of a route: segment by
// segment the same, or one that can be mistaken for it.
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

// segments are those of the path, parameters as the documents write them.
func (rt *route) segments() []string {
	segments := strings.Split(rt.path, "/")
	for i, name := range segments {
		if parameter, ok := strings.CutPrefix(name, ":"); ok {
			segments[i] = "{" + parameter + "}"
		}
	}
	return segments
}

// knownPaths gives the segments of each path of the API, those with the fewest parameters first.
func knownPaths(routes []route) [][]string {
	var paths [][]string
	for _, rt := range routes {
		paths = append(paths, rt.segments())
	}
	slices.SortStableFunc(paths, func(a, b []string) int { return parameters(a) - parameters(b) })
	return paths
}

func parameters(path []string) (n int) {
	for _, name := range path {
		if strings.HasPrefix(name, "{") {
			n++
		}
	}
	return n
}

// unmatched answers what Fiber found no route for: 404, or 405 with Allow, or 501 for a method that no resource has, or
// what a browser asks for a page.
func (s *Server) unmatched(c *fiber.Ctx, err error) error {
	if c.Method() == otherMethod {
		c.Response().Header.Del(fiber.HeaderAllow)
		err = problem.StatusError{
			Status: fiber.StatusNotImplemented, Cause: job.Errorf(job.CodeMethodNotAllowed, problem.UnknownMethod),
		}
	}
	if s.isPreflight(c) {
		s.serve(c, preflight, answerPreflight)
		return nil
	}
	s.serve(c, unmatchedRoute, func(*call) error { return err })
	return nil
}
