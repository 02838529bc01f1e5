package client_test

import (
	"errors"
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
	require.Error(t, second(d.Key(kid)))
	asked(1, "not at once again")
	s.clock.pass(5 * time.Second)
	key := must(d.Key(kid))(t)
	require.Equal(t, c.keys[kid], key)
	require.NoError(t, second(d.Key(kid)))
	asked(2, "it is kept")
	require.ErrorIs(t, second(d.Key("unknown")), client.ErrSignature)
	asked(2, "at most once a minute")
	s.clock.pass(time.Minute)
	for range 3 {
		require.ErrorIs(t, second(d.Key("unknown")), client.ErrSignature)
	}
	asked(3, "once more for an unknown one")
	s.clock.pass(5 * time.Minute)
	s.mu.Lock()
	s.replies = []reply{{status: 500}}
	s.mu.Unlock()
	require.NoError(t, second(d.Key(kid)), "while the service is away")
	asked(4, "kept for five minutes")
	_, err = d.Key("unknown")
	require.Error(t, err)
	require.False(t, errors.Is(err, client.ErrSignature), "it may be a new one")
	s.clock.pass(time.Hour)
	require.Error(t, second(d.Key(kid)), "but not for ever")
}
