package maintenance

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
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
	bubble(t, func(t *testing.T, w *worldMaint) {
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
	bubble(t, func(t *testing.T, w *worldMaint) {
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

// throttled is storage with so many jobs that may be resumed.
type throttled struct {
	tasks []job.Task
	calls int
	most  int
}

func (s *throttled) ResumeThrottled(_ context.Context, most, _, limit int) ([]job.Task, error) {
	s.most, s.calls = most, s.calls+1
	n := min(limit, len(s.tasks))
	resumed := s.tasks[:n]
	s.tasks = s.tasks[n:]
	return resumed, nil
}

// In one round, however many they are; without a limit those of a limit that there was before.
func TestThrottledJobsAreDispatched(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		store, relay := &throttled{}, NewRelay(w.Store, w.Queue, testWindow, w.Metrics, w.Logger)
		for range throttleBatch + 1 {
			store.tasks = append(store.tasks, job.Task{JobID: app.NewID(), Attempt: 1, Dispatch: 1})
		}
		round := Throttle{Store: store, Most: 7}.task(relay)
		require.Equal(t, throttleInterval, round.interval)
		require.NoError(t, round.run(t.Context(), always))
		require.Equal(t, []int{7, 2}, []int{store.most, store.calls})
		require.EqualValues(t, throttleBatch+1, w.repaired(app.Resumed))

		round = Throttle{Store: store}.task(relay)
		require.Equal(t, throttleIntervalIdle, round.interval)
		require.NoError(t, round.run(t.Context(), always))
		require.Equal(t, math.MaxInt32, store.most)
	})
}
