package loadgen

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuantiles(t *testing.T) {
	t.Parallel()
	h := NewHistogram()
	for i := range 100 {
		Record(h, time.Duration(i+1)*time.Millisecond)
	}
	require.InEpsilon(t, 50, Quantile(h, 50), 0.01)
	require.InEpsilon(t, 99, Quantile(h, 99), 0.01)
	Record(h, time.Hour)
	Record(h, -time.Second)
	require.EqualValues(t, 102, h.TotalCount(), "what is out of range is counted too")
	require.InEpsilon(t, 60_000, Quantile(h, 100), 0.01)
}

func TestClosedLoopCountsWhatIsAccepted(t *testing.T) {
	t.Parallel()
	var received atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if received.Add(1) > 20 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(server.Close)
	load, err := Closed{Clients: 4, Jobs: 20}.Submit(t.Context(), Target{URL: server.URL})
	require.NoError(t, err)
	require.Equal(t, 20, load.Accepted)
	require.EqualValues(t, 20, received.Load())

	_, err = Closed{Clients: 4, During: time.Hour}.Submit(t.Context(), Target{URL: server.URL})
	require.ErrorContains(t, err, "answer 503", "one that is refused ends the others")
}

// A client whose gate is shut waits until a job has finished.
func TestGateKeepsTheBacklogBounded(t *testing.T) {
	t.Parallel()
	g := NewGate(2)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, g.enter(t.Context()))
	require.NoError(t, g.enter(t.Context()))
	require.Len(t, g.unfinished, 2)
	g.Update(1)
	require.Len(t, g.unfinished, 1)
	require.NoError(t, g.enter(t.Context()))
	require.ErrorIs(t, g.enter(ended), context.Canceled)
	g.Update(9)
	require.Empty(t, g.unfinished, "jobs that did not come through the gate do not count")

	var open *Gate
	require.NoError(t, open.enter(t.Context()))
	require.ErrorIs(t, open.enter(ended), context.Canceled)
}

// Requests leave at their rate although none is answered before all were sent.
func TestPacedRequestsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	const n = 20
	var sent atomic.Int64
	all := make(chan struct{})
	latency, err := Paced(t.Context(), 1000, n*time.Millisecond, func(int) error {
		if sent.Add(1) == n {
			close(all)
		}
		<-all
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, n, latency.TotalCount())
	require.GreaterOrEqual(t, Quantile(latency, 100), float64(n-2), "from when the first was due until the last was sent")

	broken := errors.New("no")
	_, err = Paced(t.Context(), 1000, time.Hour, func(int) error { return broken })
	require.ErrorIs(t, err, broken)
}
