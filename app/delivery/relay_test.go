package delivery

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func newTestRelay(t *testing.T) (*worldDelivery, *Relay) {
	w := newWorldDelivery(t)
	return w, NewRelay(w.Store, w.Queue, w.Metrics, w.Logger)
}

func TestRelayWakesWorkersForWhatIsDue(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := newTestRelay(t)
		w.Store.deliver(apptest.ClientA, endpointA)
		require.NoError(t, r.Round(context.Background(), steadyLead))
		require.Empty(t, w.Queue.Woken(), "whoever wrote the event is about to")
		apptest.Pass(dueMinAge)
		require.NoError(t, r.Round(context.Background(), steadyLead))
		require.Equal(t, []job.ID{apptest.ClientA}, w.Queue.Woken())
		require.Equal(t, 1.0, w.Metric(w.Metrics.DeliveriesRepaired.WithLabelValues("woken")))
		require.NoError(t, r.Round(context.Background(), steadyLead))
		require.Equal(t, []job.ID{apptest.ClientA}, w.Queue.Woken(), "as long as it is due")
	})
}

// One round costs the same however many endpoints have something to deliver,
// and all of them are come to.
func TestARoundLooksAtAPartOfTheEndpoints(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := newTestRelay(t)
		small := &smallLooks{fakeStore: w.Store, look: 3}
		r.store = small
		for i := range 8 {
			w.Store.deliver(job.ID{1, byte(i)}, endpointA)
		}
		apptest.Pass(dueMinAge)
		for _, want := range [][]job.ID{
			{{1, 0}, {1, 1}, {1, 2}}, {{1, 3}, {1, 4}, {1, 5}}, {{1, 6}, {1, 7}}, {{1, 0}, {1, 1}, {1, 2}},
		} {
			require.NoError(t, r.Round(context.Background(), steadyLead))
			require.Equal(t, want, w.Queue.Woken())
		}
		require.LessOrEqual(t, small.asked, dueLook)

		w.Queue.Change(func() { w.Queue.Err = apptest.ErrQueue })
		require.ErrorIs(t, r.Round(context.Background(), steadyLead), apptest.ErrQueue)
		w.Queue.Change(func() { w.Queue.Err = nil })
		require.NoError(t, r.Round(context.Background(), steadyLead))
		require.Equal(t, []job.ID{{1, 3}, {1, 4}, {1, 5}}, w.Queue.Woken(), "the cursor stays until they are woken")
	})
}

// smallLooks lets a look end early.
type smallLooks struct {
	*fakeStore
	look, asked int
}

func (s *smallLooks) DueClients(ctx context.Context, after job.EndpointKey, minAge time.Duration,
	look int) ([]job.ID, job.EndpointKey, error) {
	s.asked = max(s.asked, look)
	return s.fakeStore.DueClients(ctx, after, minAge, s.look)
}

func TestClaimsThatHaveEndedAreReleased(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := newTestRelay(t)
		past, future := time.Now(), time.Now().Add(time.Minute)
		for range 2*reclaimBatch + 1 {
			w.Store.deliver(apptest.ClientA, endpointA, func(r *deliveryRow) { r.ClaimedUntil = &past })
		}
		held := w.Store.deliver(apptest.ClientA, endpointA, func(r *deliveryRow) { r.ClaimedUntil = &future })
		apptest.Pass(dueMinAge)
		require.NoError(t, r.Round(context.Background(), steadyLead))
		_, claimed := w.Store.inState(job.DeliveryPending)
		require.Equal(t, 1, claimed)
		require.NotNil(t, w.Store.delivery(held).ClaimedUntil)
		require.Equal(t, 3, w.Store.Count("ReclaimDeliveries"))
		require.Equal(t, float64(2*reclaimBatch+1), w.Metric(w.Metrics.DeliveriesRepaired.WithLabelValues("reclaimed")))
		require.Equal(t, []job.ID{apptest.ClientA}, w.Queue.Woken())
	})
}

func TestDeliveriesOfDisabledWebhooksAreGivenUp(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := newTestRelay(t)
		for range orphanBatch + 1 {
			w.Store.deliver(apptest.ClientA, endpointA)
		}
		w.Store.deliver(apptest.ClientA, endpointB)
		w.Store.endpointOf(endpointA).Disabled = &job.Disabled{}
		led := 0
		require.NoError(t, r.FailOrphans(context.Background(), func() bool { led++; return led <= 1 }))
		n, _ := w.Store.inState(job.DeliveryFailed)
		require.Equal(t, orphanBatch, n, "no more than one statement without the lead")
		w.lead()
		apptest.Pass(leadOrphanInterval + time.Second)
		n, _ = w.Store.inState(job.DeliveryPending)
		require.Equal(t, 1, n)
		require.Equal(t, float64(orphanBatch+1), w.Metric(w.Metrics.DeliveriesRepaired.WithLabelValues("orphaned")))
	})
}
