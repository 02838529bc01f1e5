package handlers

import (
	"github.com/gofiber/fiber/v2"
)

// access says whose requests a route takes. It is the only authorisation in
// this package; whose job or client it is, the use cases decide.
type access int

const (
	public       access = iota // everyone; nobody is asked
	registration               // credentials are optional, the use case decides
	account                    // a client's key or the operator's token
	client                     // a client's key
)

// route is one row of the table.
type route struct {
	method, path string
	access       access
	action       string // in logs
	query        string // the one query parameter that it knows, "" for none
	handle       func(*call) error
}

// routes is the whole HTTP surface. Fiber gets it row by row, and derives 404
// and 405 with Allow from it.
func (s *Server) routes() []route {
	return []route{
		{fiber.MethodPost, "/v1/clients", registration, "create_client", "", s.createClient},
		{fiber.MethodPost, "/v1/clients/:id/keys", registration, "create_key", "", s.createKey},
		{fiber.MethodPost, "/v1/clients/:id/keys/renew", account, "renew_key", "", s.renewKey},
		{fiber.MethodPost, "/v1/clients/:id/keys/revoke", account, "revoke_key", "", s.revokeKey},

		{fiber.MethodPost, "/v1/jobs", client, "submit", "", s.submit},
		{fiber.MethodGet, "/v1/jobs/:id", client, "get", "", s.getJob},
		{fiber.MethodPost, "/v1/jobs/:id/cancel", client, "cancel", "", s.cancelJob},
		{fiber.MethodPost, "/v1/jobs/:id/retry", client, "retry", "", s.retryJob},
		{fiber.MethodGet, "/v1/jobs/:id/report", client, "report", "attempt", s.getReport},
		{fiber.MethodGet, "/v1/jobs/:id/attempts/:n", client, "attempt", "", s.getAttempt},

		{fiber.MethodGet, "/healthz", public, "health", "", s.healthz},
		{fiber.MethodGet, "/readyz", public, "ready", "", s.readyz},
		{fiber.MethodGet, "/problems/", public, "problems", "", s.problemPage},
		{fiber.MethodGet, "/problems/:slug", public, "problem", "", s.problemPage},
	}
}

// nowhere is the route of requests that no row takes.
var nowhere = &route{path: "unmatched", access: public, action: "none"}

func (s *Server) register() {
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

// unmatched answers what Fiber found no route for: 404, or 405 with Allow.
func (s *Server) unmatched(c *fiber.Ctx, err error) error {
	s.serve(c, nowhere, func(*call) error { return err })
	return nil
}
