package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestWindow(t *testing.T) {
	w := newWorldJobs(t)
	window := NewWindow(10, w.store, w.metrics, w.logger)
	require.False(t, window.admit(), "nobody knows what waits")
	ctx := context.Background()
	require.NoError(t, window.Count(ctx))
	require.NoError(t, window.Count(ctx)) // the one above is in it

	var tasks []job.Task
	for _, step := range []struct {
		due  int
		open bool
	}{{0, true}, {9, true}, {11, false}, {9, false}, {6, false}, {5, true}, {9, true}, {12, false}, {0, true}} {
		for len(tasks) < step.due {
			tasks = append(tasks, w.add())
		}
		for len(tasks) > step.due {
			w.store.change(tasks[0].JobID, func(r *row) { r.State = job.Succeeded })
			tasks = tasks[1:]
		}
		require.NoError(t, window.Count(ctx))
		require.Equal(t, step.open, window.admit(), "%d jobs", step.due)
		require.Equal(t, !step.open, w.metric(w.metrics.windowClosed) == 1)
		require.NoError(t, window.Count(ctx))
	}
}

// Jobs that wait for a retry are nothing that is overtaken.
func TestWindowCountsWhatIsDue(t *testing.T) {
	w := newWorldJobs(t)
	window := NewWindow(3, w.store, w.metrics, w.logger)
	for range 10 {
		w.add(func(r *row) { r.RunAt = time.Now().Add(time.Hour) })
	}
	require.NoError(t, window.Count(context.Background()))
	require.True(t, window.admit())
}

// What is accepted here counts at once.
func TestAClosedWindowLeavesJobsToTheRelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		s.window = NewWindow(3, w.store, w.metrics, w.logger)
		ctx := context.Background()
		require.NoError(t, s.window.Count(ctx))
		var ids []job.ID
		for range 6 {
			receipt, err := s.Submit(ctx, request())
			require.NoError(t, err)
			ids = append(ids, receipt.JobID)
		}
		sent := w.queue.sent()
		require.Len(t, sent, 3)
		for i, task := range sent {
			require.Equal(t, ids[i], task.JobID)
		}
		pass(time.Second)
		w.lead()
		pass(time.Second)
		for _, id := range ids {
			r := w.store.job(id)
			require.Equal(t, "pending", w.queue.state(taskOf(&r)))
		}
	})
}
