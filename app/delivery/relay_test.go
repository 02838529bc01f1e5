package delivery

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func newTestRelay(t *testing.T) (*worldDelivery, *Relay) {
	w := newWorldDelivery(t)
	return w, NewRelay(w.Store, w.Queue, w.Metrics, w.Logger)
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

// As long as something is due its client is woken, but at once by whoever wrote the event. One round looks at a part of the
// endpoints; the cursor stays until they are woken.
func TestRelayWakesWorkersForWhatIsDue(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := newTestRelay(t)
		pages := &paged{fakeStore: w.Store}
		r.store = pages
		w.Store.deliver(apptest.ClientA, endpointA)
		round := func(want error, woken ...job.ID) {
			t.Helper()
			require.ErrorIs(t, r.Round(context.Background(), steadyLead), want)
			require.Equal(t, woken, w.Queue.Woken())
		}
		round(nil)
		apptest.Pass(dueMinAge)
		round(nil, apptest.ClientA)
		round(nil, apptest.ClientA)
		require.Equal(t, 2.0, w.Metric(w.Metrics.DeliveriesRepaired.WithLabelValues("woken")))
		w.Queue.Change(func() { w.Queue.Err = apptest.ErrQueue })
		round(apptest.ErrQueue)
		w.Queue.Change(func() { w.Queue.Err = nil })
		round(nil, apptest.ClientA)
		require.Equal(t, []byte{0, 1, 2, 3, 3}, pages.after)
	})
}

// paged says after each look that there is more to look at.
type paged struct {
	*fakeStore
	after []byte // which each look was to go on
}

func (s *paged) DueClients(ctx context.Context, after job.EndpointKey, minAge time.Duration, look int) ([]job.ID, job.EndpointKey, error) {
	s.after = append(s.after, after.Client[0])
	clients, _, err := s.fakeStore.DueClients(ctx, after, minAge, look)
	return clients, job.EndpointKey{Client: job.ID{after.Client[0] + 1}}, err
}

// The relay gives the queue what it lost.
func TestRelaySchedulesWhatWaits(t *testing.T) {
	sending(t, answers(500, 0), func(t *testing.T, w *sendingWorld) {
		for _, wait := range []time.Duration{time.Hour, 2 * time.Second} {
			w.Store.deliver(apptest.ClientA, endpointA, func(r *deliveryRow) {
				at := time.Now().Add(wait)
				r.Attempts, r.NextAttemptAt = 1, &at
			})
		}
		w.punctual(0)
		w.lead()
		apptest.Pass(time.Second)
		require.Len(t, w.Queue.waitingNow(), 2)
		require.Equal(t, 2.0, w.Metric(w.Metrics.DeliveriesRepaired.WithLabelValues("scheduled")))
		w.Queue.Change(func() { clear(w.Queue.waiting) })
		apptest.Pass(1500 * time.Millisecond)
		require.Len(t, w.Queue.waitingNow(), 2)
		require.Len(t, w.Queue.attempts(), 1, "on time")
		w.Queue.Change(func() { w.Queue.Err = apptest.ErrQueue })
		require.ErrorIs(t, NewRelay(w.Store, w.Queue, w.Metrics, w.Logger).Round(t.Context(), steadyLead), apptest.ErrQueue)
	})
}

