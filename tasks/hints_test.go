package tasks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestHints(t *testing.T) {
	t.Parallel()
	h := newHints()
	start := time.Now()
	at := func(d time.Duration, want []job.ID, wantWait time.Duration) {
		t.Helper()
		got, wait := h.take(start.Add(d), []job.ID{other})
		require.Equal(t, want, got)
		require.Equal(t, wantWait, wait)
	}
	none, ms := []job.ID{}, time.Millisecond
	at(0, none, 0)
	for range 10 {
		require.True(t, h.add(anna))
	}
	at(0, []job.ID{anna}, hintPause)
	at(0, none, hintPause)
	require.True(t, h.add(bert))
	at(ms, []job.ID{bert}, 4*ms) // somebody else's rest delays nobody
	for range 10 {
		require.True(t, h.add(anna))
	}
	at(hintPause-1, none, 1)
	at(hintPause, []job.ID{anna}, ms)
	at(2*hintPause-1, none, 1)
	require.Len(t, h.clients, 1, "bert has rested and is forgotten")
	at(2*hintPause, none, 0)
	require.Empty(t, h.clients)
	require.True(t, h.add(anna))
	at(2*hintPause+ms, []job.ID{anna}, hintPause)
}

func TestHintsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHints()
	clients := newClients(maxWoken)
	for _, client := range clients {
		require.True(t, h.add(client))
	}
	late := newTask().JobID
	require.False(t, h.add(late))
	require.True(t, h.add(clients[0]), "it waits already")
	now := time.Now()
	got, _ := h.take(now, nil)
	require.Equal(t, clients, got)
	require.False(t, h.add(late))
	got, wait := h.take(now.Add(hintPause), got)
	require.Empty(t, got)
	require.Zero(t, wait)
	require.True(t, h.add(late))
}
