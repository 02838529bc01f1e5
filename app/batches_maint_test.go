package app

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// The process that ended the last job died before it settled the batch.
func TestMaintenanceSettlesWhatNobodyDid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		s := w.service(10_000)
		var batches []*job.Batch
		for range settlerBatch + 5 {
			b := w.submitBatch(s, batchRequest(request()))
			w.store.change(b.Items[0].JobID, func(r *row) { r.State = job.Succeeded })
			batches = append(batches, b)
		}
		open := w.submitBatch(s, batchRequest(request()))
		w.store.hook("CompleteBatches", hook{before: fails(1, errStorage)})
		w.lead()
		pass(settlerInterval)
		require.Equal(t, 1.0, w.metric(w.metrics.maintenanceErrors.WithLabelValues("settler")))
		pass(settlerInterval)
		for _, b := range batches {
			require.NotNil(t, w.outcome(b))
		}
		require.Nil(t, w.outcome(open))
		require.Equal(t, float64(len(batches)), w.metric(w.metrics.repaired.WithLabelValues("settler")))
		require.Equal(t, float64(len(batches)), w.metric(w.metrics.batchesCompleted.WithLabelValues("COMPLETED")))
	})
}

// A round looks at the open batches after those of the round before, and then
// from the beginning again.
func TestMaintenanceKeepsItsPlaceAmongBatches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		s := w.service(10)
		early, late := w.submitBatch(s, batchRequest(request())), w.submitBatch(s, batchRequest(request()))
		for _, b := range []*job.Batch{early, late} {
			w.store.change(b.Items[0].JobID, func(r *row) { r.State = job.Succeeded })
		}
		m, _ := w.lead()
		m.settleAfter = early.ID
		w.store.hook("CompleteBatches", hook{before: fails(1, errStorage)})
		require.ErrorIs(t, m.settle(context.Background()), errStorage)
		require.Equal(t, early.ID, m.settleAfter, "they are tried again")
		require.NoError(t, m.settle(context.Background()))
		require.NotNil(t, w.outcome(late))
		require.Nil(t, w.outcome(early))
		require.NoError(t, m.settle(context.Background()))
		require.NotNil(t, w.outcome(early))
	})
}

// service makes the use cases of clients; limit bounds active and queued jobs.
func (w *worldMaint) service(limit int, change ...func(*ServiceConfig)) *Service {
	cfg := ServiceConfig{Catalogue: testCatalogue, MaxAttempts: 4, Backoff: testBackoff}
	for _, f := range change {
		f(&cfg)
	}
	capacity := NewCapacity(limit, limit, w.store, w.logger)
	return NewService(cfg, ServiceDeps{
		Jobs: w.store, Reader: w.store, Batches: w.store, Queue: w.queue, Progress: w.queue,
		Capacity: capacity, Hub: w.hub, Settler: w.settler, Metrics: w.metrics, Log: w.logger,
	})
}

func (w *worldMaint) submitBatch(s *Service, r job.BatchRequest) *job.Batch {
	w.t.Helper()
	b, replayed, err := s.SubmitBatch(context.Background(), r)
	require.NoError(w.t, err)
	require.False(w.t, replayed)
	return b
}

// outcome gives how a batch ended, nil while it has not.
func (w *worldMaint) outcome(b *job.Batch) *job.BatchOutcome {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	return w.store.batches[b.ID].Outcome
}
