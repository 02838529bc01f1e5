package handlers

import "github.com/gofiber/fiber/v2"

// healthz answers as long as the process serves at all.
func (s *Server) healthz(r *call) error {
	return r.json(fiber.StatusOK, healthView{"ok"})
}

func (s *Server) readyz(r *call) error {
	ready := s.deps.Health.Ready(r.ctx)
	status := fiber.StatusOK
	if !ready.OK {
		status = fiber.StatusServiceUnavailable
		r.Set(fiber.HeaderRetryAfter, "1")
	}
	return r.json(status, ready)
}

type healthView struct {
	Status string `json:"status"`
}
