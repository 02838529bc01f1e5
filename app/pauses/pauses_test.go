package pauses_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/pauses"
	"github.com/forgerun/forgerun/job"
)

// store has pauses, or fails.
type store struct {
	mu  sync.Mutex
	all job.Pauses
	err error
}

func (s *store) set(all job.Pauses, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.err = all, err
}

func (s *store) Pauses(context.Context) (job.Pauses, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all, s.err
}

func (s *store) AddPause(_ context.Context, p job.Pause) (job.Pause, bool, error) {
	return p, true, s.err
}

func (s *store) RemovePause(context.Context, job.ID) (job.Pause, error) { return job.Pause{}, s.err }

// A process knows of a change within half a second, and keeps what it knew while storage does not answer.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		w := pauses.NewWatch(s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.Run(ctx)
		var seen []bool
		w.Follow(func(now job.Pauses) { seen = append(seen, now.Stops(job.SuccessFast, job.ID{1})) })
		look := func() bool {
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			return w.Now().Stops(job.SuccessFast, job.ID{1})
		}
		require.False(t, look())
		s.set(job.Pauses{{Scope: job.PauseAll, Mode: job.ModePause}}, nil)
		require.True(t, look())
		s.set(nil, errors.New("storage is away"))
		require.True(t, look())
		s.set(nil, nil)
		require.False(t, look())
		require.Contains(t, seen, true)
		require.False(t, seen[len(seen)-1])
	})
	require.Nil(t, (*pauses.Watch)(nil).Now())
}

// A follower that waits, as one does that gives tasks back to a slow Redis, keeps nobody from asking.
func TestASlowFollowerKeepsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &store{all: job.Pauses{{Scope: job.PauseAll, Mode: job.ModePause}}}
		w := pauses.NewWatch(s)
		slow := make(chan struct{})
		w.Follow(func(now job.Pauses) {
			if now != nil {
				<-slow
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.Run(ctx)
		synctest.Wait()
		require.True(t, w.Now().Stops(job.SuccessFast, job.ID{1}))
		close(slow)
	})
}

func TestPauseNamesItself(t *testing.T) {
	t.Parallel()
	s := pauses.New(&store{}, slog.New(slog.DiscardHandler))
	p, added, err := s.Pause(t.Context(), job.Pause{Scope: job.PauseAll})
	require.NoError(t, err)
	require.True(t, added)
	require.False(t, p.ID.IsZero())
	require.NoError(t, s.Resume(t.Context(), p.ID))
}
