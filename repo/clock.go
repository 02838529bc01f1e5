package repo

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
)

// clockInterval is how often a process asks for Postgres' time that does not learn it from its work.
const clockInterval = 5 * time.Second

// Now is Postgres' time, as far as it is known without asking: what is accepted by it
// is due by it, whatever the clock of this machine shows. Until Postgres has
// answered once it is this machine's.
func (s *Store) Now() time.Time {
	if now, known := s.order.clock.now(); known {
		return s.serviceTime(now)
	}
	return s.serviceTime(time.Now())
}

// FollowClock keeps Now near Postgres' clock until ctx ends, also where nothing is
// stored: requests may be refused for their time alone.
func (s *Store) FollowClock(ctx context.Context) {
	every(ctx, clockInterval, func() { _, _ = s.ReadClock(ctx) }) // without an answer the last one counts on
}

// every calls do at once, and then at intervals until ctx ends.
func every(ctx context.Context, interval time.Duration, do func()) {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		do()
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

// ReadClock asks Postgres for its time.
func (s *Store) ReadClock(ctx context.Context) (time.Time, error) {
	before, known := s.order.clock.now()
	server, err := queryValue[time.Time](ctx, s, `SELECT pg_catalog.clock_timestamp()`)
	if err == nil {
		s.order.clock.observe(server, time.Now(), known && server.Before(before))
	}
	return server, err
}

// MoveStrandedJobs looks at so many jobs after the cursor that wait for a time to
// come, and moves those that wait only because Postgres' clock was ahead when
// they were queued. last is where to go on, zero when there are no more.
func (s *Store) MoveStrandedJobs(ctx context.Context, after job.QueueCursor, look int) (moved int, last job.QueueCursor, err error) {
	type seen struct {
		job.QueueCursor
		Looked, Moved int
	}
	got, err := queryOne(ctx, s, nil, pgx.RowToStructByPos[seen], statement("moveStrandedJobs"), after.RunAt, [16]byte(after.JobID), look)
	if got.Looked < look {
		got.QueueCursor = job.QueueCursor{}
	}
	return got.Moved, got.QueueCursor, err
}

// MoveStrandedDeliveries does the same for at most limit deliveries of so many
// endpoints after the cursor.
func (s *Store) MoveStrandedDeliveries(ctx context.Context, after job.EndpointKey, look, limit int) (
	moved int, last job.EndpointKey, err error,
) {
	got, err := queryOne(ctx, s, nil, pgx.RowToStructByPos[endpointWalk], statement("moveStrandedDeliveries"),
		[16]byte(after.Client), [16]byte(after.Endpoint), look, limit)
	return got.Changed, got.next(after, look, limit), err
}

// claimsAtOnce is how many claims of deliveries one statement shortens.
const claimsAtOnce = 5000

// EndStrandedLeases shortens leases of workers, and claims of deliveries, that last
// longer than any does.
func (s *Store) EndStrandedLeases(ctx context.Context) error {
	return s.exec(ctx, "end stranded leases", statement("endStrandedLeases"), claimsAtOnce)
}

// learnClock asks for Postgres' time if nothing is known of it. If there is no answer,
// nor will there be one to a flush.
func (s *Store) learnClock() {
	s.order.learning.Lock()
	defer s.order.learning.Unlock()
	if _, known := s.order.clock.now(); !known {
		_, _ = s.ReadClock(context.Background())
	}
}

// clockMemory is for how long an observation of Postgres' clock counts, at least.
const clockMemory = 10 * time.Second

// serverClock estimates Postgres' clock without asking it: never ahead of it, and
// behind by the shortest way of an answer in the last seconds.
type serverClock struct {
	mu            sync.Mutex
	base          time.Time // a moment of this process; its monotonic clock is what counts
	known         bool
	offset, older time.Duration // of Postgres' clock, at least, since rotated and in the clockMemory before
	rotated       time.Time
}

func (c *serverClock) now() (t time.Time, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return time.Time{}, false
	}
	// Not time.Now().Add: its wall clock may be set.
	return c.base.Add(time.Since(c.base) + max(c.offset, c.older)), true
}

// observe learns that Postgres' clock showed server, at the latest when the answer
// was received. A clock that was set back makes earlier observations worthless.
func (c *serverClock) observe(server, received time.Time, setBack bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base.IsZero() {
		c.base = received
	}
	offset := server.Round(0).Sub(c.base.Round(0)) - received.Sub(c.base)
	switch {
	case !c.known || setBack:
		c.known, c.offset, c.older, c.rotated = true, offset, offset, received
	case received.Sub(c.rotated) > clockMemory:
		c.offset, c.older, c.rotated = offset, c.offset, received
	default:
		c.offset = max(c.offset, offset)
	}
}

// When a transition was due, by columns of its row: a claim at the job's time, a start at once, an end when the work
// ended. See testbed.moment in the schema. Work that was done is never recorded as shorter than it was: its worker may have heard a
// moment later than Postgres that the clock was slowed down.
const (
	stepMoment = `greatest(testbed.moment(CASE next WHEN 'ASSIGNED' THEN run_at WHEN 'RUNNING' THEN updated_at ELSE ended_at END), ` +
		`CASE WHEN next NOT IN ('ASSIGNED', 'RUNNING') THEN ended_at END)`
	emitMoment = `testbed.moment(due)`
	dueMoment  = `testbed.moment(execution_at)`
)

const (
	// moveInterval is how often a process of a test bed looks whether the clock was moved: all of them agree within that
	// and the time of an answer.
	moveInterval = 50 * time.Millisecond
	// settleTime is by how much later a clock is frozen or slowed down than it was asked for: statements that are under
	// way have the faster one, and what they write must not lie ahead of the new one.
	settleTime = 200 * time.Millisecond
	movesKept  = 10_000
)

