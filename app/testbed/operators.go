package testbed

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
)

// OwnersStore reads what the clients of a test bed have, whosever it is.
type OwnersStore interface {
	OwnedSessions(ctx context.Context, client, after job.ID, limit int) ([]testbed.OwnedSession, job.ID, error) // the zero client: of all
	OwnerOfSession(ctx context.Context, id job.ID) (owner job.ID, found bool, err error)
	OwnedFaults(ctx context.Context, client job.ID, limit int) ([]testbed.OwnedRule, error)
	NextDue(ctx context.Context) (*time.Time, error)
}

// Operators is what operators see of a test bed, and do to its clock.
type Operators struct {
	OwnersStore
	sessions *Service
	clock    *Clock
}

// NewOperators makes the use cases.
func NewOperators(store OwnersStore, sessions *Service, clock *Clock) *Operators {
	return &Operators{store, sessions, clock}
}

// OwnedSession finds a session of any client.
func (o *Operators) OwnedSession(ctx context.Context, id job.ID) (n testbed.OwnedSession, err error) {
	if n.ClientID, err = o.ownerOf(ctx, id); err == nil {
		n.Session, err = o.sessions.Session(ctx, n.ClientID, id)
	}
	return n, err
}

// StartOwned starts a session of a client, with the faults of its profile.
func (o *Operators) StartOwned(ctx context.Context, client job.ID, n verdict.Session) (testbed.OwnedSession, error) {
	began, err := o.sessions.StartSession(ctx, client, n)
	return testbed.OwnedSession{ClientID: client, Session: began}, err
}

// EndOwned ends a session of any client.
func (o *Operators) EndOwned(ctx context.Context, id job.ID) (n testbed.OwnedSession, err error) {
	if n.ClientID, err = o.ownerOf(ctx, id); err == nil {
		n.Session, err = o.sessions.EndSession(ctx, n.ClientID, id)
	}
	return n, err
}

// OwnedVerdict judges a session of any client so far.
func (o *Operators) OwnedVerdict(ctx context.Context, id job.ID) (v testbed.OwnedVerdict, err error) {
	if v.ClientID, err = o.ownerOf(ctx, id); err == nil {
		v.Verdict, err = o.sessions.Verdict(ctx, v.ClientID, id)
	}
	return v, err
}

func (o *Operators) ownerOf(ctx context.Context, id job.ID) (job.ID, error) {
	owner, ok, err := o.OwnerOfSession(ctx, id)
	return owner, found(ok, err)
}

// NextClock reads the clock, and when something becomes due next.
func (o *Operators) NextClock(ctx context.Context) (testbed.NextClock, error) {
	state, err := o.clock.ClockState(ctx)
	return o.withNext(ctx, state, err)
}

// MoveClock moves the clock as a client would.
func (o *Operators) MoveClock(ctx context.Context, m testbed.ClockMove) (testbed.NextClock, error) {
	state, err := o.clock.MoveClock(ctx, m)
	return o.withNext(ctx, state, err)
}

func (o *Operators) withNext(ctx context.Context, state testbed.ClockState, err error) (testbed.NextClock, error) {
	c := testbed.NextClock{ClockState: state}
	if err != nil {
		return c, err
	}
	at, err := o.NextDue(ctx)
	c.NextDueAt = job.TimeOf(at)
	return c, err
}
