package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

const (
	reclaimBatch = 500
	orphanBatch  = 500
	orphanLook   = 10_000          // endpoints per statement
	dueLook      = 5000            // endpoints per read
	dueMinAge    = time.Second     // minimum age; tasks of newer deliveries come from the process that wrote the event
	dueSoon      = 5 * time.Second // retries due within this time get tasks in advance
	dueBatch     = 2500            // deliveries per read
	roundTime    = 3 * time.Second // after this time a round reads no further endpoints
	// If at most half of the tasks were missing, the relay pauses. The pause is restShare times the round's duration, at most restAtMost.
	// This limits the load on Redis: a check of one task can take two requests.
	restShare  = 10
	restAtMost = 3 * time.Second
	// A read checks leastDue deliveries of an endpoint. If many tasks are missing, the next reads check more, up to mostDue.
	leastDue = 20
	mostDue  = 1000
)

// Relay enqueues due deliveries again if their task was lost or their worker died.
type Relay struct {
	store   *repo.Store
	queue   Queue
	clock   *clock.Clock
	metrics *app.Metrics
	log     *slog.Logger

	// Only the leader's loop uses these fields.
	cursor job.EndpointKey
	due    int
	next   time.Time
}

// NewRelay returns a relay of deliveries; Maintenance runs it. Synchronize the clock c with Postgres before the first round. If c is nil,
// the machine's clock is used.
func NewRelay(store *repo.Store, queue Queue, c *clock.Clock, m *app.Metrics, log *slog.Logger) *Relay {
	return &Relay{store: store, queue: queue, clock: c, metrics: m, log: log, due: leastDue}
}

// Round ends the claims of dead delivery workers, then creates missing tasks. A round starts after the endpoint where the previous round
// stopped. If more than half of the deliveries had no task, the round continues without a pause. If the queue fails, the next round reads
// the same endpoints.
func (r *Relay) Round(ctx context.Context, leading func() bool) error {
	if err := r.reclaim(ctx, leading); err != nil {
		return err
	}
	minAge := dueMinAge
	switch {
	case r.clock.Moved(): // on a stopped test clock, deliveries would never reach dueMinAge
		minAge = 0
	case time.Now().Before(r.next):
		return nil
	}
	for began := time.Now(); leading() && time.Since(began) < roundTime; {
		due, last, err := r.store.DueDeliveries(ctx, r.cursor, dueLook, r.due, dueBatch, minAge, dueSoon)
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
			r.log.InfoContext(ctx, "claims of deliveries expired; the deliveries are pending again", "action", "reclaim_deliveries", "deliveries", n)
			r.metrics.DeliveriesRepaired.WithLabelValues(app.RepairReclaimed).Add(float64(n))
		}
	}
	return err
}

// FailOrphans ends waiting deliveries in batches, after their webhook was disabled or deleted.
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