// serviceTime is the service's time when Postgres' clock shows real.
func (s *Store) serviceTime(real time.Time) time.Time { return s.cfg.Clock.Setting().At(real) }

// FollowClockMoves keeps Config.Clock as Postgres has it, until ctx ends. Without an answer the latest one counts on.
func (s *Store) FollowClockMoves(ctx context.Context) {
	every(ctx, moveInterval, func() { _, _ = s.ReadClockMove(ctx) })
}

// clockMove is the latest move of the clock, with the time of Postgres' own.
type clockMove struct {
	clock.Setting
	rate   float64 // while it is not frozen
	frozen bool
	server time.Time
}

func (m clockMove) state() testbed.ClockState {
	return testbed.ClockState{Now: job.Time(m.At(m.server).UTC()), Rate: m.rate, Frozen: m.frozen}
}

func scanClockMove(row pgx.CollectableRow) (m clockMove, err error) {
	err = row.Scan(&m.Number, &m.Real, &m.Time, &m.rate, &m.frozen, &m.server)
	if !m.frozen {
		m.Rate = m.rate
	}
	return m, err
}

// ReadClockMove reads how the clock was moved, and tells Config.Clock.
func (s *Store) ReadClockMove(ctx context.Context) (testbed.ClockState, error) {
	m, err := s.readClockMove(ctx)
	return m.state(), err
}

// readClockMove takes Postgres' clock for what it showed at the latest: a process of a test bed is never ahead of it, so what it
// waits for has come by Postgres' clock, too.
func (s *Store) readClockMove(ctx context.Context) (clockMove, error) {
	m, err := queryOne(ctx, s, nil, scanClockMove, statement("readClockMove"))
	if err == nil {
		s.cfg.Clock.Set(m.Setting, time.Until(m.server))
	}
	return m, err
}

// MoveClock moves the clock from the state that it has to the one that move makes of it, and gives that. Moves come one
// after the other. settle is to be called when it is committed; then Config.Clock learns of it.
func (s *Store) MoveClock(ctx context.Context, move func(testbed.ClockState) (testbed.ClockState, error)) (
	moved testbed.ClockState, settle func(context.Context) (testbed.ClockState, error), err error,
) {
	var before, after clockMove
	err = s.inTx(ctx, "testbed", func(ctx context.Context, tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, statement("lockClock")); err != nil {
			return err
		}
		if before, _, err = first(rowsIn(ctx, tx, scanClockMove, statement("readClockMove"))); err != nil {
			return err
		}
		wanted, err := move(before.state())
		if err != nil {
			return err
		}
		var arguments []any
		after, arguments = before.to(wanted)
		if _, err := tx.Exec(ctx, statement("forgetMoves"), after.Number-movesKept); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, statement("moveClock"), arguments...)
		return err
	})
	if err != nil {
		return testbed.ClockState{}, nil, err
	}
	return after.state(), func(ctx context.Context) (testbed.ClockState, error) { return s.settleClock(ctx, before, after) }, nil
}

// settleClock looks whether a move that was to freeze or slow the clock was committed too late, because this process or Postgres
// was held up: then the faster one has shown times meanwhile to which the clock is moved on, so that it has not gone backwards.
func (s *Store) settleClock(ctx context.Context, before, after clockMove) (testbed.ClockState, error) {
	now, err := s.readClockMove(ctx)
	if err != nil || now.Number != after.Number || !now.server.After(after.Real) || after.Rate >= before.effectiveRate() {
		return now.state(), err
	}
	shown := before.At(now.server)
	if !shown.After(now.At(now.server)) { // it has jumped further
		return now.state(), nil
	}
	state, _, err := s.MoveClock(ctx, func(c testbed.ClockState) (testbed.ClockState, error) {
		if time.Time(c.Now).Before(shown) {
			c.Now = job.Time(shown)
		}
		return c, nil
	})
	if err == nil {
		state, err = s.ReadClockMove(ctx)
	}
	return state, err
}

// to makes the next move: what the arguments of moveClock are.
func (m clockMove) to(wanted testbed.ClockState) (next clockMove, arguments []any) {
	next = clockMove{rate: wanted.Rate, frozen: wanted.Frozen, server: m.server}
	if !wanted.Frozen {
		next.Rate = wanted.Rate
	}
	jump, wait := time.Time(wanted.Now).Sub(time.Time(m.state().Now)), time.Duration(0)
	if jump < settleTime && next.Rate < m.effectiveRate() {
		wait = settleTime
	}
	next.Number, next.Real = m.Number+1, m.server.Add(wait)
	next.Time = m.At(next.Real).Add(jump)
	return next, []any{next.Number, jump, wait, m.effectiveRate(), wanted.Rate, wanted.Frozen}
}

// effectiveRate is that of the setting, 1 for a clock that was never moved.
func (m clockMove) effectiveRate() float64 {
	if !m.Moved() {
		return 1
	}
	return m.Rate
}

// AnyDue reports whether a job is still CREATED whose time has come.
func (s *Store) AnyDue(ctx context.Context) (bool, error) {
	return queryValue[bool](ctx, s, statement("anyDue"))
}

// RefuseMovedClock fails if the clock of the database was moved and this process does not follow it: it would do things at
// other times than the others. Without an answer there is no error.
func (s *Store) RefuseMovedClock(ctx context.Context) error {
	if s.cfg.Clock != nil {
		return nil
	}
	if moved, err := queryValue[bool](ctx, s, statement("anyMoved")); err == nil && moved {
		return job.Errorf(job.CodeConfigInvalid, "The clock of this database was moved by a test bed: set FORGERUN_TESTBED=true for each "+
			"process that uses it, or use another database.")
	}
	return nil
}
