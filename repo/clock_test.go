package repo_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// shiftJob changes the times of a job as if Postgres' clock had been ahead when the job was stored.
func (f *fixture) shiftJob(id job.ID, by time.Duration) {
	f.exec(`UPDATE jobs SET created_at = created_at + $2::interval, updated_at = updated_at + $2::interval,
		queued_at = queued_at + $2::interval, run_at = CASE WHEN run_at = execution_at THEN run_at ELSE run_at + $2::interval END
		WHERE job_id = $1`, id.String(), by)
}

func (f *fixture) moveJobs(look int) (moved int) {
	walk(f, func(at job.QueueCursor) ([]int, job.QueueCursor) {
		n, last := must2(f.store.MoveStrandedJobs(f.ctx(), at, look))(f.t)
		moved += n
		return nil, last
	})
	return moved
}

func TestJobsOfAClockThatWasAheadAreDueAgain(t *testing.T) {
	f := setup(t)
	instant := f.submitted(5)
	retried, longWait, asked := f.retrying(10*time.Minute).JobID, f.retrying(3*time.Hour).JobID, f.submit(deferred(30*time.Minute))
	for _, id := range append(instant, retried, longWait, asked) {
		f.shiftJob(id, time.Hour)
	}
	unchanged := []job.ID{longWait, asked, f.retrying(45 * time.Minute).JobID}
	before := each(unchanged, f.all)

	unlock := f.lockRow(instant[4].String())
	require.Equal(t, 5, f.moveJobs(2), "all jobs except the locked one")
	unlock()
	require.Equal(t, 1, f.moveJobs(100))
	require.Zero(t, f.moveJobs(100))
	require.Equal(t, before, each(unchanged, f.all))
	now := one[time.Time](f, `SELECT clock_timestamp()`)
	require.WithinDuration(t, now.Add(10*time.Minute), f.job(retried).RunAt, testkit.Patience)
	for _, id := range instant {
		f.assigned(id, 1)
	}
	require.Equal(t, each(instant, job.ID.String), one[[]string](f, `SELECT array_agg(job_id::text ORDER BY run_at) FROM jobs
		WHERE dispatch = 0 AND state = 'ASSIGNED'`), "in their order, with the tasks that they had")
}

func TestDeliveriesOfAClockThatWasAheadAreDueAgain(t *testing.T) {
	f := setup(t)
	other := f.subscribe(job.EventCreated)
	hook, claimed := f.claimed(1)
	f.record(refused(claimed[0], 10*time.Minute))
	f.exec(`UPDATE deliveries SET created_at = created_at + interval '1 h', tried_at = tried_at + interval '1 h',
		next_attempt_at = next_attempt_at + interval '1 h'`)
	moved := func() (moved int) {
		walk(f, func(at job.EndpointKey) ([]int, job.EndpointKey) {
			n, last := must2(f.store.MoveStrandedDeliveries(f.ctx(), at, 1, 100))(t)
			moved += n
			return nil, last
		})
		return moved
	}
	require.Equal(t, 2, moved())
	require.Zero(t, moved())
	require.Len(t, f.claimAll(other, 1), 1)
	next := one[time.Time](f, `SELECT next_attempt_at FROM deliveries WHERE webhook_id = $1`, hook.String())
	require.WithinDuration(t, time.Now().Add(10*time.Minute), next, testkit.Patience)
	f.exec(`UPDATE deliveries SET tried_at = now() WHERE webhook_id = $1`, hook.String())
	require.Zero(t, moved(), "the wait was written by the current clock")
}

func TestLeasesOfAClockThatWasAheadEnd(t *testing.T) {
	f := setup(t)
	f.claimed(1)
	f.exec(`UPDATE deliveries SET claimed_until = claimed_until + interval '1 h'`)
	f.exec(`UPDATE workers SET heartbeat_at = heartbeat_at + interval '1 h', expires_at = heartbeat_at + interval '1 h 30 s'`)
	require.NoError(t, f.store.EndStrandedLeases(f.ctx()))
	require.True(t, one[bool](f, `SELECT expires_at BETWEEN now() AND now() + interval '30 s' FROM workers`))
	require.True(t, one[bool](f, `SELECT claimed_until <= now() + interval '6 min' FROM deliveries`))

	for range 2 { // a lease that ends too far in the future counts as free
		require.True(t, must(f.store.Lead(f.ctx(), newID(), 5*time.Second, 0))(t))
		f.exec(`UPDATE maintenance_state SET leader_expires_at = leader_expires_at + interval '1 h'`)
	}
}

func asTestbed(c *repo.Config) { c.Clock = clock.New() }

func move(t *testing.T, s *repo.Store, m testbed.ClockMove) testbed.ClockState {
	_, follow := must2(s.MoveClock(t.Context(), m.From))(t)
	return must(follow(t.Context()))(t)
}

func advance(by time.Duration) testbed.ClockMove { return testbed.ClockMove{Advance: &by} }

func setFrozen(frozen bool) testbed.ClockMove { return testbed.ClockMove{Freeze: &frozen} }

func rate(rate float64) testbed.ClockMove { return testbed.ClockMove{Rate: &rate} }

