package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/job"
)

// wasPublished asserts that the end of a batch was logged, counted and published once.
func (w *worldJobs) wasPublished(b *job.Batch, status job.Status) {
	w.T.Helper()
	require.Len(w.T, w.Log.Lines(w.T, map[string]any{
		"action": "batch_completed", "request_id": "request-1", "client_id": apptest.ClientA.String(), "batch_id": b.ID.String(),
		"status": string(status),
	}), 1)
	require.Equal(w.T, 1.0, w.Metric(w.Metrics.BatchesCompleted.WithLabelValues(string(status))))
	published := 0
	for _, n := range w.Queue.Notifications() {
		if n == (job.Notification{ClientID: apptest.ClientA}) {
			published++
		}
	}
	require.Equal(w.T, 1, published)
}

// A batch is completed whoever ends its last job, and no sooner.
func TestBatchesAreCompleted(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*worldJobs, *Service, job.Task)
		want job.Status
	}{
		"worker": {func(w *worldJobs, _ *Service, t job.Task) { _ = w.handle(t) }, job.StatusCompleted},
		"cancel": {func(_ *worldJobs, s *Service, t job.Task) {
			_, _ = s.Cancel(context.Background(), apptest.ClientA, t.JobID)
		}, job.StatusCancelled},
		"rescuer": {func(w *worldJobs, _ *Service, t job.Task) {
			w.Store.Change(t.JobID, apptest.HeldByTheDead(job.Running))
			_ = w.giveBack()
		}, job.StatusFailed},
	} {
		run(t, name, func(t *testing.T, w *worldJobs, s *Service) {
			w.start()
			w.Background(w.completer.Run)
			b := w.submitBatch(s, newBatchRequest(newRequests(2)...))
			w.Queue.Notifications()
			for i, item := range b.Items {
				require.Nil(t, w.outcome(b))
				test.end(w, s, job.Task{JobID: item.JobID, Attempt: 1})
				apptest.Pass(batches.RestInterval)
				require.Equal(t, i+1, w.Store.Count("CompleteBatches"))
			}
			require.Equal(t, test.want, w.outcome(b).Status)
			w.wasPublished(b, test.want)
		})
	}
}

func TestCompletingIsRepeatedThroughTrouble(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		stop := w.Background(w.completer.Run)
		b := w.submitBatch(s, newBatchRequest(newRequest()))
		w.Queue.Notifications()
		w.Store.Hook("CompleteBatches", apptest.Hook{Before: apptest.Fails(3, apptest.ErrStorage)})
		require.NoError(t, second(s.Cancel(context.Background(), apptest.ClientA, b.Items[0].JobID)), "nobody waits for it")
		apptest.Pass(2*batches.RetryInterval + 2*batches.RestInterval)
		require.Nil(t, w.outcome(b))
		apptest.Pass(batches.RetryInterval + batches.RestInterval)
		w.wasPublished(b, job.StatusCancelled)
		require.Len(t, w.Log.Lines(t, map[string]any{"level": "WARN", "msg": "cannot complete batches"}), 3)
		asked := w.Store.Count("CompleteBatches")
		apptest.Pass(time.Minute)
		require.Equal(t, asked, w.Store.Count("CompleteBatches"), "nothing is left to complete")

		w.Store.Hook("CompleteBatches", apptest.Hook{Before: apptest.Hangs})
		w.completer.Touch(b.ID)
		apptest.Pass(batches.RestInterval)
		w.completer.Touch(app.NewID()) // does not wait
		stop()                         // at once, although storage hangs
	})
}
