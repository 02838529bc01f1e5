package maintenance

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/job"
)

// The process that ended the last job died before it settled the batch.
func TestMaintenanceSettlesWhatNobodyDid(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		s := w.service(10_000)
		var ended []*job.Batch
		for range batches.ChunkSize + 5 {
			b := w.submitBatch(s, apptest.BatchRequest(apptest.Request()))
			w.Store.Change(b.Items[0].JobID, func(r *apptest.Row) { r.State = job.Succeeded })
			ended = append(ended, b)
		}
		open := w.submitBatch(s, apptest.BatchRequest(apptest.Request()))
		w.Store.Hook("CompleteBatches", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		w.lead()
		apptest.Pass(completerInterval)
		require.Equal(t, 1.0, w.Metric(w.Metrics.MaintenanceErrors.WithLabelValues("batch_completer")))
		apptest.Pass(completerInterval)
		for _, b := range ended {
			require.NotNil(t, w.outcome(b))
		}
		require.Nil(t, w.outcome(open))
		require.Equal(t, float64(len(ended)), w.Metric(w.Metrics.Repaired.WithLabelValues("batch_completer")))
		require.Equal(t, float64(len(ended)), w.Metric(w.Metrics.BatchesCompleted.WithLabelValues("COMPLETED")))
	})
}

// A round looks at the open batches after those of the round before, and then
// from the beginning again.
func TestMaintenanceKeepsItsPlaceAmongBatches(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		s := w.service(10)
		early, late := w.submitBatch(s, apptest.BatchRequest(apptest.Request())), w.submitBatch(s, apptest.BatchRequest(apptest.Request()))
		for _, b := range []*job.Batch{early, late} {
			w.Store.Change(b.Items[0].JobID, func(r *apptest.Row) { r.State = job.Succeeded })
		}
		m, _ := w.lead()
		m.completeAfter = early.ID
		w.Store.Hook("CompleteBatches", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		require.ErrorIs(t, m.completeBatches(context.Background()), apptest.ErrStorage)
		require.Equal(t, early.ID, m.completeAfter, "they are tried again")
		require.NoError(t, m.completeBatches(context.Background()))
		require.NotNil(t, w.outcome(late))
		require.Nil(t, w.outcome(early))
		require.NoError(t, m.completeBatches(context.Background()))
		require.NotNil(t, w.outcome(early))
	})
}

// service makes the use cases of clients; limit bounds active and queued jobs.
func (w *worldMaint) service(limit int, change ...func(*jobs.ServiceConfig)) *jobs.Service {
	cfg := jobs.ServiceConfig{Catalogue: apptest.Catalogue, MaxAttempts: 4, Backoff: apptest.Backoff}
	for _, f := range change {
		f(&cfg)
	}
	capacity := jobs.NewCapacity(limit, limit, w.Store, w.Logger)
	return jobs.NewService(cfg, jobs.ServiceDeps{
		Jobs: w.Store, Reader: w.Store, Batches: w.Store, Queue: w.Queue, Progress: w.Queue,
		Capacity: capacity, Hub: w.hub, Completer: w.completer, Metrics: w.Metrics, Log: w.Logger,
	})
}

func (w *worldMaint) submitBatch(s *jobs.Service, r job.BatchRequest) *job.Batch {
	w.T.Helper()
	b, replayed, err := s.SubmitBatch(context.Background(), r)
	require.NoError(w.T, err)
	require.False(w.T, replayed)
	return b
}

// outcome gives how a batch ended, nil while it has not.
func (w *worldMaint) outcome(b *job.Batch) *job.BatchOutcome {
	w.Store.Mu.Lock()
	defer w.Store.Mu.Unlock()
	return w.Store.Batches[b.ID].Outcome
}