func shown(t *testing.T, pool *pgxpool.Pool) (now, precise time.Time) {
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT now(), clock_timestamp()`).Scan(&now, &precise))
	return now, precise
}

// All Postgres connections of a test bed use the moved clock. Other connections use Postgres' clock. Other processes follow a move only
// after they have read it.
func TestClockOfSessions(t *testing.T) {
	f := setup(t)
	s, other := repotest.OpenURL(t, f.url, asTestbed), repotest.OpenURL(t, f.url, asTestbed)
	near := func(want, got time.Time) { require.WithinDuration(t, want, got, testkit.Patience) }
	now, precise := shown(t, s.Pool())
	near(time.Now(), now)
	near(time.Now(), precise)
	require.False(t, move(t, s, testbed.ClockMove{Rate: new(1.0)}).Frozen)

	day := time.Now().Add(24 * time.Hour)
	near(day, time.Time(move(t, s, advance(24*time.Hour)).Now))
	for range 3 {
		now, precise = shown(t, other.Pool())
		near(day, now)
		near(day, precise)
	}
	now, _ = shown(t, f.store.Pool())
	near(time.Now(), now)
	near(time.Now(), other.Now())
	must(other.ReadClockMove(t.Context()))(t)
	near(day, other.Now())

	frozen := time.Time(move(t, s, setFrozen(true)).Now)
	now, precise = shown(t, other.Pool())
	require.Equal(t, frozen, now.UTC())
	require.Equal(t, frozen, precise.UTC())
	state := move(t, s, rate(3600))
	require.False(t, state.Frozen)
	testkit.Eventually(t, "the clock runs at the rate", func() bool {
		now, _ := shown(t, s.Pool())
		return now.Sub(frozen) > 10*time.Minute
	})
	require.True(t, move(t, s, setFrozen(true)).Frozen)
	require.InDelta(t, 3600, move(t, s, setFrozen(false)).Rate, 0)
}

// If a slowdown is committed too late, the clock goes back, and `follow` corrects it by one more move (TestLateMoveOfTheClock). The test
// counts such moves and allows one step back for each.
func TestClockNeverGoesBackwards(t *testing.T) {
	f := setup(t)
	s := repotest.OpenURL(t, f.url, asTestbed)
	var stopped atomic.Bool
	var stepsBack [2]int
	read := func(steps *int) func() error {
		return func() error {
			for before := (time.Time{}); !stopped.Load(); {
				var at time.Time
				if err := s.Pool().QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&at); err != nil {
					return err
				}
				if at.Before(before) {
					*steps++
				}
				before = at
			}
			return nil
		}
	}
	readers := []<-chan error{begin(read(&stepsBack[0])), begin(read(&stepsBack[1]))}
	moves := []testbed.ClockMove{setFrozen(true), setFrozen(false), rate(3600), rate(0.1), rate(1), advance(time.Hour), advance(0)}
	for range 10 {
		for _, m := range moves {
			move(t, s, m)
		}
	}
	stopped.Store(true)
	require.NoError(t, errors.Join(<-readers[0], <-readers[1]))
	late := one[int](f, `SELECT count(*) FROM testbed_clock`) - 10*len(moves)
	require.LessOrEqual(t, max(stepsBack[0], stepsBack[1]), late)

	now := time.Now()
	require.Equal(t, job.CodeValidationFailed, codeOf(s.MoveClock(t.Context(), testbed.ClockMove{Set: &now}.From)))
	require.Equal(t, job.CodeValidationFailed, codeOf(s.MoveClock(t.Context(), advance(11*365*24*time.Hour).From)))
	state := move(t, s, advance(9*365*24*time.Hour))
	require.Greater(t, time.Duration(state.Offset), 9*365*24*time.Hour)
}

// If a process commits a slowdown too late, `follow` moves the clock forward to the time that statements may have read.
func TestLateMoveOfTheClock(t *testing.T) {
	f := setup(t)
	s := repotest.OpenURL(t, f.url, asTestbed)
	move(t, s, rate(3600))
	_, follow := must2(s.MoveClock(t.Context(), func(c testbed.ClockState) (testbed.ClockState, error) {
		_, err := f.db.Exec(t.Context(), `SELECT pg_sleep(0.3)`)
		c.Frozen = true
		return c, err
	}))(t)
	var read time.Time // a time that a statement may have read before the late move was committed
	require.NoError(t, f.db.QueryRow(t.Context(), `SELECT service_at + (clock_timestamp() - real_at) * rate FROM testbed_clock
		ORDER BY number LIMIT 1`).Scan(&read))
	state := must(follow(t.Context()))(t)
	require.True(t, state.Frozen)
	require.False(t, time.Time(state.Now).Before(read), "%s, but %s may have been read", time.Time(state.Now), read)
}

func TestMovedClockIsRefused(t *testing.T) {
	f := setup(t)
	require.NoError(t, f.store.RefuseMovedClock(t.Context()))
	require.NoError(t, f.store.Ping(t.Context()))
	s := repotest.OpenURL(t, f.url, asTestbed)
	move(t, s, advance(time.Hour))
	require.ErrorContains(t, f.store.RefuseMovedClock(t.Context()), "FORGERUN_TESTBED=true")
	require.ErrorContains(t, f.store.Ping(t.Context()), "FORGERUN_TESTBED=true")
	require.NoError(t, s.Ping(t.Context()))
}
