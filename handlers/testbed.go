package handlers

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/disturb"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/wire"
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

// operations are those that a rule may name.
var operations = sync.OnceValue(func() (names []string) {
	for at, name := range docs.Operations() {
		if _, path, _ := strings.Cut(at, " "); strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/v1/testbed/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
})

// operation is the operationId of the request in the OpenAPI document.
func (rt *route) operation() string {
	return docs.Operations()[rt.method+" "+strings.Join(rt.segments(), "/")]
}

// headerFault asks for an effect on the one request that carries it.
const headerFault = "ForgeRun-Fault"

// injected is the error of a request that a client wanted to fail so.
type injected struct{ wanted *job.Error }

func (e injected) Error() string { return e.wanted.Error() }

// findFault notes what a test bed is to do to the request: what its header says, or else the client's rules.
func (s *Server) findFault(r *call) error {
	if s.deps.Testbed == nil || r.caller.ClientID.IsZero() || strings.HasPrefix(r.route.path, "/v1/testbed/") {
		return nil
	}
	of, err := s.session(r.ctx, r, r.caller.ClientID)
	if err != nil {
		return err
	}
	if left := r.leftFault(); left != nil {
		r.fault = left
		return nil
	}
	if text := r.Request().Header.Peek(headerFault); len(text) > 0 {
		e, err := decode.Fault(text)
		if err != nil {
			return inHeader(headerFault, err)
		}
		r.fault = &e
		return nil
	}
	r.fault, err = s.deps.Testbed.Fault(r.ctx, of, r.route.operation(), r.subject())
	return err
}

// subject names what the request is about. Without a key it reads the body, unless that is announced as a large one, which may be
// refused unread: then its length stands for it. The handler reports what is wrong with the body.
func (r *call) subject() string {
	key, body := r.Request().Header.Peek("Idempotency-Key"), r.Request().Header.Peek(fiber.HeaderContentLength)
	if len(key) == 0 && r.Request().Header.ContentLength() <= smallBody {
		body, _ = r.readBody()
	}
	return fault.Subject(r.Method(), string(r.Request().URI().Path()), key, body)
}

// inHeader says that it is the header which is wrong.
func inHeader(name string, err error) error {
	if known, ok := errors.AsType[*job.Error](err); ok {
		wrong := *known
		wrong.Detail = "The header " + name + ": " + known.Detail
		return &wrong
	}
	return err
}

// disturb does what comes before the work, or instead of it; done says that the request has its answer.
func (s *Server) disturb(r *call) (done bool, err error) {
	if err := s.findFault(r); err != nil || r.fault == nil {
		return false, err
	}
	e := r.fault
	r.leaveFault()
	if e.Wait() > 0 || e.SlowBytes > 0 {
		if err := s.slow(r, e.Wait()); err != nil {
			return false, err
		}
	}
	if e.Replaces() && r.Request().BodyStream() != nil {
		_, _ = r.readBody() // for the record; that it is wrong is not what the client wanted to hear
	}
	switch {
	case e.Unanswered():
		return true, nil
	case e.Moved != 0:
		r.Set(fiber.HeaderLocation, s.links.At(string(r.Request().URI().RequestURI())))
		r.Status(e.Moved)
		return true, nil
	case e.HTML:
		r.Set(fiber.HeaderContentType, fiber.MIMETextHTML)
		r.setRetryAfter(e)
		status := cmp.Or(e.Status, fiber.StatusBadGateway)
		return true, r.Status(status).Send(wire.Page(status))
	case e.Replaces():
		refusal := &job.Error{Code: testbed.ErrorOf(e)}
		if e.RetryAfter != nil {
			refusal.RetryAfter = time.Duration(*e.RetryAfter) * time.Second
		}
		return true, injected{refusal}
	}
	return false, nil
}

// slow takes a place among what the client holds open, until the answer is sent, and keeps the client waiting for so long, or until it
// hangs up. The request's time begins anew afterwards, and its key must still be good.
func (s *Server) slow(r *call, d time.Duration) error {
	release, err := s.limiter.Acquire(r.caller.ClientID)
	if err != nil {
		r.fault = nil
		return err
	}
	r.slowFault = release
	if d == 0 {
		return nil
	}
	if _, err := r.readBody(); err != nil { // what is read to its end shows that the client hangs up
		return err
	}
	gone := make(chan struct{})
	if c, ok := r.Context().Conn().(*conn.Conn); ok {
		defer c.WhenGone(func() { close(gone) })()
	}
	select {
	case <-time.After(d):
	case <-gone:
		r.hungUp = true
	case <-s.limiter.Context().Done():
	}
	s.startTime(r)
	return s.authenticateAgain(r)
}

// finishFault does what comes after the work. record is for an answer that is sent slowly.
func (s *Server) finishFault(r *call, record func(hungUp bool)) {
	if r.fault != nil && r.fault.Refuse > 0 {
		s.refuseConnections(r)
	}
	if r.fault != nil && !r.streams { // those have theirs disturbed on their way
		if r.failed != nil {
			r.setRetryAfter(r.fault)
		}
		disturb.Answer(s.limiter.Context(), r.fault, r.Context(), record)
	}
	if r.slowFault == nil {
		return
	}
	c, ok := r.Context().Conn().(*conn.Conn)
	if !ok || r.streams || r.fault == nil || r.fault.SlowBytes == 0 {
		r.slowFault()
		return
	}
	c.OnClose.Store(&r.slowFault) // the connection ends with the slow answer
}

func (r *call) setRetryAfter(e *fault.Effect) {
	if e.RetryAfter != nil {
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(*e.RetryAfter))
	}
}
