package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/forgerun/forgerun/job"
)

// DeliveryRelayStore is what the repair of deliveries needs of storage.
type DeliveryRelayStore interface {
	// ReclaimDeliveries makes deliveries wait again whose claim has ended.
	ReclaimDeliveries(ctx context.Context, limit int) (n int, err error)
	// DueClients looks at so many endpoints after a place, and gives the clients
	// of those with something due and unclaimed for at least minAge. last is where
	// to go on, zero when there are no more.
	DueClients(ctx context.Context, after job.EndpointKey, minAge time.Duration, look int) (clients []job.ID, last job.EndpointKey, err error)
	// FailOrphans ends deliveries of webhooks that are disabled or deleted.
	FailOrphans(ctx context.Context, look, limit int) (n int, err error)
}

// DeliveryRelayQueue takes hints, and tells whether it has them.
type DeliveryRelayQueue interface {
	WakeDeliveries(ctx context.Context, clients []job.ID) error
}

const (
	reclaimBatch = 500
	orphanBatch  = 500
	orphanLook   = 10_000      // endpoints that one round looks at
	dueLook      = 5000        // endpoints that one round looks at
	dueMinAge    = time.Second // younger deliveries are being hinted by whoever wrote the event
)

// What the relay of deliveries repairs.
const (
	repairReclaimed = "reclaimed"
	repairOrphaned  = "orphaned"
	repairHinted    = "hinted"
)

// DeliveryRelay makes sure that what is due is delivered, whatever became of
// the hints and of the couriers that claimed it.
type DeliveryRelay struct {
	store   DeliveryRelayStore
	queue   DeliveryRelayQueue
	metrics *Metrics
	log     *slog.Logger

	place job.EndpointKey // where the walk over endpoints goes on; the leader's loop's own
}

// NewDeliveryRelay makes a relay of deliveries; Maintenance runs it.
func NewDeliveryRelay(store DeliveryRelayStore, queue DeliveryRelayQueue, m *Metrics, log *slog.Logger) *DeliveryRelay {
	return &DeliveryRelay{store: store, queue: queue, metrics: m, log: log}
}

// round ends the claims of couriers that are gone, then hints the clients that
// have something due. It looks at a part of the endpoints, the next round at
// those after it. Without the queue the place stays: they are hinted later.
func (r *DeliveryRelay) round(ctx context.Context, leading func() bool) error {
	if err := r.reclaim(ctx, leading); err != nil {
		return err
	}
	clients, last, err := r.store.DueClients(ctx, r.place, dueMinAge, dueLook)
	if err != nil {
		return err
	}
	if len(clients) > 0 {
		if err := r.queue.WakeDeliveries(ctx, clients); err != nil {
			return err
		}
		r.metrics.deliveriesRepaired.WithLabelValues(repairHinted).Add(float64(len(clients)))
	}
	r.place = last
	return nil
}

func (r *DeliveryRelay) reclaim(ctx context.Context, leading func() bool) error {
	for leading() {
		n, err := r.store.ReclaimDeliveries(ctx, reclaimBatch)
		if err != nil {
			return err
		}
		if n > 0 {
			r.log.InfoContext(ctx, "deliveries wait again: their claim has ended", "action", "reclaim_deliveries", "deliveries", n)
			r.metrics.deliveriesRepaired.WithLabelValues(repairReclaimed).Add(float64(n))
		}
		if n < reclaimBatch {
			return nil
		}
	}
	return nil
}

// failOrphans ends what cannot be delivered any more, in bounded batches.
func (r *DeliveryRelay) failOrphans(ctx context.Context, leading func() bool) error {
	for leading() {
		n, err := r.store.FailOrphans(ctx, orphanLook, orphanBatch)
		r.metrics.deliveriesRepaired.WithLabelValues(repairOrphaned).Add(float64(n))
		if err != nil || n < orphanBatch {
			return err
		}
	}
	return nil
}
