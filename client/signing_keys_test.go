package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

func TestDirectory(t *testing.T) {
	t.Parallel()
	const kid = "aqYyLROvIDeE4Mm1pVMlRumgyGRsHzVXijOk8Hqtjws"
	c := capture(t)
	s := serveWith(t, client.Config{MaxTries: 1}, reply{status: 500}, c.directoryAnswers)
	d := s.c.Directory()
	asked := func(n int, why string) {
		t.Helper()
		require.Len(t, s.requests(), n, why)
	}
	_, err := d.Key(kid)
	require.Error(t, err)
	require.False(t, errors.Is(err, client.ErrSignature))
	_, err = d.Key(kid)
	require.Error(t, err)
	asked(1, "not at once again")
	s.clock.pass(5 * time.Second)
	key, err := d.Key(kid)
	require.NoError(t, err)
	require.Equal(t, c.keys[kid], key)
	_, err = d.Key(kid)
	require.NoError(t, err)
	asked(2, "it is kept")
	_, err = d.Key("unknown")
	require.ErrorIs(t, err, client.ErrSignature)
	asked(2, "at most once a minute")
	s.clock.pass(time.Minute)
	for range 3 {
		_, err = d.Key("unknown")
		require.ErrorIs(t, err, client.ErrSignature)
	}
	asked(3, "once more for an unknown one")
	s.clock.pass(5 * time.Minute)
	s.mu.Lock()
	s.replies = []reply{{status: 500}}
	s.mu.Unlock()
	_, err = d.Key(kid)
	require.NoError(t, err, "while the service is away")
	asked(4, "kept for five minutes")
	_, err = d.Key("unknown")
	require.Error(t, err)
	require.False(t, errors.Is(err, client.ErrSignature), "it may be a new one")
	s.clock.pass(time.Hour)
	_, err = d.Key(kid)
	require.Error(t, err, "but not for ever")
}

// A key that is known and fresh does not wait for a reading that some other id
// has caused, and those who need one share it.
func TestDirectoryDoesNotWaitForNothing(t *testing.T) {
	t.Parallel()
	const kid = "aqYyLROvIDeE4Mm1pVMlRumgyGRsHzVXijOk8Hqtjws"
	c := capture(t)
	var asked atomic.Int64
	reached, open := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 2 {
			close(reached)
			<-open
		}
		w.Header().Set("Content-Type", c.directoryAnswers.kind)
		_, _ = w.Write([]byte(c.directoryAnswers.body))
	}))
	defer server.Close()
	clock := newClock()
	library, err := client.New(client.Config{URL: server.URL, Now: clock.Now})
	require.NoError(t, err)
	d := library.Directory()
	_, err = d.Key(kid)
	require.NoError(t, err)
	clock.pass(61 * time.Second)
	const strangers = 5
	ended := make(chan error, strangers)
	for range strangers {
		go func() {
			_, err := d.Key("unknown")
			ended <- err
		}()
	}
	<-reached
	_, err = d.Key(kid) // while the reading is under way
	require.NoError(t, err)
	close(open)
	for range strangers {
		require.ErrorIs(t, <-ended, client.ErrSignature)
	}
	require.EqualValues(t, 2, asked.Load())
}