// punctual begins attempts by the tasks alone: each so much before its time by storage's clock.
func (w *sendingWorld) punctual(early time.Duration) {
	w.Background(func(ctx context.Context) {
		var handling sync.WaitGroup
		defer handling.Wait()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		begun := map[job.ID]int{}
		for ctx.Err() == nil {
			for _, d := range w.Queue.waitingNow() {
				if begun[d.ID] < d.Attempts && time.Until(*d.NextAttemptAt) <= early {
					begun[d.ID] = d.Attempts
					at := job.EndpointKey{Client: d.ClientID, Endpoint: d.Endpoint}
					handling.Go(func() { _ = w.current().Try(ctx, at) })
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
}

// The task of a delivery begins its next attempt on time, also if the clocks of
// who brings it and of storage differ.
func TestTasksBeginAttempts(t *testing.T) {
	for name, early := range map[string]time.Duration{"punctual": 0, "early": 300 * time.Millisecond} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newSendingWorld(t, answers(500, 0))
			id := w.Store.deliver(apptest.ClientA, endpointA)
			w.punctual(early)
			w.wake(apptest.ClientA)
			apptest.Pass(10 * time.Minute)
			d := w.Store.delivery(id)
			require.Equal(t, job.DeliveryFailed, d.State)
			attempts := w.Queue.attempts()
			require.Len(t, attempts, 1+testDeliveryPolicy.MaxRetries)
			for i, a := range attempts {
				require.Equal(t, []any{id, i + 1, job.SendServerError, 500}, []any{a.ID, a.Attempts, a.LastError, a.LastStatus})
				if i == len(attempts)-1 {
					require.Equal(t, []any{job.DeliveryFailed, (*time.Time)(nil)}, []any{a.State, a.NextAttemptAt})
					break
				}
				require.Equal(t, job.DeliveryPending, a.State)
				late := d.Results[i+1].Sent.Attempt.StartedAt.Sub(*a.NextAttemptAt)
				require.GreaterOrEqual(t, late, time.Duration(0), "never before its time")
				require.LessOrEqual(t, late, 60*time.Millisecond)
			}
			require.Empty(t, w.Queue.waitingNow())
			require.Zero(t, w.running())
		})
	}
}

// What waits for a webhook leaves the queue when nothing is sent there any more.
func TestTasksOfAnEndpointAreDropped(t *testing.T) {
	registering(t, func(t *testing.T, h *webhookWorld) {
		disabled, deleted, at, off := h.w.subscribe(apptest.ClientA).ID, h.w.subscribe(apptest.ClientA).ID, time.Now().Add(time.Hour), false
		for _, endpoint := range []job.ID{disabled, deleted, endpointB} {
			h.w.Queue.Attempted(job.Delivery{ID: endpoint, Endpoint: endpoint, State: job.DeliveryPending, NextAttemptAt: &at})
		}
		require.NoError(t, second(h.Update(context.Background(), apptest.ClientA, disabled, job.WebhookPatch{Enabled: &off})))
		require.NoError(t, h.Unregister(context.Background(), apptest.ClientA, deleted))
		waiting := h.w.Queue.waitingNow()
		require.Len(t, waiting, 1)
		require.Equal(t, endpointB, waiting[0].Endpoint)
	})
}

func TestSubscribersAreKnownWithinASecond(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldDelivery) {
		first := w.subscribe(apptest.ClientA)
		s := NewSubscribers(w.Store, w.Logger)
		w.Background(s.Run)
		require.True(t, s.Has(apptest.ClientA), "at once at the start")
		require.False(t, s.Has(apptest.ClientB))
		w.subscribe(apptest.ClientB)
		apptest.Pass(subscribersInterval)
		require.True(t, s.Has(apptest.ClientB))

		w.Store.Hook("Subscribers", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		w.Store.Update(func() { first.Disabled = &job.Disabled{} })
		apptest.Pass(time.Minute)
		require.True(t, s.Has(apptest.ClientA), "as it was")
		require.Len(t, w.Log.Lines(t, map[string]any{"level": "WARN"}), 1, "not with each try")
		w.Store.Hook("Subscribers", apptest.Hook{})
		apptest.Pass(subscribersInterval)
		require.False(t, s.Has(apptest.ClientA))
		require.True(t, s.Has(apptest.ClientB))
	})
}

// A reading that began before a registration has not seen it.
func TestASubscriberThatIsAddedDuringAReadingStays(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldDelivery) {
		s := NewSubscribers(w.Store, w.Logger)
		answered := make(chan struct{})
		w.Store.Hook("Subscribers", apptest.Hook{After: func(context.Context) error { <-answered; return nil }})
		w.Background(s.Run)
		s.Add(apptest.ClientA)
		require.True(t, s.Has(apptest.ClientA))
		close(answered)
		synctest.Wait()
		require.True(t, s.Has(apptest.ClientA))
		apptest.Pass(subscribersInterval)
		require.False(t, s.Has(apptest.ClientA), "the next reading knows better")
	})
}

func TestEventsOfSubscribersWakeTheWorkers(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldDelivery) {
		s := NewSubscribers(w.Store, w.Logger)
		n := NewNotifier(w.Queue, s)
		s.Add(apptest.ClientA)
		a, b := job.Notification{ClientID: apptest.ClientA, JobID: app.NewID()}, job.Notification{ClientID: apptest.ClientB, JobID: app.NewID()}
		n.Publish(a)
		n.Publish(b)
		require.Equal(t, []job.Notification{a, b}, w.Queue.Notifications())
		require.Equal(t, []job.ID{apptest.ClientA}, w.Queue.Woken())
		a.Progress = &job.Progress{Percentage: 1}
		n.Publish(a)
		require.Empty(t, w.Queue.Woken(), "progress is delivered to nobody")
	})
}
