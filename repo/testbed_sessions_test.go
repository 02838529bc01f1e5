package repo_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
)

func newSession() testbed.Session {
	return testbed.Session{ID: newID(), Profile: testbed.FlakyNetwork, Seed: 7, Rules: []string{"backoff"}}
}

// Of sessions that are begun at once a client gets one, requests that come at once are all recorded, each once, and another client
// has nothing of it.
func TestSessionsRecord(t *testing.T) {
	t.Parallel()
	f := setup(t)
	other := newID()
	var group sync.WaitGroup
	var begun atomic.Pointer[testbed.Session]
	for range 8 {
		group.Go(func() {
			n, ok, err := f.store.StartSession(f.ctx(), f.client, newSession(), testbed.MaxSessions)
			if err != nil || ok && !begun.CompareAndSwap(nil, &n) {
				t.Error("two sessions are open", err)
			}
		})
	}
	group.Wait()
	session := *begun.Load()
	require.Nil(t, session.EndedAt)
	require.Equal(t, newSession().Rules, session.Rules)

	const requests = 20
	at := time.Now().UTC().Truncate(time.Microsecond)
	for n := range requests {
		group.Go(func() {
			x := &testbed.Exchange{Start: at.Add(-time.Duration(n) * time.Second), Method: "GET", Status: 200, Shown: []job.ID{newID()}}
			if f.store.Record(f.ctx(), f.client, x) != nil || f.store.Record(f.ctx(), other, x) != nil {
				t.Error("it was not recorded")
			}
		})
	}
	group.Wait()
	exchanges, runs, attempts, err := f.store.Recorded(f.ctx(), f.client, session)
	require.NoError(t, err)
	require.Len(t, exchanges, requests)
	require.Empty(t, runs)
	require.Empty(t, attempts)
	for n := range exchanges {
		require.Equal(t, at.Add(time.Duration(n+1-requests)*time.Second), exchanges[n].Start, "in the order of their beginnings")
		require.Len(t, exchanges[n].Shown, 1)
	}
	require.Equal(t, requests, f.count("testbed_exchanges"), "a client without a session has no record")

	_, found, err := f.store.EndSession(f.ctx(), other, session.ID)
	require.NoError(t, err)
	require.False(t, found)
	ended, found, err := f.store.EndSession(f.ctx(), f.client, session.ID)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, requests, ended.Recorded)
	again, _, err := f.store.EndSession(f.ctx(), f.client, session.ID)
	require.NoError(t, err)
	require.Equal(t, ended, again)
	require.NoError(t, f.store.Record(f.ctx(), f.client, &testbed.Exchange{}))
	require.Equal(t, requests, f.count("testbed_exchanges"), "it has ended")
}

// The oldest sessions go, with what they recorded.
func TestSessionsAreForgotten(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const keep = 2
	var last testbed.Session
	for range 5 {
		n, ok, err := f.store.StartSession(f.ctx(), f.client, newSession(), keep)
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, f.store.Record(f.ctx(), f.client, &testbed.Exchange{Method: "GET"}))
		last, _, err = f.store.EndSession(f.ctx(), f.client, n.ID)
		require.NoError(t, err)
	}
	list, err := f.store.Sessions(f.ctx(), f.client)
	require.NoError(t, err)
	require.Len(t, list, keep+1, "the last one was open when the others were counted")
	require.Equal(t, last.ID, list[0].ID)
	require.Equal(t, keep+1, f.count("testbed_exchanges"))
}
