package app

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestWindow(t *testing.T) {
	w := newWorld(t)
	c := NewCapacity(1000, 1000, w.store, w.logger)
	window := NewWindow(10, c, w.metrics)
	require.False(t, window.open(), "nobody knows what waits")
	ctx := context.Background()
	require.NoError(t, c.refresh(ctx))
	require.NoError(t, c.countWorkers(ctx))

	var tasks []job.Task
	for _, step := range []struct {
		queued int
		open   bool
	}{{0, true}, {10, true}, {11, false}, {10, false}, {6, false}, {5, true}, {10, true}, {12, false}, {0, true}} {
		for len(tasks) < step.queued {
			tasks = append(tasks, w.add())
		}
		for len(tasks) > step.queued {
			w.store.change(tasks[0].JobID, func(r *row) { r.State = job.Succeeded })
			tasks = tasks[1:]
		}
		require.NoError(t, c.refresh(ctx))
		require.Equal(t, step.open, window.open(), "%d jobs", step.queued)
		require.Equal(t, !step.open, w.metric(w.metrics.windowClosed) == 1)
	}
}

// What is accepted here counts at once.
func TestAClosedWindowLeavesJobsToTheRelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.service(10)
		s.window = NewWindow(3, s.capacity, w.metrics)
		ctx := context.Background()
		require.NoError(t, s.capacity.refresh(ctx))
		require.NoError(t, s.capacity.countWorkers(ctx))
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
		pass(relayMinAge)
		w.round(NewRelay(w.store, w.queue, 100, w.metrics, w.logger))
		for _, id := range ids {
			w.inQueue(job.Task{JobID: id})
		}
	})
}
