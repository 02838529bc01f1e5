package pauses

import (
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

func TestWatch(t *testing.T) {
	t.Parallel()
	url := repotest.URL(t)
	store := repotest.OpenURL(t, url)
	operators, w := New(repotest.OpenURL(t, url), slog.New(slog.DiscardHandler)), NewWatch(store)
	var seen []bool
	w.Follow(func(now job.Pauses) { seen = append(seen, now.Stops(job.SuccessFast, job.ID{1})) })
	w.read(t.Context())
	p, added, err := operators.Pause(t.Context(), job.Pause{Scope: job.PauseAll, Mode: job.ModePause, Operator: "ann"})
	require.NoError(t, err)
	require.True(t, added)
	require.False(t, p.ID.IsZero())
	w.read(t.Context())
	require.NoError(t, operators.Resume(t.Context(), p.ID))
	w.read(t.Context())
	_, _, err = operators.Pause(t.Context(), job.Pause{Scope: job.PauseAll, Mode: job.ModePause, Operator: "ann"})
	require.NoError(t, err)
	w.read(t.Context())
	require.Equal(t, []bool{false, false, true, false, true}, seen)
	store.Close()
	w.read(t.Context())
	require.True(t, w.Now().Stops(job.SuccessFast, job.ID{1}))
	require.Nil(t, (*Watch)(nil).Now())
}

func TestSlowFollowerDoesNotBlock(t *testing.T) {
	t.Parallel()
	store := repotest.OpenURL(t, repotest.URL(t))
	_, _, err := store.AddPause(t.Context(), job.Pause{ID: job.ID{1}, Scope: job.PauseAll, Mode: job.ModePause, Operator: "ann"})
	require.NoError(t, err)
	w, called, slow, done := NewWatch(store), make(chan struct{}), make(chan struct{}), make(chan struct{})
	w.Follow(func(now job.Pauses) {
		if now != nil {
			close(called)
			<-slow
		}
	})
	go func() {
		w.read(t.Context())
		close(done)
	}()
	<-called
	require.True(t, w.Now().Stops(job.SuccessFast, job.ID{1}))
	close(slow)
	<-done
}
