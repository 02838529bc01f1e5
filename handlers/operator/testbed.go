package operator

import (
	"context"
	"io"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/report"
)

const maxRules = 1000

func (a *API) testbedRoutes() []httpkit.Route {
	bed := a.deps.Testbed
	if bed == nil {
		return nil
	}
	return []httpkit.Route{
		get("testbed/sessions", a.listSessions, withPage(clientQuery)...),
		get("testbed/sessions/:id", one(bed.OwnedSession)),
		withBody(a, "testbed/sessions", "start_session", "session", bodies.ForClientOf("SessionSubmission", "session"), nil, a.startSession),
		a.post("testbed/sessions/:id/end", "end_session", "session", one(bed.EndOwned)),
		get("testbed/sessions/:id/verdict", one(a.verdict)),
		get("testbed/sessions/:id/verdict.html", a.written("text/html", report.HTML)), // no charset: the page declares its encoding
		get("testbed/sessions/:id/journal", a.written(report.JournalType, report.Journal)),
		get("testbed/faults", bounded(a.faults), clientQuery),
		get("testbed/clock", func(r *httpkit.Request) error {
			next, err := bed.NextClock(r.Ctx)
			return ok(r, next, err)
		}),
		withBody(a, "testbed/clock", "move_clock", "clock", decode.ClockMove, clockDetail, a.moveClock),
	}
}

func (a *API) listSessions(r *httpkit.Request) error {
	return paged(r, httpkit.As[testbed.OwnedSession], func(after job.ID, limit int) ([]testbed.OwnedSession, job.ID, error) {
		return a.deps.Testbed.OwnedSessions(r.Ctx, query.IDOf(r.Query("client_id")), after, limit)
	})
}

func (a *API) startSession(r *httpkit.Request, asked decode.ForClient) error {
	if _, err := a.store.Client(r.Ctx, asked.ClientID); err != nil {
		return err
	}
	n, err := decode.Session(asked.Request, verdict.IDs())
	if err != nil {
		return within("/session", err)
	}
	began, err := a.deps.Testbed.StartOwned(r.Ctx, asked.ClientID, n)
	if err == nil {
		r.Made, err = job.ParseID(began.ID)
	}
	return httpkit.Respond(r, fiber.StatusCreated, httpkit.As[testbed.OwnedSession])(began, err)
}

// verdict returns a session's verdict, without the values of masked parameters in the requested URLs.
func (a *API) verdict(ctx context.Context, id job.ID) (testbed.OwnedVerdict, error) {
	v, err := a.deps.Testbed.OwnedVerdict(ctx, id)
	v.Edit(func(m *verdict.Moment) { a.cfg.Mask.hideIn(&m.Request) })
	return v, err
}

func (a *API) written(mime string, write func(io.Writer, *verdict.Verdict) error) httpkit.Handler {
	return func(r *httpkit.Request) error {
		v, err := a.verdict(r.Ctx, r.PathID())
		if err != nil {
			return err
		}
		r.Set(fiber.HeaderContentType, mime)
		return write(r.Response().BodyWriter(), &v.Verdict)
	}
}

func (a *API) faults(ctx context.Context, r admin.Range) (all admin.Bounded[testbed.OwnedRule], err error) {
	all.Data, err = a.deps.Testbed.OwnedFaults(ctx, r.ClientID, maxRules+1)
	if len(all.Data) > maxRules {
		all.Data, all.More = all.Data[:maxRules], true
	}
	return all, err
}

func clockDetail(_ *httpkit.Request, m testbed.ClockMove) any {
	detail := map[string]any{}
	switch {
	case m.Advance != nil:
		detail["advance"] = m.Advance.String()
	case m.Set != nil:
		detail["set"] = job.Time(*m.Set)
	case m.Freeze != nil:
		detail["freeze"] = *m.Freeze
	case m.Rate != nil:
		detail["rate"] = *m.Rate
	}
	return detail
}

func (a *API) moveClock(r *httpkit.Request, m testbed.ClockMove) error {
	v, err := a.deps.Testbed.MoveClock(r.Ctx, m)
	return ok(r, v, err)
}
