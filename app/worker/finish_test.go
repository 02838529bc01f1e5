package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// Promise: patterns Lifecycle States, Cancellation
func TestCancelDuringRun(t *testing.T) {
	for name, test := range map[string]struct {
		cancel func(*world, job.Task)
		within time.Duration
	}{
		"with a signal": {(*world).cancel, 0},
		"without a signal, with the next heartbeat": {func(w *world, task job.Task) { w.happens(task, job.Canceled) }, heartbeat},
	} {
		run(t, name, takes(time.Minute), func(t *testing.T, w *world) {
			task, other := w.store.add(), w.store.add()
			handled, unharmed := w.handling(task), w.handling(other)
			began := time.Now()
			test.cancel(w, task)
			require.NoError(t, <-handled)
			require.LessOrEqual(t, time.Since(began), test.within)
			require.Zero(t, w.store.count("Finish"), "no outcome is stored")
			require.NoError(t, <-unharmed)
			w.ended(other, job.Succeeded)
		})
	}
}

// Promise: patterns Lifecycle States, Cancellation
func TestLateCancel(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
		task := w.store.add()
		w.store.hook("Finish", hook{after: func(ctx context.Context) error {
			w.worker.Canceled(task.JobID) // the outcome is already stored
			return ctx.Err()
		}})
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)
		require.Equal(t, 1.0, w.Metric(w.Metrics.Succeeded.WithLabelValues("SUCCESS_FAST")))
		w.worker.Canceled(task.JobID)
		w.worker.Canceled(app.NewID())
	})
}

func TestFinishIsRetriedWhileStorageFails(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
		task := w.store.add()
		w.store.hook("Finish", hook{before: fails(20, errStorage)})
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)
		require.Equal(t, 21, w.store.count("Finish"))

		task = w.store.add()
		w.store.hook("Finish", hook{after: fails(1, errStorage)})
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)
		require.Equal(t, 1.0, w.Metric(w.Metrics.FencedWrites.WithLabelValues("finish")), "the retry after a lost response is fenced")
	})
}

// A heartbeat can return between the commit of an outcome and its response. Such a heartbeat no longer lists the job, but must not stop
// the write.
func TestHeartbeatDuringFinish(t *testing.T) {
	working(t, takes(time.Second), func(t *testing.T, w *world) {
		task := w.store.add()
		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
			time.Sleep(time.Second)
			return nil, workFailure{Reason: job.DependencyFailed}
		}
		w.store.hook("Finish", hook{after: func(ctx context.Context) error {
			app.Sleep(ctx, 2*heartbeat)
			return ctx.Err()
		}})
		require.NoError(t, w.handle(task))
		require.Equal(t, 1.0, w.Sum("jobs_failed_total"))
		synctest.Wait()
	})
}
