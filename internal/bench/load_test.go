package main

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

func TestClosedLoopCountsAcceptedJobs(t *testing.T) {
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
	got, err := closed{clients: 4, jobs: 20}.submit(t.Context(), target{url: server.URL})
	require.NoError(t, err)
	require.Equal(t, 20, got.accepted)
	require.EqualValues(t, 20, received.Load())

	_, err = closed{clients: 4, during: time.Hour}.submit(t.Context(), target{url: server.URL})
	require.ErrorContains(t, err, "answer 503", "a refused client ends the others")
}

func TestGateLimitsTheBacklog(t *testing.T) {
	t.Parallel()
	g := &gate{unfinished: make(chan struct{}, 2)}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.True(t, g.enter(t.Context()))
	require.True(t, g.enter(t.Context()))
	require.False(t, g.enter(ended), "it is full")
	g.update(1)
	require.True(t, g.enter(t.Context()))
	g.update(9)
	require.Empty(t, g.unfinished, "jobs that did not come through the gate do not count")
	var open *gate
	require.True(t, open.enter(t.Context()))
}

// Requests leave at their rate even if none is answered before all were sent.
func TestPacedRequestsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	const n = 20
	var sent atomic.Int64
	all := make(chan struct{})
	latency, err := paced(t.Context(), 1000, n*time.Millisecond, func(int) error {
		if sent.Add(1) == n {
			close(all)
		}
		<-all
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, n, latency.TotalCount())
	require.GreaterOrEqual(t, quantile(latency, 100), float64(n-2), "from when the first was due until the last was sent")

	broken := errors.New("no")
	_, err = paced(t.Context(), 1000, time.Hour, func(int) error { return broken })
	require.ErrorIs(t, err, broken)
}

func TestDeliveryThatComesTwiceCountsOnce(t *testing.T) {
	t.Parallel()
	s := &subscribers{news: make(chan struct{}, 1), seen: map[string]bool{}, latency: newHistogram()}
	for _, id := range []string{"a", "b", "a"} {
		request := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
		request.Header.Set("webhook-id", id)
		request.Header.Set("ce-time", time.Now().Add(-time.Second).Format(time.RFC3339Nano))
		s.receive(httptest.NewRecorder(), request)
	}
	rate, err := s.await(t.Context(), 2)
	require.NoError(t, err)
	require.Positive(t, rate)
	require.EqualValues(t, 2, s.latency.TotalCount())
	require.GreaterOrEqual(t, s.latency.Min(), time.Second.Microseconds()*99/100)
}
