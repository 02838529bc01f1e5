package handlers

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Testbed are the use cases of a test bed, by which clients disturb their own traffic.
type Testbed interface {
	ReplaceFaults(ctx context.Context, of testbed.Scope, seed int64, rules []fault.Rule, p fault.Profile) ([]fault.Counted, error)
	Faults(ctx context.Context, of testbed.Scope) ([]fault.Counted, error)
	RemoveFaults(ctx context.Context, of testbed.Scope) error
	RemoveFault(ctx context.Context, of testbed.Scope, id job.ID) error
	// Fault counts a request and returns what is to be done to it, nil for nothing.
	Fault(ctx context.Context, of testbed.Scope, operation, subject string) (*fault.Effect, error)

	// Reset removes what a client has, and gives the numbers of rows by table.
	Reset(ctx context.Context, client job.ID) (map[string]int, error)
	// MakeFixtures makes jobs by a request, and returns when each is in its state.
	MakeFixtures(ctx context.Context, r job.Request, wanted []testbed.Fixture) ([]testbed.Made, error)

	StartSession(ctx context.Context, client job.ID, n verdict.Session) (verdict.Session, error)
	// Enter gives the session of a request with a label, and of the jobs that it makes; a request that makes none is "".
	Enter(ctx context.Context, client job.ID, label, request string) (testbed.Scope, error)
	Sessions(ctx context.Context, client job.ID, label *string) ([]verdict.Session, error) // nil: with any or none
	Session(ctx context.Context, client, id job.ID) (verdict.Session, error)
	EndSession(ctx context.Context, client, id job.ID) (verdict.Session, error)
	Verdict(ctx context.Context, client, id job.ID) (verdict.Verdict, error)

	ClockState(ctx context.Context) (testbed.ClockState, error)
	// MoveClock returns when the jobs that have become due are QUEUED.
	MoveClock(ctx context.Context, m testbed.ClockMove) (testbed.ClockState, error)

	// Record records a request in its session, if there is one.
	Record(ctx context.Context, of testbed.Scope, x *verdict.Exchange) error
}

const (
	faultsPath = "/v1/testbed/faults"
	clockPath  = "/v1/testbed/clock"
	resetPath  = "/v1/testbed/reset"
)

// testbedRoutes are those that only a test bed has.
func (s *Server) testbedRoutes() []route {
	if s.deps.Testbed == nil {
		return nil
	}
	return append(s.sessionRoutes(), []route{
		{fiber.MethodPut, faultsPath, client, "replace_faults", nil, asJSON, fiber.StatusOK, s.replaceFaults},
		{get, faultsPath, client, "list_faults", nil, asJSON, fiber.StatusOK, s.listFaults},
		{fiber.MethodDelete, faultsPath, client, "remove_faults", nil, asJSON, fiber.StatusNoContent, noBody(s.removeFaults)},
		{fiber.MethodPost, resetPath, client, "reset", nil, asJSON, fiber.StatusOK, s.once(noBody(s.reset))},
		{fiber.MethodPost, "/v1/testbed/fixtures", client, "make_fixtures", nil, asJSON, fiber.StatusCreated, s.makeFixtures},
		{get, clockPath, client, "get_clock", nil, asJSON, fiber.StatusOK, s.getClock},
		{fiber.MethodPost, clockPath, client, "move_clock", nil, asJSON, fiber.StatusOK, s.once(s.moveClock)},
		{fiber.MethodDelete, faultsPath + "/:id", client, "remove_fault", nil, asJSON, fiber.StatusNoContent,
			noBody(s.removeFault)},
	}...)
}

// resetView says what was removed.
type resetView struct {
	Removed map[string]int `json:"removed"`
}

func (s *Server) reset(r *call) error {
	view := func(removed map[string]int) resetView { return resetView{removed} }
	return respond(r, fiber.StatusOK, view)(s.deps.Testbed.Reset(r.ctx, r.caller.ClientID))
}

// fixtureView is a job that was made for a test.
type fixtureView struct {
	JobID   job.ID               `json:"job_id"`
	Fixture testbed.FixtureState `json:"fixture"`
	State   job.State            `json:"state"`
}

type fixturesView struct {
	Jobs []fixtureView `json:"jobs"`
}

func fixtureViews(made []testbed.Made) (v fixturesView) {
	for _, m := range made {
		v.Jobs = append(v.Jobs, fixtureView(m))
	}
	return v
}

// makeFixtures honours Idempotency-Key by its submissions: each has a key that is derived from it.
func (s *Server) makeFixtures(r *call) error {
	key, err := r.headerKey()
	if err != nil {
		return err
	}
	wanted, err := decoded(r, false, decode.Fixtures)
	if err != nil {
		return err
	}
	from, err := s.provenance(r)
	if err != nil {
		return err
	}
	if _, err := s.session(r.ctx, r, r.caller.ClientID); err != nil { // which the jobs belong to
		return err
	}
	req := job.Request{ClientID: r.caller.ClientID, RequestID: r.idText, ReceivedAt: s.receivedAt(), IdempotencyKey: key}
	from.complete(&req)
	return respond(r, fiber.StatusCreated, fixtureViews)(s.deps.Testbed.MakeFixtures(r.ctx, req, wanted))
}

func (s *Server) getClock(r *call) error {
	return respond(r, fiber.StatusOK, as[testbed.ClockState])(s.deps.Testbed.ClockState(r.ctx))
}

func (s *Server) moveClock(r *call) error {
	m, err := decoded(r, false, decode.ClockMove)
	if err != nil {
		return err
	}
	return respond(r, fiber.StatusOK, as[testbed.ClockState])(s.deps.Testbed.MoveClock(r.ctx, m))
}
