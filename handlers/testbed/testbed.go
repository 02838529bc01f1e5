// Package testbed handles requests about the test bed. In a test bed, a client can inject faults into its own requests and get a verdict on
// how it reacted.
package testbed

import (
	"github.com/gofiber/fiber/v2"

	beds "github.com/forgerun/forgerun/app/testbed"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/internal/fair"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/report"
)

// API handles requests about the test bed, and intercepts all other requests.
type API struct {
	*httpkit.Kit
	Testbed  *beds.Bed
	journals *fair.Semaphore[job.ID] // limits how many journals are sent at the same time
}

// New returns the API and makes it the kit's interceptor.
func New(kit *httpkit.Kit, bed *beds.Bed) *API {
	s := &API{kit, bed, fair.New[job.ID](journalsAtOnce)}
	kit.Interceptor = s
	return s
}

const (
	sessionsPath = "/v1/testbed/sessions"
	faultsPath   = "/v1/testbed/faults"
	clockPath    = "/v1/testbed/clock"
	resetPath    = "/v1/testbed/reset"
)

// Routes returns the routes of a test bed. Requests about sessions and the clock accept an expired key. A move of the clock may let all
// keys expire, and the client must still be able to end its session.
func (s *API) Routes() []httpkit.Route {
	const get, post, put, remove = httpkit.Get, httpkit.Post, httpkit.Put, httpkit.Delete
	const client, expired = httpkit.ClientKey, httpkit.ExpiredKey
	session := httpkit.ByID(s.Testbed.Session, httpkit.As[verdict.Session])
	end := httpkit.Once(httpkit.Bodyless(httpkit.ByID(s.Testbed.EndSession, httpkit.As[verdict.Session])))
	rule := httpkit.Row(get, faultsPath+"/:id", client, "get_fault", fiber.StatusOK, s.inSession(s.showFault))
	rule.Hidden = true
	return []httpkit.Route{
		rule,
		httpkit.Row(post, sessionsPath, expired, "start_session", fiber.StatusCreated, httpkit.Once(s.startSession)),
		httpkit.Row(get, sessionsPath, expired, "list_sessions", fiber.StatusOK, s.listSessions, labelQuery...),
		httpkit.Row(get, sessionsPath+"/:id", expired, "get_session", fiber.StatusOK, session),
		httpkit.Row(post, sessionsPath+"/:id/end", expired, "end_session", fiber.StatusOK, end),
		httpkit.Row(get, sessionsPath+"/:id/verdict", expired, "get_verdict", fiber.StatusOK, s.getVerdict).As(asVerdict...),
		httpkit.Row(get, sessionsPath+"/:id/journal", expired, "get_journal", fiber.StatusOK, s.getJournal).
			As(report.JournalType, httpkit.ProblemMedia),
		httpkit.Row(put, faultsPath, client, "replace_faults", fiber.StatusOK, s.replaceFaults),
		httpkit.Row(get, faultsPath, client, "list_faults", fiber.StatusOK, s.inSession(s.listFaults)),
		httpkit.Row(remove, faultsPath, client, "remove_faults", fiber.StatusNoContent, httpkit.Bodyless(s.inSession(s.removeFaults))),
		httpkit.Row(remove, faultsPath+"/:id", client, "remove_fault", fiber.StatusNoContent, httpkit.Bodyless(s.inSession(s.removeFault))),
		httpkit.Row(post, resetPath, client, "reset", fiber.StatusOK, httpkit.Once(httpkit.Bodyless(s.reset))),
		httpkit.Row(post, "/v1/testbed/fixtures", client, "make_fixtures", fiber.StatusCreated, s.makeFixtures),
		httpkit.Row(get, clockPath, expired, "get_clock", fiber.StatusOK, s.getClock),
		httpkit.Row(post, clockPath, expired, "move_clock", fiber.StatusOK, httpkit.Once(s.moveClock)),
	}
}

type visit struct {
	*httpkit.Request
	session   testbed.Scope // session of the request, cached; zero until it is looked up
	fault     *fault.Effect // fault to apply; nil: none
	slowFault func()        // releases the slot of a slow response; nil: none
	hungUp    bool          // the client hung up during a delay

	// From the request's body, for the record: hash, idempotency key and correlation id.
	bodySum, bodyKey, bodyCorrelation string
}

const visitKey = "testbed"

func visitOf(r *httpkit.Request) *visit {
	v, ok := r.Locals(visitKey).(*visit)
	if !ok {
		v = &visit{Request: r}
		r.Locals(visitKey, v)
	}
	return v
}

func (s *API) reset(r *httpkit.Request) error {
	show := func(removed map[string]int) any { return map[string]any{"removed": removed} }
	return httpkit.Respond(r, fiber.StatusOK, show)(s.Testbed.Reset(r.Ctx, r.Caller.ClientID))
}

// makeFixtures submits jobs, each with a key derived from the Idempotency-Key.
func (s *API) makeFixtures(r *httpkit.Request) error {
	key, err := r.IdempotencyKey()
	if err != nil {
		return err
	}
	wanted, err := httpkit.Decoded(r, false, decode.Fixtures)
	if err != nil {
		return err
	}
	from, err := r.Provenance()
	if err != nil {
		return err
	}
	if _, err := s.session(r.Ctx, visitOf(r), r.Caller.ClientID); err != nil { // assigns the jobs to the session
		return err
	}
	req := job.Request{ClientID: r.Caller.ClientID, RequestID: r.ID, ReceivedAt: s.ReceivedAt(), IdempotencyKey: key}
	from.Complete(&req)
	show := func(made []testbed.Made) any { return map[string]any{"jobs": made} }
	return httpkit.Respond(r, fiber.StatusCreated, show)(s.Testbed.MakeFixtures(r.Ctx, req, wanted))
}

func (s *API) getClock(r *httpkit.Request) error {
	return httpkit.Respond(r, fiber.StatusOK, httpkit.As[testbed.ClockState])(s.Testbed.ClockState(r.Ctx))
}

func (s *API) moveClock(r *httpkit.Request) error {
	m, err := httpkit.Decoded(r, false, decode.ClockMove)
	if err != nil {
		return err
	}
	return httpkit.Respond(r, fiber.StatusOK, httpkit.As[testbed.ClockState])(s.Testbed.MoveClock(r.Ctx, m))
}
