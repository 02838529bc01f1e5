package app

import (
	"context"
	"testing"
	"time"
)

// worldDelivery is everything around the delivery worker.
type worldDelivery struct{ *testWorld }

func newWorldDelivery(t testing.TB) *worldDelivery { return &worldDelivery{newTestWorld(t)} }

// lead repairs deliveries until the test ends, as the leader of the maintenance
// does.
func (w *worldDelivery) lead() {
	relay := NewDeliveryRelay(w.store, w.queue, w.metrics, w.logger)
	repeat := func(interval time.Duration, round func(context.Context, func() bool) error) {
		w.background(func(ctx context.Context) {
			for sleep(ctx, interval) {
				if err := round(ctx, steadyLead); err != nil && ctx.Err() == nil {
					w.metrics.maintenanceErrors.WithLabelValues("deliveries").Inc()
				}
			}
		})
	}
	repeat(500*time.Millisecond, relay.round)
	repeat(leadOrphanInterval, relay.failOrphans)
}

// leadOrphanInterval is that of the leader's look for orphaned deliveries.
const leadOrphanInterval = 3 * time.Second
func steadyLead() bool { return true }
