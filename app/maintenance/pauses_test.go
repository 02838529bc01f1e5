package maintenance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// asideStore is storage with jobs that were put aside, and may go on.
type asideStore struct {
	pauses job.Pauses
	tasks  []job.Task
	looks  int
	after  []job.ID
}

func (s *asideStore) Pauses(context.Context) (job.Pauses, error) { return s.pauses, nil }

func (s *asideStore) ResumePaused(_ context.Context, after job.ID, limit int) (tasks []job.Task, last job.ID, err error) {
	s.looks++
	s.after = append(s.after, after)
	n := min(limit, len(s.tasks))
	tasks, s.tasks = s.tasks[:n], s.tasks[n:]
	if n == limit {
		last = tasks[n-1].JobID
	}
	return tasks, last, nil
}

func (s *asideStore) add(n int) {
	for range n {
		s.tasks = append(s.tasks, job.Task{JobID: app.NewID(), Attempt: 1, Dispatch: 1})
	}
}

// What was put aside is looked at after a change of the pauses, for as long as a claim may have seen what was before, and now and
// then; not all the time.
func TestPausedJobsAreLookedAtAfterAChange(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		store := &asideStore{}
		sweep := &pauseSweep{store: store, relay: NewRelay(w.Store, w.Queue, testWindow, w.Metrics, w.Logger)}
		looks := func() int {
			before := store.looks
			require.NoError(t, sweep.round(t.Context(), always))
			return store.looks - before
		}
		require.Equal(t, 1, looks(), "a leader that begins")
		require.Zero(t, looks())
		store.pauses = job.Pauses{{ID: app.NewID()}}
		require.Equal(t, 1, looks())
		require.Equal(t, 1, looks(), "a claim may put one aside still")
		time.Sleep(pauseSettles + 1)
		require.Zero(t, looks())
		store.pauses = nil
		require.Equal(t, 1, looks())
		time.Sleep(pauseSweepEvery)
		require.Equal(t, 1, looks())
		require.Zero(t, looks())
	})
}

// A few jobs are enqueued at once; of many, the relay enqueues what there is room for, from the oldest on.
func TestResumedJobsAreEnqueued(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		store := &asideStore{}
		relay := NewRelay(w.Store, w.Queue, testWindow, w.Metrics, w.Logger)
		sweep := &pauseSweep{store: store, relay: relay}
		store.add(3)
		require.NoError(t, sweep.round(t.Context(), always))
		require.EqualValues(t, 3, w.Metric(w.Metrics.Repaired.WithLabelValues(app.Resumed)))
		require.False(t, relay.again.Load())

		store.pauses = job.Pauses{{ID: app.NewID()}}
		store.add(2*pauseBatch + 1)
		require.NoError(t, sweep.round(t.Context(), always))
		require.Empty(t, store.tasks, "all in one round")
		require.EqualValues(t, 3+pauseBatch, w.Metric(w.Metrics.Repaired.WithLabelValues(app.Resumed)))
		require.True(t, relay.again.Load())
		relay.watermark = job.QueueCursor{RunAt: time.Now()}
		require.NoError(t, relay.fillDue(t.Context(), func() bool { return false }))
		require.Zero(t, relay.passed(), "the walk starts over")
		require.False(t, relay.again.Load())
	})
}
