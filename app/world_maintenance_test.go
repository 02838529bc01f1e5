package app

import "testing"

// worldMaint is everything around the maintenance.
type worldMaint struct {
	*testWorld
	settler *BatchCompleter
	hub     *Hub
}

func newWorldMaint(t testing.TB) *worldMaint {
	w := &worldMaint{testWorld: newTestWorld(t)}
	w.settler = NewBatchCompleter(w.store, w.queue, w.metrics, w.logger)
	w.hub = NewHub(w.store, w.listener, w.metrics, w.logger)
	return w
}

// lead runs maintenance until the test ends.
func (w *worldMaint) lead() (m *Maintenance, stop func()) {
	m = NewMaintenance(MaintenanceDeps{
		Store: w.store, Claims: w.store, Census: w.store, Queue: w.queue, Relay: NewRelay(w.store, w.queue, testWindow, w.metrics, w.logger),
		Deliveries: NewDeliveryRelay(w.store, w.queue, w.metrics, w.logger),
		Publisher:  NewPublisher(PublisherConfig{Stream: testStream, MaxLen: testMaxLen, PublicURL: "https://run.example"}, w.store, w.queue, w.metrics, w.logger),
		Settler:    w.settler, Backoff: testBackoff, Metrics: w.metrics, Tracer: w.tracer(), Log: w.logger,
	})
	return m, w.background(m.Run)
}
