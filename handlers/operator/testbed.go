package operator

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/report"
)

// Testbed is what operators see of a test bed, and do to its sessions and its clock.
type Testbed interface {
	Sessions
	OwnedFaults(ctx context.Context, client job.ID, limit int) ([]testbed.OwnedRule, error)
	NextClock(ctx context.Context) (testbed.NextClock, error)
	MoveClock(ctx context.Context, m testbed.ClockMove) (testbed.NextClock, error)
}

// Sessions are those of all clients.
type Sessions interface {
	OwnedSessions(ctx context.Context, client, after job.ID, limit int) ([]testbed.OwnedSession, job.ID, error)
	OwnedSession(ctx context.Context, id job.ID) (testbed.OwnedSession, error)
	OwnedVerdict(ctx context.Context, id job.ID) (testbed.OwnedVerdict, error)
	StartOwned(ctx context.Context, client job.ID, n verdict.Session) (testbed.OwnedSession, error)
	EndOwned(ctx context.Context, id job.ID) (testbed.OwnedSession, error)
}

// maxRules is how many rules of faults are told.
const maxRules = 1000

// testbedRoutes are those that only a test bed has.
func (a *API) testbedRoutes() []route {
	bed := a.deps.Testbed
	if bed == nil {
		return nil
	}
	return []route{
		get("testbed/sessions", a.listSessions, withPage(clientQuery)...),
		get("testbed/sessions/{id}", one(bed.OwnedSession)),
		withBody("testbed/sessions", "start_session", "session", bodies.ForClientOf("SessionSubmission", "session"), nil, a.startSession),
		post("testbed/sessions/{id}/end", "end_session", "session", one(bed.EndOwned)),
		get("testbed/sessions/{id}/verdict", one(a.verdict)),
		get("testbed/sessions/{id}/verdict.html", a.written("text/html", report.HTML)), // the page names its encoding
		get("testbed/sessions/{id}/journal", a.written(report.JournalType, report.Journal)),
		get("testbed/faults", bounded(a.faults), clientQuery),
		get("testbed/clock", func(c *call) (answer, error) { return ok(bed.NextClock(c.Context())) }),
		withBody("testbed/clock", "move_clock", "clock", decode.ClockMove, clockDetail, a.moveClock),
	}
}

func (a *API) listSessions(c *call) (answer, error) {
	return paged(c, asIs[testbed.OwnedSession], func(after job.ID, limit int) ([]testbed.OwnedSession, job.ID, error) {
		return a.deps.Testbed.OwnedSessions(c.Context(), query.IDOf(c.param("client_id")), after, limit)
	})
}

// startSession starts a session in the name of a client, in the form of the public API.
func (a *API) startSession(c *call, asked decode.ForClient) (answer, error) {
	if _, err := a.deps.Reader.Client(c.Context(), asked.ClientID); err != nil {
		return answer{}, err
	}
	n, err := decode.Session(asked.Request, verdict.IDs())
	if err != nil {
		return answer{}, within("/session", err)
	}
	began, err := a.deps.Testbed.StartOwned(c.Context(), asked.ClientID, n)
	c.made = began.ID
	return render(http.StatusCreated, asIs[testbed.OwnedSession])(began, err)
}

// verdict hides values in the addresses that the client has asked for.
func (a *API) verdict(ctx context.Context, id job.ID) (testbed.OwnedVerdict, error) {
	v, err := a.deps.Testbed.OwnedVerdict(ctx, id)
	v.Edit(func(m *verdict.Moment) { a.cfg.Mask.hideIn(&m.Request) })
	return v, err
}

// written answers with a verdict in a form that clients get, too.
func (a *API) written(mime string, write func(io.Writer, *verdict.Verdict) error) func(*call) (answer, error) {
	return func(c *call) (answer, error) {
		v, err := a.verdict(c.Context(), c.subject)
		if err != nil {
			return answer{}, err
		}
		var text bytes.Buffer
		err = write(&text, &v.Verdict)
		return answer{status: http.StatusOK, mime: mime, body: text.Bytes()}, err
	}
}

func (a *API) faults(ctx context.Context, r admin.Range) (all admin.Bounded[testbed.OwnedRule], err error) {
	all.Data, err = a.deps.Testbed.OwnedFaults(ctx, r.ClientID, maxRules+1)
	if len(all.Data) > maxRules {
		all.Data, all.More = all.Data[:maxRules], true
	}
	return all, err
}

// clockDetail is what the audit log keeps of the request.
func clockDetail(_ *call, m testbed.ClockMove) any {
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

func (a *API) moveClock(c *call, m testbed.ClockMove) (answer, error) {
	return ok(a.deps.Testbed.MoveClock(c.Context(), m))
}
