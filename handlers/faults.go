package handlers

import (
	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/verdict/fault"
)

func faultViews(rules []fault.Counted) query.List[fault.View] {
	return query.ListOf(rules, fault.MaxRules, fault.ViewOf)
}

func (s *Server) replaceFaults(r *call) error {
	body, err := r.body(true)
	if err != nil {
		return err
	}
	f, err := decode.FaultRules(body, operations())
	if err != nil {
		return err
	}
	of, err := s.session(r.ctx, r, r.caller.ClientID)
	if err != nil {
		return err
	}
	return respond(r, fiber.StatusOK, faultViews)(s.deps.Testbed.ReplaceFaults(r.ctx, of, f.Seed, f.Rules, f.Profile))
}

func (s *Server) listFaults(r *call) error {
	return respond(r, fiber.StatusOK, faultViews)(s.faults(r))
}

// faults are the rules of the session that the header names, or of the one without a label.
func (s *Server) faults(r *call) ([]fault.Counted, error) {
	of, err := s.session(r.ctx, r, r.caller.ClientID)
	if err != nil {
		return nil, err
	}
	return s.deps.Testbed.Faults(r.ctx, of)
}

func (s *Server) removeFaults(r *call) error {
	r.Status(fiber.StatusNoContent)
	of, err := s.session(r.ctx, r, r.caller.ClientID)
	if err != nil {
		return err
	}
	return s.deps.Testbed.RemoveFaults(r.ctx, of)
}

func (s *Server) removeFault(r *call) error {
	r.Status(fiber.StatusNoContent)
	of, err := s.session(r.ctx, r, r.caller.ClientID)
	if err != nil {
		return err
	}
	return s.deps.Testbed.RemoveFault(r.ctx, of, r.pathID())
}
