package delivery

import (
	"context"
	"testing"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// worldDelivery is everything around the delivery worker.
type worldDelivery struct {
	*apptest.World
	Store *fakeStore
}

func newWorldDelivery(t testing.TB) *worldDelivery {
	w := apptest.NewWorld(t)
	return &worldDelivery{w, newFakeStore(w.Store)}
}

// subscribe stores a webhook as another process would.
func (w *worldDelivery) subscribe(client job.ID) *webhookRow {
	r := &webhookRow{Webhook: job.Webhook{ID: app.NewID(), ClientID: client}}
	w.Store.Update(func() { w.Store.webhooks[r.ID] = r })
	return r
}

// lead repairs deliveries until the test ends, as the leader of the maintenance
// does.
func (w *worldDelivery) lead() {
	relay := NewRelay(w.Store, w.Queue, w.Metrics, w.Logger)
	repeat := func(interval time.Duration, round func(context.Context, func() bool) error) {
		w.Background(func(ctx context.Context) {
			for app.Sleep(ctx, interval) {
				if err := round(ctx, steadyLead); err != nil && ctx.Err() == nil {
					w.Metrics.MaintenanceErrors.WithLabelValues("deliveries").Inc()
				}
			}
		})
	}
	repeat(500*time.Millisecond, relay.Round)
	repeat(leadOrphanInterval, relay.FailOrphans)
}

// leadOrphanInterval is that of the leader's look for orphaned deliveries.
const leadOrphanInterval = 3 * time.Second

func steadyLead() bool { return true }
