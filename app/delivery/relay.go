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
	// DueDeliveries finds deliveries that wait and are due, or will be so soon: of each endpoint the first perEndpoint, of at most look
	// endpoints after a cursor, and at most limit. Those that were not tried yet must have been due for minAge. last is where to go on,
	// zero when there are no more.
	DueDeliveries(ctx context.Context, after job.EndpointKey, look, perEndpoint, limit int, minAge, ahead time.Duration) (
		due []job.DeliveryTask, last job.EndpointKey, err error)
	// FailOrphans ends deliveries of webhooks that are disabled or deleted.
	FailOrphans(ctx context.Context, look, limit int) ([]job.ID, error)
}

// RelayQueue has the tasks of deliveries, and reports failures.
type RelayQueue interface {
	// EnsureDeliveries makes sure that deliveries have tasks, and returns how many had none.
	EnsureDeliveries(ctx context.Context, ts []job.DeliveryTask) (made int, err error)
	RemoveDeliveries(ids ...job.ID)
}

const (
	reclaimBatch = 500
	orphanBatch  = 500
	orphanLook   = 10_000          // endpoints that one round looks at
	dueLook      = 5000            // endpoints that one look is about
	dueMinAge    = time.Second     // for younger ones, the writer of the event makes the tasks
	dueAhead     = 5 * time.Second // retries that are due so soon have tasks in time
	dueBatch     = 2500            // deliveries of one look
	roundTime    = 3 * time.Second // a longer round would count as one that hangs
	// After a look that found most tasks in place, the next one comes after restShare times as long, and restAtMost: each
	// task that is not among the first pending ones costs Redis two questions.
	restShare  = 10
	restAtMost = 3 * time.Second
	// Bounds of how many deliveries of an endpoint one look is about: few, and more while they lack tasks.
	leastDue = 20
	mostDue  = 1000
)

// Relay makes sure that what is due is delivered, whatever became of
// its task and of the delivery worker that claimed it.
type Relay struct {
	store   RelayStore
	queue   RelayQueue
	metrics *app.Metrics
	log     *slog.Logger

	Clock *clock.Clock // Postgres' clock, set before the first round; nil: the machine's

	cursor job.EndpointKey // where the walk over endpoints goes on; the leader's loop's own
	due    int             // of each endpoint the next look is about so many
	next   time.Time       // when that is
}

// NewRelay makes a relay of deliveries; Maintenance runs it.
func NewRelay(store RelayStore, queue RelayQueue, m *app.Metrics, log *slog.Logger) *Relay {
	return &Relay{store: store, queue: queue, metrics: m, log: log, due: leastDue}
}

// Round ends the claims of delivery workers that are gone, then makes the tasks that are missing. It looks at a part of the endpoints,
// the next round at those after it, and goes on at once while most deliveries lack tasks. Without the queue the cursor stays.
func (r *Relay) Round(ctx context.Context, leading func() bool) error {
	if err := r.reclaim(ctx, leading); err != nil {
		return err
	}
	minAge := dueMinAge
	switch {
	case r.Clock.Moved(): // frozen, it makes nothing older
		minAge = 0
	case time.Now().Before(r.next):
		return nil
	}
	for began := time.Now(); leading() && time.Since(began) < roundTime; {
		due, last, err := r.store.DueDeliveries(ctx, r.cursor, dueLook, r.due, dueBatch, minAge, dueAhead)
		if err != nil {
			return err
		}
		made := 0
		if len(due) > 0 {
			made, err = r.queue.EnsureDeliveries(ctx, due)
		}
		r.metrics.DeliveriesRepaired.WithLabelValues(app.RepairEnqueued).Add(float64(made))
		if err != nil {
			return err
		}
		r.cursor = last
		if 2*made <= len(due) {
			r.due, r.next = leastDue, time.Now().Add(min(restShare*time.Since(began), restAtMost))
			return nil
		}
		r.due = min(4*r.due, mostDue)
	}
	return nil
}

func (r *Relay) reclaim(ctx context.Context, leading func() bool) (err error) {
	for n := reclaimBatch; err == nil && n == reclaimBatch && leading(); {
		if n, err = r.store.ReclaimDeliveries(ctx, reclaimBatch); n > 0 {
			r.log.InfoContext(ctx, "deliveries wait again: their claim has ended", "action", "reclaim_deliveries", "deliveries", n)
			r.metrics.DeliveriesRepaired.WithLabelValues(app.RepairReclaimed).Add(float64(n))
		}
	}
	return err
}

// FailOrphans ends what cannot be delivered any more, in bounded batches.
func (r *Relay) FailOrphans(ctx context.Context, leading func() bool) error {
	for leading() {
		failed, err := r.store.FailOrphans(ctx, orphanLook, orphanBatch)
		r.queue.RemoveDeliveries(failed...)
		r.metrics.DeliveriesRepaired.WithLabelValues(app.RepairOrphaned).Add(float64(len(failed)))
		if err != nil || len(failed) < orphanBatch {
			return err
		}
	}
	return nil
}
