package maintenance

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

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

// TestResumedJobsAreDispatched in one round, however many they are.
func TestResumedJobsAreDispatched(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		store := &throttled{}
		for range throttleBatch + 1 {
			store.tasks = append(store.tasks, job.Task{JobID: app.NewID(), Attempt: 1, Dispatch: 1})
		}
		round := Throttle{Store: store, Most: 7}.task(NewRelay(w.Store, w.Queue, testWindow, w.Metrics, w.Logger))
		require.Equal(t, throttleInterval, round.interval)
		require.NoError(t, round.run(t.Context(), always))
		require.Equal(t, 7, store.most)
		require.Equal(t, 2, store.calls)
		require.EqualValues(t, throttleBatch+1, w.Metric(w.Metrics.Repaired.WithLabelValues(app.Resumed)))
	})
}

// TestWithoutALimitAllAreResumed, those of a limit that there was before.
func TestWithoutALimitAllAreResumed(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		store := &throttled{}
		round := Throttle{Store: store}.task(NewRelay(w.Store, w.Queue, testWindow, w.Metrics, w.Logger))
		require.Equal(t, throttleIntervalIdle, round.interval)
		require.NoError(t, round.run(t.Context(), always))
		require.Equal(t, math.MaxInt32, store.most)
	})
}
