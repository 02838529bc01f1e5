package main

import (
	"context"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Requests leave at their rate whatever becomes of the ones before, and what
// finds no connection in time is told apart from what was refused.
func TestPaceOffersAllAndTellsWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	statuses := []int{http.StatusAccepted, http.StatusServiceUnavailable}
	got := pace(t.Context(), pacing{rate: 1000, during: 100 * time.Millisecond, connections: 4, patience: time.Minute}, func() func() int {
		return func() int { return statuses[sent.Add(1)%2] }
	})
	require.Equal(t, 100, got.offered)
	require.Zero(t, got.unsent)
	require.Equal(t, 50, got.answers(http.StatusAccepted))
	require.Equal(t, 100, got.answers(statuses...))
	require.GreaterOrEqual(t, got.took, 99*time.Millisecond)
	require.Contains(t, got.String(), "50 x 202")

	blocked := make(chan struct{})
	time.AfterFunc(200*time.Millisecond, func() { close(blocked) })
	got = pace(t.Context(), pacing{rate: 1000, during: 50 * time.Millisecond, connections: 1, patience: 10 * time.Millisecond}, func() func() int {
		return func() int { <-blocked; return 0 }
	})
	require.Equal(t, 50, got.offered)
	require.Equal(t, 1, got.answers(0), "it never got an answer")
	require.Equal(t, 49, got.unsent, "the one connection was taken")
	require.Contains(t, got.String(), "1 x no answer")
	require.Contains(t, got.String(), "49 not sent")
}

// A latency counts from when a request was due, and from when it was sent.
func TestPaceCountsFromDueAndFromSent(t *testing.T) {
	t.Parallel()
	queue := make(chan time.Time, 1)
	queue <- time.Now().Add(-time.Second)
	close(queue)
	got := answerPaced(queue, time.Minute, func() int { return http.StatusOK })
	require.Greater(t, quantile(got.fromDue[http.StatusOK], 50), 900*time.Millisecond)
	require.Less(t, quantile(got.fromSent[http.StatusOK], 50), 900*time.Millisecond)
}

func TestOverloadFigures(t *testing.T) {
	t.Parallel()
	p := newPaced()
	p.offered, p.unsent, p.took = 100, 3, 2*time.Second
	for status, n := range map[int]int{http.StatusAccepted: 80, http.StatusServiceUnavailable: 10, http.StatusTooManyRequests: 5, 0: 2} {
		p.fromDue[status], p.fromSent[status] = newHistogram(), newHistogram()
		for range n {
			record(p.fromDue[status], time.Second)
			record(p.fromSent[status], 7*time.Millisecond)
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

func TestFloodConnections(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1024, floodConnections(500))
	require.Equal(t, 3000, floodConnections(6000))
	require.Equal(t, 8192, floodConnections(60_000))
}

func TestShort(t *testing.T) {
	t.Parallel()
	for n, text := range map[int]string{5_000_000: "5 million", 1_500_000: "1.5 million", 100_000: "100,000", 60_000: "60,000", 1234: "1234"} {
		require.Equal(t, text, short(n))
	}
}

func TestLineNumber(t *testing.T) {
	t.Parallel()
	n, err := lineNumber("# Memory\r\nused_memory:1048576\r\nused_memory_rss:7\r\n", "used_memory:")
	require.NoError(t, err)
	require.Equal(t, 1048576.0, n)
	_, err = lineNumber("VmPeak: 1 kB\n", "VmRSS:")
	require.Error(t, err)
	now, peak, err := processMemory(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, now, 1.0)
	require.GreaterOrEqual(t, peak, now)
}

// A turn of each side after the other, and the other way round next.
func TestCompareTakesTurns(t *testing.T) {
	t.Parallel()
	l := &lab{o: options{rounds: 1}}
	order := ""
	side := func(name string, rate float64) func() (turn, error) {
		return func() (turn, error) {
			order += name
			return turn{accepted: rate * float64(len(order))}, nil
		}
	}
	empty, many, err := l.compare(side("A", 10), side("B", 5))
	require.NoError(t, err)
	require.Equal(t, "ABBA", order)
	ratio, note := against(empty, many, turnAccepted, "%.0f/s")
	require.InDelta(t, (1.0+0.375)/2, ratio, 1e-9, "10 to 10, and 15 to 40")
	require.Equal(t, "12/s to 25/s", note)
}

// assign makes seeded jobs look as if they had been claimed, in the given order of
// their places, a millisecond after each other.
func (g *ground) assign(places ...int) {
	g.t.Helper()
	for i, cursor := range places {
		tag, err := g.d.conn.Exec(g.t.Context(), `UPDATE jobs SET assigned_at = now() + $2 * interval '1 ms'
			WHERE job_id = (SELECT job_id FROM jobs ORDER BY run_at, job_id OFFSET $1 - 1 LIMIT 1)`, cursor, i)
		require.NoError(g.t, err)
		require.EqualValues(g.t, 1, tag.RowsAffected())
	}
}

func TestDisplacement(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	require.NoError(t, seedQueuedJobs(t.Context(), g.d, g.client, 20))
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
	g := newGround(t)
	require.NoError(t, seedFinishedJobs(t.Context(), g.d, g.client, 100))
	since := time.Now()
	busy := func() float64 {
		t.Helper()
		s, err := busyAgain(t.Context(), g.d, since, 20, 15*time.Second)
		require.NoError(t, err)
		return s
	}
	move := func(n int, assigned, finished time.Duration) {
		t.Helper()
		_, err := g.d.conn.Exec(t.Context(), `UPDATE jobs SET assigned_at = $2, finished_at = $3 WHERE job_id IN (SELECT job_id FROM jobs WHERE finished_at < $4 LIMIT $1)`,
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
	g := newGround(t)
	require.NoError(t, seedFinishedJobs(t.Context(), g.d, g.client, 10))
	require.NoError(t, drained(t.Context(), g.d))
	id := g.submit(nil)
	ctx, cancel := context.WithTimeout(t.Context(), 3*pollInterval)
	defer cancel()
	require.ErrorIs(t, drained(ctx, g.d), context.DeadlineExceeded, "one waits")
	g.finish(id)
	require.NoError(t, drained(t.Context(), g.d))
}

func TestLateness(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	at := time.Now().Add(-3 * time.Second).Truncate(time.Microsecond)
	require.NoError(t, seedScheduledJobs(t.Context(), g.d, g.client, 10, at))
	_, err := g.store.QueueDue(t.Context(), 100)
	require.NoError(t, err)
	late, early, err := lateness(t.Context(), g.d, g.client, at, 10)
	require.NoError(t, err)
	require.GreaterOrEqual(t, late, 3.0)
	require.Zero(t, early)
	_, err = g.d.conn.Exec(t.Context(), "UPDATE jobs SET queued_at = execution_at - interval '1 ms' WHERE job_id IN (SELECT job_id FROM jobs LIMIT 2)")
	require.NoError(t, err)
	_, early, err = lateness(t.Context(), g.d, g.client, at, 10)
	require.NoError(t, err)
	require.Equal(t, 2.0, early)
	_, _, err = lateness(t.Context(), g.d, g.client, at, 11)
	require.ErrorContains(t, err, "10 jobs of 11")
}

func TestPollGivesUp(t *testing.T) {
	t.Parallel()
	err := poll(t.Context(), time.Nanosecond, "the moon", func() (bool, error) { return false, nil })
	require.ErrorContains(t, err, "the moon")
	require.ErrorIs(t, err, errLate)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, poll(ctx, time.Minute, "", func() (bool, error) { return false, nil }), context.Canceled)
}
