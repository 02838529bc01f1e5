package handlers

import (
	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/report"
	"github.com/forgerun/forgerun/verdict"
)

const sessionsPath = "/v1/testbed/sessions"

// sessionRoutes are those by which clients have their traffic judged.
func (s *Server) sessionRoutes() []route {
	return []route{
		{fiber.MethodPost, sessionsPath, client, "start_session", nil, asJSON, fiber.StatusCreated, s.once(s.startSession)},
		{get, sessionsPath, client, "list_sessions", nil, asJSON, fiber.StatusOK, s.listSessions},
		{get, sessionsPath + "/:id", client, "get_session", nil, asJSON, fiber.StatusOK, s.getSession},
		{fiber.MethodPost, sessionsPath + "/:id/end", client, "end_session", nil, asJSON, fiber.StatusOK, s.once(noBody(s.endSession))},
		{get, sessionsPath + "/:id/verdict", client, "get_verdict", nil, asVerdict, fiber.StatusOK, s.getVerdict},
	}
}

func (s *Server) startSession(r *call) error {
	body, err := r.body(true)
	if err != nil {
		return err
	}
	n, err := decode.Session(body, verdict.IDs())
	if err != nil {
		return err
	}
	began, err := s.deps.Testbed.StartSession(r.ctx, r.caller.ClientID, n)
	if err != nil {
		return err
	}
	r.Set(fiber.HeaderLocation, s.links.At(sessionsPath+"/"+began.ID))
	return r.json(fiber.StatusCreated, began)
}

func (s *Server) listSessions(r *call) error {
	return respond(r, fiber.StatusOK, func(all []verdict.Session) listView[verdict.Session] {
		return listView[verdict.Session]{Data: append([]verdict.Session{}, all...), Page: pageView{Limit: verdict.MaxSessions + 1}}
	})(s.deps.Testbed.Sessions(r.ctx, r.caller.ClientID))
}

func (s *Server) getSession(r *call) error {
	return respond(r, fiber.StatusOK, as[verdict.Session])(s.deps.Testbed.Session(r.ctx, r.caller.ClientID, r.pathID()))
}

func (s *Server) endSession(r *call) error {
	return respond(r, fiber.StatusOK, as[verdict.Session])(s.deps.Testbed.EndSession(r.ctx, r.caller.ClientID, r.pathID()))
}

// asVerdict are the forms of a verdict.
var asVerdict = []string{fiber.MIMEApplicationJSON, mimeProblem, fiber.MIMEApplicationXML, fiber.MIMETextHTML}

// getVerdict answers in the form that the client prefers: JSON, JUnit XML, or a page.
func (s *Server) getVerdict(r *call) error {
	v, err := s.deps.Testbed.Verdict(r.ctx, r.caller.ClientID, r.pathID())
	if err != nil {
		return err
	}
	accept := r.list(fiber.HeaderAccept)
	r.Response().ResetBody()
	switch {
	case header.Prefers(accept, fiber.MIMETextHTML, fiber.MIMEApplicationJSON):
		r.Set(fiber.HeaderContentType, fiber.MIMETextHTML) // the page names its encoding
		return report.HTML(r.Response().BodyWriter(), &v)
	case header.Prefers(accept, fiber.MIMEApplicationXML, fiber.MIMEApplicationJSON):
		r.Set(fiber.HeaderContentType, fiber.MIMEApplicationXML)
		return report.JUnit(r.Response().BodyWriter(), &v)
	}
	return r.json(fiber.StatusOK, v)
}

// as shows a value as it is.
func as[T any](v T) T { return v }
