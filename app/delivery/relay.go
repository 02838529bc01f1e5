package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/clock"
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
	// WaitingDeliveries gives deliveries that wait for another attempt, due from
	// overdue ago on: of each endpoint the first perEndpoint, of at most look
	// endpoints after a cursor, and at most limit. last is where to go on.
	WaitingDeliveries(ctx context.Context, after job.EndpointKey, look, perEndpoint, limit int,
		overdue time.Duration) (deliveries []job.Delivery, last job.EndpointKey, err error)
	// FailOrphans ends deliveries of webhooks that are disabled or deleted.
	FailOrphans(ctx context.Context, look, limit int) (n int, err error)
}

// RelayQueue wakes delivery workers, and reports failures.
type RelayQueue interface {
	WakeDeliveries(ctx context.Context, clients []job.ID) error
	// ScheduleDeliveries makes a task of each delivery that has none, as far as
	// there is room, and gives how many it made.
	ScheduleDeliveries(ctx context.Context, waiting []job.Delivery) (n int, err error)
}

const (
	reclaimBatch = 500
	orphanBatch  = 500
	orphanLook   = 10_000      // endpoints that one round looks at
	dueLook      = 5000        // endpoints that one round looks at
	dueMinAge    = time.Second // for younger ones, the writer of the event wakes the workers
	waitingBatch = 2500        // deliveries that one round offers to the queue
)

// Relay makes sure that what is due is delivered, whatever became of
// the wake-ups and of the delivery workers that claimed it.
type Relay struct {
	store   RelayStore
	queue   RelayQueue
	metrics *app.Metrics
	log     *slog.Logger

	Clock *clock.Clock // Postgres' clock, set before the first round; nil: the machine's

	cursor  job.EndpointKey // where the walk over endpoints goes on; the leader's loop's own
	waiting job.EndpointKey // the same of the walk over what waits for another attempt
}

// NewRelay makes a relay of deliveries; Maintenance runs it.
func NewRelay(store RelayStore, queue RelayQueue, m *app.Metrics, log *slog.Logger) *Relay {
	return &Relay{store: store, queue: queue, metrics: m, log: log}
}

// Round ends the claims of delivery workers that are gone, then wakes the workers for clients that
// have something due. It looks at a part of the endpoints, the next round at
// those after it. Without the queue the cursor stays: they are woken later. Then
// it gives the queue the tasks that it lost, or had no room for.
func (r *Relay) Round(ctx context.Context, leading func() bool) error {
	if err := r.reclaim(ctx, leading); err != nil {
		return err
	}
	minAge := dueMinAge
	if r.Clock.Moved() { // frozen, it makes nothing older
		minAge = 0
	}
	clients, last, err := r.store.DueClients(ctx, r.cursor, minAge, dueLook)
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
	return r.schedule(ctx)
}

// schedule offers the queue what waits for another attempt. What has come to its
// time a moment ago is among it: its task may be lost, and is then replaced
// sooner than its client is woken.
func (r *Relay) schedule(ctx context.Context) error {
	waiting, last, err := r.store.WaitingDeliveries(ctx, r.waiting, dueLook, job.MaxWaitingTasks, waitingBatch, dueMinAge)
	if err != nil {
		return err
	}
	if len(waiting) > 0 {
		n, err := r.queue.ScheduleDeliveries(ctx, waiting)
		if err != nil {
			return err
		}
		r.metrics.DeliveriesRepaired.WithLabelValues(app.RepairScheduled).Add(float64(n))
	}
	r.waiting = last
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
