package app

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/forgerun/forgerun/job"
)

// worldJobs is the use cases of clients, and a worker, with everything around them.
type worldJobs struct {
	*testWorld
	runner  runnerFunc
	hub     *Hub
	reader  *EventReader
	settler *BatchCompleter
	worker  *Worker
}

func newWorldJobs(t testing.TB) *worldJobs {
	w := &worldJobs{testWorld: newTestWorld(t)}
	w.hub = NewHub(w.store, w.listener, w.metrics, w.logger)
	w.reader = NewEventReader(w.store, w.hub)
	w.settler = NewBatchCompleter(w.store, w.queue, w.metrics, w.logger)
	w.worker = w.newWorker()
	return w
}

func (w *worldJobs) newWorker(change ...func(*WorkerConfig)) *Worker {
	cfg := WorkerConfig{
		Name: "test", Concurrency: 4, Lease: testLease, Heartbeat: testHeartbeat, Limit: testLimit, Backoff: testBackoff,
	}
	for _, f := range change {
		f(&cfg)
	}
	run := runnerFunc(func(ctx context.Context, d job.Definition, attempt int) (*job.Result, error) {
		if w.runner != nil {
			return w.runner(ctx, d, attempt)
		}
		return goodResult(d), nil
	})
	return NewWorker(cfg, w.store, w.store, w.queue, w.settler, run, w.metrics, w.logger)
}

// start runs the worker until the test ends or stop is called.
func (w *worldJobs) start() (stop func()) { return w.background(w.worker.Run) }

// handle hands a task to the worker as the queue would.
func (w *worldJobs) handle(t job.Task) error { return w.worker.Handle(context.Background(), t) }

// handling hands a task over in the background; the channel gives the answer.
func (w *worldJobs) handling(t job.Task) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- w.handle(t) }()
	synctest.Wait()
	return answer
}

// lead runs maintenance until the test ends.
func (w *worldJobs) lead() (m *Maintenance, stop func()) {
	m = NewMaintenance(MaintenanceDeps{
		Store: w.store, Claims: w.store, Census: w.store, Queue: w.queue, Relay: NewRelay(w.store, w.queue, testWindow, w.metrics, w.logger),
		Deliveries: NewDeliveryRelay(w.store, w.queue, w.metrics, w.logger),
		Publisher:  NewPublisher(PublisherConfig{Stream: testStream, MaxLen: testMaxLen, PublicURL: "https://run.example"}, w.store, w.queue, w.metrics, w.logger),
		Settler:    w.settler, Backoff: testBackoff, Metrics: w.metrics, Tracer: w.tracer(), Log: w.logger,
	})
	return m, w.background(m.Run)
}
