package scale

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
)

func TestOverloadFigures(t *testing.T) {
	t.Parallel()
	p := loadgen.NewAnswers()
	p.Offered, p.Unsent, p.Took = 100, 3, 2*time.Second
	for status, n := range map[int]int{http.StatusAccepted: 80, http.StatusServiceUnavailable: 10, http.StatusTooManyRequests: 5, 0: 2} {
		p.FromDue[status], p.FromSent[status] = loadgen.NewHistogram(), loadgen.NewHistogram()
		for range n {
			loadgen.Record(p.FromDue[status], time.Second)
			loadgen.Record(p.FromSent[status], 7*time.Millisecond)
		}
	}
	figures := overloadFigures(p, 50, 0)
	require.InDelta(t, 0.8, figures[0].Measured, 1e-9, "40/s of 50")
	require.False(t, figures[0].OK)
	require.InDelta(t, 7, figures[1].Measured, 0.1)
	require.Contains(t, figures[1].Note, "15 refused")
	require.Equal(t, 2.0, figures[2].Measured, "no answer is none of the three either")
	require.True(t, figures[3].OK)
}

func TestOverloadConnections(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1024, overloadConnections(500))
	require.Equal(t, 3000, overloadConnections(6000))
	require.Equal(t, 8192, overloadConnections(60_000))
}

func TestShort(t *testing.T) {
	t.Parallel()
	for n, text := range map[int]string{5_000_000: "5 million", 1_500_000: "1.5 million", 100_000: "100,000", 60_000: "60,000", 1234: "1234"} {
		require.Equal(t, text, short(n))
	}
}

// A turn of each side after the other, and the other way round next.
func TestCompareTakesTurns(t *testing.T) {
	t.Parallel()
	l := &lab.Lab{Options: lab.Options{Rounds: 1}}
	order := ""
	side := func(name string, rate float64) func() (turn, error) {
		return func() (turn, error) {
			order += name
			return turn{accepted: rate * float64(len(order))}, nil
		}
	}
	c, err := compare(l, side("A", 10), side("B", 5))
	require.NoError(t, err)
	require.Equal(t, "ABBA", order)
	ratio, note := c.against(turnAccepted, "%.0f/s")
	require.InDelta(t, (1.0+0.375)/2, ratio, 1e-9, "10 to 10, and 15 to 40")
	require.Equal(t, "12/s to 25/s", note)
}

// assign makes seeded jobs look as if they had been claimed, in the given order of
// their ranks, a millisecond after each other.
func (g *seedTest) assign(places ...int) {
	g.t.Helper()
	for i, place := range places {
		tag, err := g.d.Conn.Exec(g.t.Context(), `UPDATE jobs SET assigned_at = now() + $2 * interval '1 ms'
			WHERE job_id = (SELECT job_id FROM jobs ORDER BY run_at, job_id OFFSET $1 - 1 LIMIT 1)`, place, i)
		require.NoError(g.t, err)
		require.EqualValues(g.t, 1, tag.RowsAffected())
	}
}

func TestDisplacement(t *testing.T) {
	t.Parallel()
	g := newSeedTest(t)
	require.NoError(t, seedQueuedJobs(t.Context(), g.d, 20))
	check := func(most, started float64) {
		t.Helper()
		m, s, err := displacement(t.Context(), g.d)
		require.NoError(t, err)
		require.Equal(t, []float64{most, started}, []float64{m, s})
	}
	_, _, err := displacement(t.Context(), g.d)
	require.ErrorContains(t, err, "no job was started")
	g.assign(1, 2, 3)
	check(0, 3)
	g.assign(2, 3, 1)
	check(2, 3) // the first one came last
	g.assign(1, 2, 3, 20)
	check(16, 4) // the last one came before sixteen that still wait
}

func TestBusyAgain(t *testing.T) {
	t.Parallel()
	g := newSeedTest(t)
	require.NoError(t, seedFinishedJobs(t.Context(), g.d, 100))
	since := time.Now()
	busy := func() float64 {
		t.Helper()
		s, err := busyAgain(t.Context(), g.d, since, 20, 15*time.Second)
		require.NoError(t, err)
		return s
	}
	move := func(n int, assigned, finished time.Duration) {
		t.Helper()
		_, err := g.d.Conn.Exec(t.Context(), `UPDATE jobs SET assigned_at = $2, finished_at = $3
			WHERE job_id IN (SELECT job_id FROM jobs WHERE finished_at < $4 LIMIT $1)`,
			n, since.Add(assigned), since.Add(finished), since.Add(-time.Minute/2))
		require.NoError(t, err)
	}
	require.Equal(t, 15.0, busy(), "never")
	move(20, -time.Second, 100*time.Millisecond)
	require.Equal(t, 15.0, busy(), "what was claimed before does not count")
	move(9, time.Second, 2*time.Second)
	require.Equal(t, 15.0, busy(), "too few")
	move(10, time.Second, 3200*time.Millisecond)
	require.Equal(t, 3.5, busy(), "ten in half a second")
}

func TestDrained(t *testing.T) {
	t.Parallel()
	g := newSeedTest(t)
	require.NoError(t, seedFinishedJobs(t.Context(), g.d, 10))
	require.NoError(t, drained(t.Context(), g.d))
	id := g.submit(nil)
	ctx, cancel := context.WithTimeout(t.Context(), 15*lab.PollInterval)
	defer cancel()
	// A deadline that passes during a query closes its connection: this one is of its own.
	conn, err := pgx.Connect(t.Context(), g.d.URL)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	require.ErrorIs(t, drained(ctx, &lab.Database{Conn: conn}), context.DeadlineExceeded, "one waits")
	g.finish(id)
	require.NoError(t, drained(t.Context(), g.d))
}

func TestLateness(t *testing.T) {
	t.Parallel()
	g := newSeedTest(t)
	at := time.Now().Add(-3 * time.Second).Truncate(time.Microsecond)
	require.NoError(t, seedScheduledJobs(t.Context(), g.d, 10, at))
	_, err := g.store.QueueDue(t.Context(), 100)
	require.NoError(t, err)
	late, early, err := lateness(t.Context(), g.d, at, 10)
	require.NoError(t, err)
	require.GreaterOrEqual(t, late, 3.0)
	require.Zero(t, early)
	_, err = g.d.Conn.Exec(t.Context(), `UPDATE jobs SET queued_at = execution_at - interval '1 ms'
		WHERE job_id IN (SELECT job_id FROM jobs LIMIT 2)`)
	require.NoError(t, err)
	_, early, err = lateness(t.Context(), g.d, at, 10)
	require.NoError(t, err)
	require.Equal(t, 2.0, early)
	_, _, err = lateness(t.Context(), g.d, at, 11)
	require.ErrorContains(t, err, "10 jobs of 11")
}
