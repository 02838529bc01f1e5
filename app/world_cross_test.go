package app

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// lead runs maintenance until the test ends.
func (w *world) lead() (m *Maintenance, stop func()) {
	m = NewMaintenance(MaintenanceDeps{
		Store: w.store, Claims: w.store, Census: w.store, Queue: w.queue, Relay: NewRelay(w.store, w.queue, testWindow, w.metrics, w.logger),
		Deliveries: NewDeliveryRelay(w.store, w.queue, w.metrics, w.logger),
		Publisher:  NewPublisher(PublisherConfig{Stream: testStream, MaxLen: testMaxLen, PublicURL: "https://run.example"}, w.store, w.queue, w.metrics, w.logger),
		Settler:    w.settler, Backoff: testBackoff, Metrics: w.metrics, Tracer: w.tracer(), Log: w.logger,
	})
	return m, w.background(m.Run)
}

// service makes the use cases of clients; limit bounds active and queued jobs.
func (w *world) service(limit int, change ...func(*ServiceConfig)) *Service {
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

// nothingDone asserts that a refused submission left no trace.
func (w *world) nothingDone() {
	w.t.Helper()
	require.Empty(w.t, w.store.jobs)
	require.Empty(w.t, w.queue.sent())
	for _, kind := range job.Kinds() {
		require.Zero(w.t, w.metric(w.metrics.submitted.WithLabelValues(string(kind))))
		require.Zero(w.t, w.metric(w.metrics.queued.WithLabelValues(string(kind))))
	}
	require.Empty(w.t, w.log.lines(w.t, map[string]any{"msg": "job transition"}))
}

func (w *world) submitBatch(s *Service, r job.BatchRequest) *job.Batch {
	w.t.Helper()
	b, replayed, err := s.SubmitBatch(context.Background(), r)
	require.NoError(w.t, err)
	require.False(w.t, replayed)
	return b
}
