package worker

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/delivery"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/app/maintenance"
	"github.com/forgerun/forgerun/job"
)

// lead runs maintenance until the test ends.
func (w *world) lead() (m *maintenance.Maintenance, stop func()) {
	m = maintenance.NewMaintenance(maintenance.MaintenanceDeps{
		Store: w.Store, Claims: w.Store, Backlog: w.Store, Queue: w.Queue, Relay: maintenance.NewRelay(w.Store, w.Queue, apptest.Window, w.Metrics, w.Logger),
		Deliveries: delivery.NewRelay(w.Store, w.Queue, w.Metrics, w.Logger),
		Publisher:  maintenance.NewPublisher(maintenance.PublisherConfig{Stream: apptest.Stream, MaxLen: apptest.StreamLen, PublicURL: "https://run.example"}, w.Store, w.Queue, w.Metrics, w.Logger),
		Completer:  w.completer, Backoff: apptest.Backoff, Metrics: w.Metrics, Tracer: w.Tracer(), Log: w.Logger,
	})
	return m, w.Background(m.Run)
}

// service makes the use cases of clients; limit bounds active and queued jobs.
func (w *world) service(limit int, change ...func(*jobs.ServiceConfig)) *jobs.Service {
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

// nothingDone asserts that a refused submission left no trace.
func (w *world) nothingDone() {
	w.T.Helper()
	require.Empty(w.T, w.Store.Rows)
	require.Empty(w.T, w.Queue.Sent())
	for _, kind := range job.Kinds() {
		require.Zero(w.T, w.Metric(w.Metrics.Submitted.WithLabelValues(string(kind))))
		require.Zero(w.T, w.Metric(w.Metrics.Queued.WithLabelValues(string(kind))))
	}
	require.Empty(w.T, w.Log.Lines(w.T, map[string]any{"msg": "job transition"}))
}

func (w *world) submitBatch(s *jobs.Service, r job.BatchRequest) *job.Batch {
	w.T.Helper()
	b, replayed, err := s.SubmitBatch(context.Background(), r)
	require.NoError(w.T, err)
	require.False(w.T, replayed)
	return b
}
