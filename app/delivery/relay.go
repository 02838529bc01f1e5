package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// RelayStore is what the repair of deliveries needs of storage.
type RelayStore interface {
	// ReclaimDeliveries makes deliveries wait again whose claim has ended.
	ReclaimDeliveries(ctx context.Context, limit int) (n int, err error)
	// DueClients looks at so many endpoints after a cursor, and gives the clients
	// of those with something due and unclaimed for at least minAge. last is where
	// to go on, zero when there are no more.
	DueClients(ctx context.Context, after job.EndpointKey, minAge time.Duration, look int) (clients []job.ID, last job.EndpointKey, err error)
	// FailOrphans ends deliveries of webhooks that are disabled or deleted.
	FailOrphans(ctx context.Context, look, limit int) (n int, err error)
}

// RelayQueue wakes delivery workers, and reports failures.
type RelayQueue interface {
	WakeDeliveries(ctx context.Context, clients []job.ID) error
}

const (
	reclaimBatch = 500
	orphanBatch  = 500
	orphanLook   = 10_000      // endpoints that one round looks at
	dueLook      = 5000        // endpoints that one round looks at
	dueMinAge    = time.Second // for younger ones, whoever wrote the event wakes the workers
)

// Relay makes sure that what is due is delivered, whatever became of
// the wake-ups and of the delivery workers that claimed it.
type Relay struct {
	store   RelayStore
	queue   RelayQueue
	metrics *app.Metrics
	log     *slog.Logger

	cursor job.EndpointKey // where the walk over endpoints goes on; the leader's loop's own
}

// NewRelay makes a relay of deliveries; Maintenance runs it.
func NewRelay(store RelayStore, queue RelayQueue, m *app.Metrics, log *slog.Logger) *Relay {
	return &Relay{store: store, queue: queue, metrics: m, log: log}
}

// Round ends the claims of delivery workers that are gone, then wakes the workers for clients that
// have something due. It looks at a part of the endpoints, the next round at
// those after it. Without the queue the cursor stays: they are woken later.
func (r *Relay) Round(ctx context.Context, leading func() bool) error {
	if err := r.reclaim(ctx, leading); err != nil {
		return err
	}
	clients, last, err := r.store.DueClients(ctx, r.cursor, dueMinAge, dueLook)
	if err != nil {
		return err
	}
	if len(clients) > 0 {
		if err := r.queue.WakeDeliveries(ctx, clients); err != nil {
			return err
		}
		r.metrics.DeliveriesRepaired.WithLabelValues(app.RepairWoken).Add(float64(len(clients)))
	}
	r.cursor = last
	return nil
}

func (r *Relay) reclaim(ctx context.Context, leading func() bool) error {
	for leading() {
		n, err := r.store.ReclaimDeliveries(ctx, reclaimBatch)
		if err != nil {
			return err
		}
		if n > 0 {
			r.log.InfoContext(ctx, "deliveries wait again: their claim has ended", "action", "reclaim_deliveries", "deliveries", n)
			r.metrics.DeliveriesRepaired.WithLabelValues(app.RepairReclaimed).Add(float64(n))
		}
		if n < reclaimBatch {
			return nil
		}
	}
	return nil
}

// FailOrphans ends what cannot be delivered any more, in bounded batches.
func (r *Relay) FailOrphans(ctx context.Context, leading func() bool) error {
	for leading() {
		n, err := r.store.FailOrphans(ctx, orphanLook, orphanBatch)
		r.metrics.DeliveriesRepaired.WithLabelValues(app.RepairOrphaned).Add(float64(n))
		if err != nil || n < orphanBatch {
			return err
		}
	}
	return nil
}
