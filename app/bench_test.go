package app

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/job"
)

// instantStore grants every claim and takes every write.
type instantStore struct {
	ClaimStore
	LeaseStore
	job job.Job
}

func (s *instantStore) Claim(_ context.Context, _, id job.ID, attempt int) (*job.Claim, job.NotClaimed, error) {
	c := &job.Claim{Lease: job.Lease{JobID: id, Attempt: attempt, Fence: 1}, Job: s.job}
	c.Job.ID = id
	return c, job.NotClaimed{}, nil
}

func (s *instantStore) Finish(_ context.Context, f job.Finish) (job.Finished, error) {
	return job.Finished{Lease: f.Lease, State: f.State, WorkKind: s.job.WorkKind}, nil
}

// silentQueue tells nobody anything.
type silentQueue struct{ Queue }

func (silentQueue) Publish(job.Notification) {}

// BenchmarkHandle is what a job costs the worker itself, with storage and work
// that take no time.
func BenchmarkHandle(b *testing.B) {
	for name, log := range map[string]*slog.Logger{
		"quiet":  slog.New(slog.DiscardHandler),
		"logged": slog.New(slog.NewJSONHandler(io.Discard, nil)),
	} {
		b.Run(name, func(b *testing.B) {
			d := definitionOf(job.PayloadSmall)
			result := goodResult(*d)
			store := &instantStore{job: job.Job{
				ClientID: clientA, Type: job.Execute, WorkKind: d.WorkKind, Definition: d, Attempt: 1, MaxAttempts: 4, RequestID: "request-1",
			}}
			run := runnerFunc(func(context.Context, job.Definition, int) (*job.Result, error) { return result, nil })
			queue, metrics := silentQueue{}, NewMetrics(prometheus.NewRegistry())
			w := NewWorker(WorkerConfig{Concurrency: 100, Lease: testLease, Heartbeat: testHeartbeat, Limit: testLimit, Backoff: testBackoff},
				store, store, queue, NewBatchCompleter(nil, queue, metrics, log), run, metrics, log)
			w.id = newID()
			task := job.Task{Attempt: 1}
			b.ReportAllocs()
			for b.Loop() {
				task.JobID[0]++
				if err := w.Handle(context.Background(), task); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// acceptingStore takes every job.
type acceptingStore struct{ JobStore }

func (acceptingStore) InsertJob(_ context.Context, s job.Submission) (job.Receipt, error) {
	return job.Receipt{JobID: s.Job.ID, State: job.Queued, CreatedAt: time.Now()}, nil
}

func (silentQueue) Enqueue(job.Task) {}

// BenchmarkSubmit is what a submission costs the use case itself, with storage
// and a queue that take no time.
func BenchmarkSubmit(b *testing.B) {
	for name, log := range map[string]*slog.Logger{
		"quiet":  slog.New(slog.DiscardHandler),
		"logged": slog.New(slog.NewJSONHandler(io.Discard, nil)),
	} {
		b.Run(name, func(b *testing.B) {
			queue, metrics := silentQueue{}, NewMetrics(prometheus.NewRegistry())
			s := NewService(ServiceConfig{Catalogue: job.Catalogue{Types: job.Types, Kinds: job.Kinds(), MaxRuntime: testLimit}, MaxAttempts: 4}, ServiceDeps{
				Jobs: acceptingStore{}, Queue: queue, Capacity: NewCapacity(1<<40, 1<<40, nil, log), Metrics: metrics, Log: log,
			})
			r := job.Request{ClientID: clientA, Type: job.Execute, WorkKind: job.PayloadSmall, RequestID: newID().String(), ReceivedAt: time.Now()}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Submit(context.Background(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// distantStore always has deliveries, and takes a while for each statement.
type distantStore struct {
	CourierStore
	away time.Duration
	done chan struct{} // closed when so many are recorded
	left atomic.Int64
}

func (s *distantStore) DueEndpoints(context.Context, job.ID) ([]job.ID, error) {
	return []job.ID{endpointA}, nil
}

func (s *distantStore) ClaimDeliveries(_ context.Context, client, endpoint job.ID, n int, _ time.Duration) (parcels []job.ClaimedDelivery, more bool, err error) {
	time.Sleep(s.away)
	parcels = make([]job.ClaimedDelivery, n)
	for i := range parcels {
		parcels[i].Delivery = job.Delivery{ID: newID(), ClientID: client, Endpoint: endpoint, WebhookID: endpoint, JobID: newID()}
	}
	return parcels, true, nil
}

func (s *distantStore) RecordDelivery(context.Context, job.DeliveryResult) (job.Recorded, error) {
	time.Sleep(s.away)
	if s.left.Add(-1) == 0 {
		close(s.done)
	}
	return job.Recorded{Number: 1}, nil
}

func (s *distantStore) ReleaseDeliveries(context.Context, []job.ClaimedDelivery) error { return nil }

// BenchmarkCourier is how fast one process delivers to one endpoint, with
// storage and a receiver that take some milliseconds.
func BenchmarkCourier(b *testing.B) {
	for name, away := range map[string]time.Duration{"instant": 0, "3ms": 3 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			store := &distantStore{away: away, done: make(chan struct{})}
			store.left.Store(int64(b.N))
			c := NewDeliveryWorker(CourierConfig{Concurrency: 50, Timeout: testTimeout, Policy: testDeliveryPolicy}, store,
				newFakeSender(answers(200, away/3)), silentQueue{}, NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
			if err := c.Handle(context.Background(), clientA); err != nil {
				b.Fatal(err)
			}
			<-store.done
			b.StopTimer()
			c.Stop(context.Background())
		})
	}
}
