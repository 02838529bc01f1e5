package testbed

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/repo/pg"
	"github.com/forgerun/forgerun/verdict/fault"
)

const (
	// moveInterval is how often a process of a test bed checks whether the clock was moved. A process notices a move after at most
	// moveInterval and one query.
	moveInterval = 50 * time.Millisecond
	// A freeze or slowdown takes effect slowdownDelay after the request. The delay lets running statements finish, because they still use
	// the faster clock.
	slowdownDelay = 200 * time.Millisecond
	movesKept     = 10_000
)

// FollowClockMoves applies moves of the clock in Postgres to Config.Clock, until ctx ends. While Postgres does not answer, the clock
// continues with the latest known move.
func (s *Store) FollowClockMoves(ctx context.Context) {
	pg.Every(ctx, moveInterval, func() { _, _ = s.ReadClockMove(ctx) })
}

// clockMove is the latest move. `server` is the time of Postgres' own clock.
type clockMove struct {
	clock.Setting
	rate   float64 // ignored while frozen
	frozen bool
	server time.Time
}

func (m clockMove) state() testbed.ClockState {
	now := m.At(m.server).UTC()
	return testbed.ClockState{Now: job.Time(now), Offset: fault.Duration(now.Sub(m.server)), Rate: m.rate, Frozen: m.frozen}
}

func scanClockMove(row pgx.CollectableRow) (m clockMove, err error) {
	err = row.Scan(&m.Number, &m.Real, &m.Time, &m.rate, &m.frozen, &m.server)
	if !m.frozen {
		m.Rate = m.rate
	}
	return m, err
}

// ReadClockMove reads the latest move of the clock, and applies it to Config.Clock.
func (s *Store) ReadClockMove(ctx context.Context) (testbed.ClockState, error) {
	m, err := s.readClockMove(ctx)
	return m.state(), err
}

// readClockMove also applies the move to Config.Clock. It assumes that Postgres' answer arrived without delay. So Config.Clock may be
// behind Postgres' clock, but never ahead. A time that is in the past for Config.Clock is also in the past for Postgres.
func (s *Store) readClockMove(ctx context.Context) (clockMove, error) {
	m, err := pg.QueryOne(ctx, s.db, nil, scanClockMove, statement("readClockMove"))
	if err == nil {
		s.db.Clock.Set(m.Setting, time.Until(m.server))
	}
	return m, err
}

// MoveClock passes the clock's state to `move`, and sets the clock to the state that `move` returns. After the commit, the caller must call
// `follow`, which applies the move to Config.Clock.
func (s *Store) MoveClock(ctx context.Context, move func(testbed.ClockState) (testbed.ClockState, error)) (
	moved testbed.ClockState, follow func(context.Context) (testbed.ClockState, error), err error,
) {
	var before, after clockMove
	err = s.db.InTx(ctx, "testbed", func(ctx context.Context, tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, statement("lockClock")); err != nil {
			return err
		}
		if before, _, err = pg.First(pg.RowsIn(ctx, tx, scanClockMove, statement("readClockMove"))); err != nil {
			return err
		}
		wanted, err := move(before.state())
		if err != nil {
			return err
		}
		var arguments []any
		after, arguments = before.moveTo(wanted)
		if _, err := tx.Exec(ctx, statement("forgetMoves"), after.Number-movesKept); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, statement("moveClock"), arguments...)
		return err
	})
	if err != nil {
		return testbed.ClockState{}, nil, err
	}
	return after.state(), func(ctx context.Context) (testbed.ClockState, error) { return s.correctClock(ctx, before, after) }, nil
}

// correctClock checks whether a freeze or slowdown was committed too late, because this process or Postgres was delayed. If so, statements
// may have read times that are ahead of the new clock. correctClock then moves the clock forward to the latest of these times.
func (s *Store) correctClock(ctx context.Context, before, after clockMove) (testbed.ClockState, error) {
	now, err := s.readClockMove(ctx)
	if err != nil || now.Number != after.Number || !now.server.After(after.Real) || after.Rate >= before.effectiveRate() {
		return now.state(), err
	}
	shown := before.At(now.server)
	if !shown.After(now.At(now.server)) { // the clock has already passed this time
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

func (m clockMove) moveTo(wanted testbed.ClockState) (next clockMove, arguments []any) {
	next = clockMove{rate: wanted.Rate, frozen: wanted.Frozen, server: m.server}
	if !wanted.Frozen {
		next.Rate = wanted.Rate
	}
	jump, wait := time.Time(wanted.Now).Sub(time.Time(m.state().Now)), time.Duration(0)
	if jump < slowdownDelay && next.Rate < m.effectiveRate() {
		wait = slowdownDelay
	}
	next.Number, next.Real = m.Number+1, m.server.Add(wait)
	next.Time = m.At(next.Real).Add(jump)
	return next, []any{next.Number, jump, wait, m.effectiveRate(), wanted.Rate, wanted.Frozen}
}

func (m clockMove) effectiveRate() float64 {
	if !m.Moved() {
		return 1
	}
	return m.Rate
}

// RefuseMovedClock returns an error if the clock of the database was moved and this process does not follow the moves. The process would
// have a different time than the other processes. If Postgres does not answer, RefuseMovedClock returns no error.
func (s *Store) RefuseMovedClock(ctx context.Context) error {
	if s.db.Clock != nil {
		return nil
	}
	if moved, err := pg.QueryValue[bool](ctx, s.db, statement("anyMoved")); err == nil && moved {
		return job.Errorf(job.CodeConfigInvalid, "The clock of this database was moved by a test bed: set FORGERUN_TESTBED=true for each "+
			"process that uses it, or use another database.")
	}
	return nil
}
