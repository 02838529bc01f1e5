package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
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
	require.ErrorContains(t, err, "answer 503", "a refused client stops the others")
}

// An error of admit ends the load, unless the load's time is over.
func TestClosedLoopWaitsForAdmission(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	broken := errors.New("no")
	admitted := 0
	got, err := closed{clients: 1, during: time.Hour, admit: func(context.Context) error {
		if admitted++; admitted > 3 {
			return broken
		}
		return nil
	}}.submit(t.Context(), target{url: server.URL})
	require.ErrorIs(t, err, broken)
	require.Equal(t, 3, got.accepted)

	got, err = closed{clients: 2, during: time.Millisecond, admit: func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}}.submit(t.Context(), target{url: server.URL})
	require.NoError(t, err)
	require.Zero(t, got.accepted)
}

func TestDuplicateDeliveryCountsOnce(t *testing.T) {
	t.Parallel()
	s := newSubscribers()
	for _, id := range []string{"a", "b", "a"} {
		request := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
		request.Header.Set("webhook-id", id)
		request.Header.Set("ce-time", time.Now().Add(-time.Second).Format(time.RFC3339Nano))
		s.receive(httptest.NewRecorder(), request)
	}
	rate, err := s.await(t.Context(), 2)
	require.NoError(t, err)
	require.Positive(t, rate)
	require.Len(t, s.latency, 2)
	require.GreaterOrEqual(t, slices.Min(s.latency), 990.0)
}
