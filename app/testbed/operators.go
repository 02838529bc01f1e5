package testbed

import (
	"context"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/verdict"
)

// Operators lets operators see the test beds of all clients, and move the clock. The embedded Store lists sessions and rules.
type Operators struct {
	*repo.Store
	Bed  *Service
	Time *Clock
}

// OwnedSession returns a session of any client.
func (o *Operators) OwnedSession(ctx context.Context, id job.ID) (n testbed.OwnedSession, err error) {
	n.ClientID, n.Session, err = forOwner(ctx, o, id, o.Bed.Session)
	return n, err
}

// StartOwned starts a session of a client, with the faults of its profile.
func (o *Operators) StartOwned(ctx context.Context, client job.ID, n verdict.Session) (testbed.OwnedSession, error) {
	began, err := o.Bed.StartSession(ctx, client, n)
	return testbed.OwnedSession{ClientID: client, Session: began}, err
}

// EndOwned ends a session of any client.
func (o *Operators) EndOwned(ctx context.Context, id job.ID) (n testbed.OwnedSession, err error) {
	n.ClientID, n.Session, err = forOwner(ctx, o, id, o.Bed.EndSession)
	return n, err
}

// OwnedVerdict returns the current verdict of a session of any client.
func (o *Operators) OwnedVerdict(ctx context.Context, id job.ID) (v testbed.OwnedVerdict, err error) {
	v.ClientID, v.Verdict, err = forOwner(ctx, o, id, o.Bed.Verdict)
	return v, err
}

func forOwner[T any](ctx context.Context, o *Operators, id job.ID, do func(ctx context.Context, client, id job.ID) (T, error)) (
	owner job.ID, done T, err error,
) {
	owner, ok, err := o.OwnerOfSession(ctx, id)
	if err := found(ok, err); err != nil {
		return owner, done, err
	}
	done, err = do(ctx, owner, id)
	return owner, done, err
}

// NextClock reads the clock and the next due time.
func (o *Operators) NextClock(ctx context.Context) (testbed.NextClock, error) {
	state, err := o.Time.ClockState(ctx)
	return o.withNext(ctx, state, err)
}

// MoveClock moves the clock, and also returns the next due time.
func (o *Operators) MoveClock(ctx context.Context, m testbed.ClockMove) (testbed.NextClock, error) {
	state, err := o.Time.MoveClock(ctx, m)
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
