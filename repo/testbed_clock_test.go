package repo_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func asTestbed(c *repo.Config) { c.Clock = clock.New() }

// move moves the clock, and has the store follow it.
func move(t *testing.T, s *repo.Store, m testbed.ClockMove) testbed.ClockState {
	t.Helper()
	_, settle, err := s.MoveClock(t.Context(), m.From)
	require.NoError(t, err)
	state, err := settle(t.Context())
	require.NoError(t, err)
	return state
}

func advance(by time.Duration) testbed.ClockMove { return testbed.ClockMove{Advance: &by} }

func frozenBe(frozen bool) testbed.ClockMove { return testbed.ClockMove{Freeze: &frozen} }

func rate(rate float64) testbed.ClockMove { return testbed.ClockMove{Rate: &rate} }

// shown is what a session takes the time for.
func shown(t *testing.T, pool *pgxpool.Pool) (now, precise time.Time) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT now(), clock_timestamp()`).Scan(&now, &precise))
	return now, precise
}

// Each session of a test bed has the clock as it was moved; others, and another process' store that was not told, have not.
func TestClockOfSessions(t *testing.T) {
	t.Parallel()
	f := setup(t)
	s, other := repotest.OpenURL(t, f.url, asTestbed), repotest.OpenURL(t, f.url, asTestbed)
	near := func(want, got time.Time) {
		t.Helper()
		require.WithinDuration(t, want, got, time.Minute)
	}
	now, precise := shown(t, s.Pool())
	near(time.Now(), now)
	near(time.Now(), precise)
	require.False(t, move(t, s, testbed.ClockMove{Rate: ptr(1.0)}).Frozen)

	day := time.Now().Add(24 * time.Hour)
	near(day, time.Time(move(t, s, advance(24*time.Hour)).Now))
	for range 3 { // on every connection
		now, precise = shown(t, other.Pool())
		near(day, now)
		near(day, precise)
	}
	now, _ = shown(t, f.store.Pool())
	near(time.Now(), now)
	near(time.Now(), other.Now())
	_, err := other.ReadClockMove(t.Context())
	require.NoError(t, err)
	near(day, other.Now())

	frozen := time.Time(move(t, s, frozenBe(true)).Now)
	now, precise = shown(t, other.Pool())
	require.Equal(t, frozen, now.UTC())
	require.Equal(t, frozen, precise.UTC())
	state := move(t, s, rate(3600))
	require.False(t, state.Frozen)
	require.Eventually(t, func() bool {
		now, _ := shown(t, s.Pool())
		return now.Sub(frozen) > 10*time.Minute
	}, time.Minute, 10*time.Millisecond)
	require.True(t, move(t, s, frozenBe(true)).Frozen)
	require.InDelta(t, 3600, move(t, s, frozenBe(false)).Rate, 0)
}

func ptr[T any](v T) *T { return &v }

// The clock never shows an earlier time than before, whatever is asked for while it is being read.
func TestClockNeverGoesBackwards(t *testing.T) {
	t.Parallel()
	f := setup(t)
	s := repotest.OpenURL(t, f.url, asTestbed)
	stop, failed := make(chan struct{}), make(chan string, 4)
	for range 2 {
		go func() {
			var before time.Time
			for {
				var at time.Time
				if err := s.Pool().QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&at); err != nil || at.Before(before) {
					failed <- before.String() + " then " + at.String()
					return
				}
				before = at
				select {
				case <-stop:
					failed <- ""
					return
				default:
				}
			}
		}()
	}
	for range 10 {
		for _, m := range []testbed.ClockMove{frozenBe(true), frozenBe(false), rate(3600), rate(0.1), rate(1), advance(time.Hour), advance(0)} {
			move(t, s, m)
		}
	}
	close(stop)
	require.Empty(t, <-failed)
	require.Empty(t, <-failed)

	now := time.Now()
	_, _, err := s.MoveClock(t.Context(), testbed.ClockMove{Set: &now}.From)
	var known *job.Error
	require.True(t, errors.As(err, &known), "%v", err)
	require.Equal(t, job.CodeValidationFailed, known.Code)
	_, _, err = s.MoveClock(t.Context(), advance(200*365*24*time.Hour).From)
	require.Error(t, err, "times beyond have a meaning of their own")
}

// A move that slows the clock down and is committed late, because its process was held up, does not make it go backwards.
func TestLateMoveOfTheClock(t *testing.T) {
	t.Parallel()
	f := setup(t)
	s := repotest.OpenURL(t, f.url, asTestbed)
	move(t, s, rate(3600))
	_, settle, err := s.MoveClock(t.Context(), func(c testbed.ClockState) (testbed.ClockState, error) {
		_, err := f.db.Exec(t.Context(), `SELECT pg_sleep(0.3)`)
		c.Frozen = true
		return c, err
	})
	require.NoError(t, err)
	var read time.Time // what the faster clock could have shown at the latest
	require.NoError(t, f.db.QueryRow(t.Context(), `SELECT service_at + (clock_timestamp() - real_at) * rate FROM testbed_clock
		ORDER BY number LIMIT 1`).Scan(&read))
	state, err := settle(t.Context())
	require.NoError(t, err)
	require.True(t, state.Frozen)
	require.False(t, time.Time(state.Now).Before(read), "%s, but %s may have been read", time.Time(state.Now), read)
}

// A process that does not follow the clock refuses a database whose clock was moved, and is not ready.
func TestMovedClockIsRefused(t *testing.T) {
	t.Parallel()
	f := setup(t)
	require.NoError(t, f.store.RefuseMovedClock(t.Context()))
	require.NoError(t, f.store.Ping(t.Context()))
	s := repotest.OpenURL(t, f.url, asTestbed)
	move(t, s, advance(time.Hour))
	require.ErrorContains(t, f.store.RefuseMovedClock(t.Context()), "FORGERUN_TESTBED=true")
	require.ErrorContains(t, f.store.Ping(t.Context()), "FORGERUN_TESTBED=true")
	require.NoError(t, s.Ping(t.Context()))
}

// Statements find their rows by the same indexes in sessions of a test bed. Without a move their plans are those of all others to
// the letter: it costs nothing there. After one the time is a constant in them.
func TestPlansUnderAMovedClock(t *testing.T) {
	t.Parallel()
	f := setup(t)
	s := repotest.OpenURL(t, f.url, asTestbed)
	f.exec(seed)
	conn, err := s.Pool().Acquire(f.ctx())
	require.NoError(t, err)
	defer conn.Release()
	plain, err := f.store.Pool().Acquire(f.ctx())
	require.NoError(t, err)
	defer plain.Release()
	for _, name := range []string{"queueDue", "waiting", "countDue", "cleanJobs", "dueClients", "claimDeliveries", "step", "insert"} {
		p := plans[name]
		require.Equal(t, text(t, plain, repo.Statements[name], p.args), text(t, conn, repo.Statements[name], p.args), name)
	}
	require.Contains(t, text(t, conn, repo.Statements["queueDue"], plans["queueDue"].args), "execution_at <= now()")

	for _, m := range []testbed.ClockMove{advance(time.Hour), rate(60), frozenBe(true)} {
		move(t, s, m)
		for _, found := range []struct{ name, index, condition string }{
			{"queueDue", "jobs_scheduled", "execution_at <= "}, {"waiting", "jobs_waiting", "run_at <= "},
			{"cleanJobs", "jobs_ended", "finished_at <= "}, {"countDue", "jobs_waiting", "run_at <= "},
			{"cleanResults", "results_expiry", "expires_at <= "}, {"cleanIdempotencyKeys", "idempotency_keys_expiry", "expires_at <= "},
		} {
			shape := explain(t, f, conn, "force_generic_plan", repo.Statements[found.name], plans[found.name].args)
			uses := false
			shape.walk(func(node plan) {
				uses = uses || node.Index == found.index && strings.Contains(node.Cond, found.condition) &&
					!strings.Contains(node.Cond, "testbed.")
			})
			require.True(t, uses, "%s: %+v", found.name, shape)
		}
	}
}

// text is the generic plan of a statement as text, without costs.
func text(t *testing.T, conn *pgxpool.Conn, statement, args string) string {
	t.Helper()
	results, err := conn.Conn().PgConn().Exec(t.Context(),
		`SET plan_cache_mode = force_generic_plan; PREPARE p AS `+statement+`; EXPLAIN (COSTS OFF) EXECUTE p(`+args+`); DEALLOCATE p`).ReadAll()
	require.NoError(t, err)
	var lines []string
	for _, row := range results[2].Rows {
		lines = append(lines, string(row[0]))
	}
	return strings.ReplaceAll(strings.Join(lines, "\n"), "pg_catalog.", "")
}
