package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestWindow(t *testing.T) {
	w := newWorldJobs(t)
	window := NewWindow(10, w.Store, w.Metrics, w.Logger)
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
			tasks = append(tasks, w.Add())
		}
		for len(tasks) > step.due {
			w.Store.Change(tasks[0].JobID, func(r *apptest.Row) { r.State = job.Succeeded })
			tasks = tasks[1:]
		}
		require.NoError(t, window.Count(ctx))
		require.Equal(t, step.open, window.admit(), "%d jobs", step.due)
		require.Equal(t, !step.open, w.Metric(w.Metrics.WindowClosed) == 1)
		require.NoError(t, window.Count(ctx))
	}
}

// Jobs that wait for a retry are nothing that is overtaken.
func TestWindowCountsWhatIsDue(t *testing.T) {
	w := newWorldJobs(t)
	window := NewWindow(3, w.Store, w.Metrics, w.Logger)
	for range 10 {
		w.Add(func(r *apptest.Row) { r.RunAt = time.Now().Add(time.Hour) })
	}
	require.NoError(t, window.Count(context.Background()))
	require.True(t, window.admit())
}

// What is accepted here counts at once.
func TestAClosedWindowLeavesJobsToTheRelay(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		s.window = NewWindow(3, w.Store, w.Metrics, w.Logger)
		ctx := context.Background()
		require.NoError(t, s.window.Count(ctx))
		var ids []job.ID
		for range 6 {
			receipt, err := s.Submit(ctx, newRequest())
			require.NoError(t, err)
			ids = append(ids, receipt.JobID)
		}
		sent := w.Queue.Sent()
		require.Len(t, sent, 3)
		for i, task := range sent {
			require.Equal(t, ids[i], task.JobID)
		}
		apptest.Pass(time.Second)
		w.lead()
		apptest.Pass(time.Second)
		for _, id := range ids {
			r := w.Store.RowOf(id)
			require.Equal(t, "pending", w.Queue.State(apptest.TaskOf(&r)))
		}
	})
}
