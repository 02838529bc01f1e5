package delivery

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// distantStore always has deliveries, and takes a while for each statement.
type distantStore struct {
	WorkerStore
	away time.Duration
	done chan struct{} // closed when so many are recorded
	left atomic.Int64
}

func (s *distantStore) DueEndpoints(context.Context, job.ID) ([]job.ID, error) {
	return []job.ID{endpointA}, nil
}

func (s *distantStore) ClaimDeliveries(_ context.Context, client, endpoint job.ID, n int,
	_ time.Duration) (job.DeliveryClaim, error) {
	time.Sleep(s.away)
	deliveries := make([]job.ClaimedDelivery, n)
	for i := range deliveries {
		deliveries[i].Delivery = job.Delivery{ID: app.NewID(), ClientID: client, Endpoint: endpoint, WebhookID: endpoint, JobID: app.NewID()}
	}
	return job.DeliveryClaim{Deliveries: deliveries, More: true}, nil
}

func (s *distantStore) RecordDelivery(context.Context, job.DeliveryResult) (job.Recorded, error) {
	time.Sleep(s.away)
	if s.left.Add(-1) == 0 {
		close(s.done)
	}
	return job.Recorded{Number: 1}, nil
}

func (s *distantStore) ReleaseDeliveries(context.Context, []job.ClaimedDelivery) error { return nil }

// BenchmarkDelivery is how fast one process delivers to one endpoint, with
// storage and a receiver that take some milliseconds.
func BenchmarkDelivery(b *testing.B) {
	for name, away := range map[string]time.Duration{"instant": 0, "3ms": 3 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			store := &distantStore{away: away, done: make(chan struct{})}
			store.left.Store(int64(b.N))
			c := NewWorker(WorkerConfig{Concurrency: 50, Timeout: testTimeout, Policy: testDeliveryPolicy}, store,
				newFakeSender(answers(200, away/3)), apptest.SilentQueue{}, apptest.SilentQueue{}, app.NewMetrics(prometheus.NewRegistry()),
				slog.New(slog.DiscardHandler))
			if err := c.Handle(context.Background(), apptest.ClientA); err != nil {
				b.Fatal(err)
			}
			<-store.done
			b.StopTimer()
			c.Stop(context.Background())
		})
	}
}
