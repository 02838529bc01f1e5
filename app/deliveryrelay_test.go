package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func newDeliveryRelay(t *testing.T) (*worldDelivery, *DeliveryRelay) {
	w := newWorldDelivery(t)
	return w, NewDeliveryRelay(w.store, w.queue, w.metrics, w.logger)
}

func TestWhatIsDueAndNotHintedIsHinted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := newDeliveryRelay(t)
		w.store.deliver(clientA, endpointA)
		require.NoError(t, r.round(context.Background(), steadyLead))
		require.Empty(t, w.queue.hints(), "whoever wrote the event is about to")
		pass(dueMinAge)
		require.NoError(t, r.round(context.Background(), steadyLead))
		require.Equal(t, []job.ID{clientA}, w.queue.hints())
		require.Equal(t, 1.0, w.metric(w.metrics.deliveriesRepaired.WithLabelValues("hinted")))
		require.NoError(t, r.round(context.Background(), steadyLead))
		require.Equal(t, []job.ID{clientA}, w.queue.hints(), "as long as it is due")
	})
}

// One round costs the same however many endpoints have something to deliver,
// and all of them are come to.
func TestARoundLooksAtAPartOfTheEndpoints(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := newDeliveryRelay(t)
		small := &smallLooks{fakeStore: w.store, look: 3}
		r.store = small
		for i := range 8 {
			w.store.deliver(job.ID{1, byte(i)}, endpointA)
		}
		pass(dueMinAge)
		for _, want := range [][]job.ID{
			{{1, 0}, {1, 1}, {1, 2}}, {{1, 3}, {1, 4}, {1, 5}}, {{1, 6}, {1, 7}}, {{1, 0}, {1, 1}, {1, 2}},
		} {
			require.NoError(t, r.round(context.Background(), steadyLead))
			require.Equal(t, want, w.queue.hints())
		}
		require.LessOrEqual(t, small.asked, dueLook)

		w.queue.change(func() { w.queue.err = errQueue })
		require.ErrorIs(t, r.round(context.Background(), steadyLead), errQueue)
		w.queue.change(func() { w.queue.err = nil })
		require.NoError(t, r.round(context.Background(), steadyLead))
		require.Equal(t, []job.ID{{1, 3}, {1, 4}, {1, 5}}, w.queue.hints(), "the place stays until they are hinted")
	})
}

// smallLooks lets a look end early.
type smallLooks struct {
	*fakeStore
	look, asked int
}

func (s *smallLooks) DueClients(ctx context.Context, after job.EndpointKey, minAge time.Duration, look int) ([]job.ID, job.EndpointKey, error) {
	s.asked = max(s.asked, look)
	return s.fakeStore.DueClients(ctx, after, minAge, s.look)
}

func TestClaimsThatHaveEndedAreReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := newDeliveryRelay(t)
		past, future := time.Now(), time.Now().Add(time.Minute)
		for range 2*reclaimBatch + 1 {
			w.store.deliver(clientA, endpointA, func(r *parcelRow) { r.ClaimedUntil = &past })
		}
		held := w.store.deliver(clientA, endpointA, func(r *parcelRow) { r.ClaimedUntil = &future })
		pass(dueMinAge)
		require.NoError(t, r.round(context.Background(), steadyLead))
		_, claimed := w.store.inState(job.DeliveryPending)
		require.Equal(t, 1, claimed)
		require.NotNil(t, w.store.delivery(held).ClaimedUntil)
		require.Equal(t, 3, w.store.count("ReclaimDeliveries"))
		require.Equal(t, float64(2*reclaimBatch+1), w.metric(w.metrics.deliveriesRepaired.WithLabelValues("reclaimed")))
		require.Equal(t, []job.ID{clientA}, w.queue.hints())
	})
}

func TestDeliveriesOfDisabledWebhooksAreGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := newDeliveryRelay(t)
		for range orphanBatch + 1 {
			w.store.deliver(clientA, endpointA)
		}
		w.store.deliver(clientA, endpointB)
		w.store.endpointOf(endpointA).Disabled = &job.Disabled{}
		led := 0
		require.NoError(t, r.failOrphans(context.Background(), func() bool { led++; return led <= 1 }))
		n, _ := w.store.inState(job.DeliveryFailed)
		require.Equal(t, orphanBatch, n, "no more than one statement without the lead")
		w.lead()
		pass(leadOrphanInterval + time.Second)
		n, _ = w.store.inState(job.DeliveryPending)
		require.Equal(t, 1, n)
		require.Equal(t, float64(orphanBatch+1), w.metric(w.metrics.deliveriesRepaired.WithLabelValues("orphaned")))
	})
}
