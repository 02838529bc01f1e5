package maintenance

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

// The process that ended the last job died before it completed the batch.
func TestMaintenanceCompletesWhatNobodyDid(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		var ended []*job.Batch
		for range batches.ChunkSize + 5 {
			b, only := w.addBatch()
			w.Store.Change(only.JobID, func(r *apptest.Row) { r.State = job.Succeeded })
			ended = append(ended, b)
		}
		open, _ := w.addBatch()
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
		early, first := w.addBatch()
		late, second := w.addBatch()
		for _, only := range []job.Task{first, second} {
			w.Store.Change(only.JobID, func(r *apptest.Row) { r.State = job.Succeeded })
		}
		m, _ := w.lead()
		m.completeAfter = early.ID
		w.Store.Hook("CompleteBatches", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		require.ErrorIs(t, m.completeBatches(context.Background(), m.Leading), apptest.ErrStorage)
		require.Equal(t, early.ID, m.completeAfter, "they are tried again")
		require.NoError(t, m.completeBatches(context.Background(), m.Leading))
		require.NotNil(t, w.outcome(late))
		require.Nil(t, w.outcome(early))
		require.NoError(t, m.completeBatches(context.Background(), m.Leading))
		require.NotNil(t, w.outcome(early))
	})
}

// addBatch stores a batch of one job.
func (w *worldMaint) addBatch() (*job.Batch, job.Task) {
	b := &job.Batch{ID: app.NewID(), ClientID: apptest.ClientA, RequestID: "request-1", CreatedAt: time.Now()}
	w.Store.Update(func() { w.Store.Batches[b.ID] = b })
	return b, w.Add(func(r *apptest.Row) { r.BatchID = b.ID })
}

// outcome gives how a batch ended, nil while it has not.
func (w *worldMaint) outcome(b *job.Batch) *job.BatchOutcome {
	w.Store.Mu.Lock()
	defer w.Store.Mu.Unlock()
	return w.Store.Batches[b.ID].Outcome
}
