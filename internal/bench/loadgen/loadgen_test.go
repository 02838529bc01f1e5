package loadgen

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestScheduleIsEven(t *testing.T) {
	t.Parallel()
	require.Zero(t, OpenLoop{Rate: 2500}.due(0))
	require.Equal(t, 400*time.Microsecond, OpenLoop{Rate: 2500}.due(1))
	require.Equal(t, time.Second, OpenLoop{Rate: 2500}.due(2500))
	require.Equal(t, time.Hour, OpenLoop{Rate: 3000}.due(3600*3000), "no error adds up")
}

// Latency counts from when a request was due: one that had to wait for a
// connection is slow although its answer was quick.
func TestLatencyCountsFromWhenARequestWasDue(t *testing.T) {
	t.Parallel()
	const slow = 50 * time.Millisecond
	got := OpenLoop{Rate: 100, During: 50 * time.Millisecond, Connections: 1, Patience: time.Minute}.Run(t.Context(), func() func() int {
		return func() int { time.Sleep(slow); return 202 }
	})
	require.Equal(t, 5, got.Count(202))
	require.GreaterOrEqual(t, Quantile(got.FromDue[202], 100), 5*slow-40*time.Millisecond, "the last one was due after 40 ms")
	require.Less(t, Quantile(got.FromSent[202], 50), 4*slow)
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	h := NewHistogram()
	for i := range 100 {
		Record(h, time.Duration(i+1)*time.Millisecond)
	}
	require.InEpsilon(t, 50*time.Millisecond, Quantile(h, 50), 0.01)
	require.InEpsilon(t, 99*time.Millisecond, Quantile(h, 99), 0.01)
	Record(h, time.Hour)
	Record(h, -time.Second)
	require.EqualValues(t, 102, h.TotalCount(), "what is out of range is counted too")
	require.InEpsilon(t, time.Minute, Quantile(h, 100), 0.01)
	require.Equal(t, time.Microsecond, Quantile(h, 0))
}

func TestGateKeepsTheBacklogBounded(t *testing.T) {
	t.Parallel()
	g := NewGate(2)
	ctx, end := context.WithCancel(t.Context())
	entered := make(chan struct{})
	go func() {
		for range 5 {
			_ = g.enter(ctx)
			entered <- struct{}{}
		}
	}()
	within := func(want bool) {
		t.Helper()
		select {
		case <-entered:
			require.True(t, want, "one too many")
		case <-time.After(map[bool]time.Duration{true: 10 * time.Second, false: 50 * time.Millisecond}[want]):
			require.False(t, want, "no client gets in")
		}
	}
	within(true)
	within(true)
	within(false)
	g.Update(1)
	within(true)
	within(false)
	end()
	within(true)
	within(true)

	var open *Gate
	require.NoError(t, open.enter(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, open.enter(ended), context.Canceled)
}

// Requests leave at their rate whatever becomes of the ones before, and what
// finds no connection in time is counted apart from what was refused.
func TestOpenLoopOffersAllAndCountsAnswers(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	statuses := []int{http.StatusAccepted, http.StatusServiceUnavailable}
	got := OpenLoop{Rate: 1000, During: 100 * time.Millisecond, Connections: 4, Patience: time.Minute}.Run(t.Context(), func() func() int {
		return func() int { return statuses[sent.Add(1)%2] }
	})
	require.Equal(t, 100, got.Offered)
	require.Zero(t, got.Unsent)
	require.Equal(t, 50, got.Count(http.StatusAccepted))
	require.Equal(t, 100, got.Count(statuses...))
	require.GreaterOrEqual(t, got.Took, 99*time.Millisecond)
	require.Contains(t, got.String(), "50 x 202")

	blocked := make(chan struct{})
	time.AfterFunc(200*time.Millisecond, func() { close(blocked) })
	impatient := OpenLoop{Rate: 1000, During: 50 * time.Millisecond, Connections: 1, Patience: 10 * time.Millisecond}
	got = impatient.Run(t.Context(), func() func() int {
		return func() int { <-blocked; return 0 }
	})
	require.Equal(t, 50, got.Offered)
	require.Equal(t, 1, got.Count(0), "it never got an answer")
	require.Equal(t, 49, got.Unsent, "the one connection was taken")
	require.Contains(t, got.String(), "1 x no answer")
	require.Contains(t, got.String(), "49 not sent")
}

// A latency counts from when a request was due, and from when it was sent.
func TestOpenLoopCountsFromDueAndFromSent(t *testing.T) {
	t.Parallel()
	queue := make(chan time.Time, 1)
	queue <- time.Now().Add(-time.Second)
	close(queue)
	got := OpenLoop{Patience: time.Minute}.answer(queue, func() int { return http.StatusOK })
	require.Greater(t, Quantile(got.FromDue[http.StatusOK], 50), 900*time.Millisecond)
	require.Less(t, Quantile(got.FromSent[http.StatusOK], 50), 900*time.Millisecond)
}
