package delivery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestDeliveriesOfDisabledWebhooksAreGivenUp(t *testing.T) {
	sending(t, nil, func(t *testing.T, w *worldDelivery) {
		w.Store.deliverMany(orphanBatch+1, apptest.ClientA, endpointA)
		w.Store.endpointOf(endpointA).Disabled = &job.Disabled{}
		led := 0
		require.NoError(t, w.relay.FailOrphans(context.Background(), func() bool { led++; return led <= 1 }))
		n, _ := w.Store.inState(job.DeliveryFailed)
		require.Equal(t, orphanBatch, n, "no more than one statement without the lead")
		require.NoError(t, w.relay.FailOrphans(context.Background(), steadyLead))
		require.Equal(t, float64(orphanBatch+1), w.Metric(w.Metrics.DeliveriesRepaired.WithLabelValues("orphaned")))
		require.Len(t, w.Queue.removed, orphanBatch+1, "their tasks go too")
	})
}

// What is due has a task again at once, however much there is; new deliveries get theirs from their writers; retries have theirs
// before they are due. One look is about a part of the endpoints; the cursor stays while the queue is away.
func TestRelayMakesLostTasks(t *testing.T) {
	sending(t, nil, func(t *testing.T, w *worldDelivery) {
		pages := &paged{fakeStore: w.Store}
		w.relay.store = pages
		w.Store.deliverMany(mostDue, apptest.ClientA, endpointA)
		for _, wait := range []time.Duration{dueAhead - time.Second, time.Hour} {
			w.Store.deliver(apptest.ClientA, endpointB, func(r *deliveryRow) {
				at := time.Now().Add(wait)
				r.Attempts, r.NextAttemptAt = 1, &at
			})
		}
		round := func(want error, tasks int) {
			t.Helper()
			require.ErrorIs(t, w.relay.Round(context.Background(), steadyLead), want)
			require.Equal(t, tasks, w.Queue.waiting())
		}
		round(nil, 1)
		apptest.Pass(dueMinAge)
		round(nil, mostDue+1)
		require.Equal(t, float64(mostDue+1), w.Metric(w.Metrics.DeliveriesRepaired.WithLabelValues("enqueued")))
		w.Queue.flush()
		w.Queue.Change(func() { w.Queue.Err = apptest.ErrQueue })
		looks := len(pages.after)
		round(apptest.ErrQueue, 0)
		w.Queue.Change(func() { w.Queue.Err = nil })
		round(nil, mostDue+1)
		require.Equal(t, pages.after[looks], pages.after[looks+1])
	})
}

// paged says after each look that there is more to look at.
type paged struct {
	*fakeStore
	after []byte // which each look was to go on
}

func (s *paged) DueDeliveries(ctx context.Context, after job.EndpointKey, look, per, limit int, minAge, ahead time.Duration) (
	[]job.DeliveryTask, job.EndpointKey, error,
) {
	s.after = append(s.after, after.Client[0])
	due, _, err := s.fakeStore.DueDeliveries(ctx, after, look, per, limit, minAge, ahead)
	return due, job.EndpointKey{Client: job.ID{after.Client[0] + 1}}, err
}

// A reading that began before a registration has not seen it; the next one knows better. While storage fails, all stays as it was.
func TestSubscribersAreKnownWithinASecond(t *testing.T) {
	sending(t, nil, func(t *testing.T, w *worldDelivery) {
		subscribed, added := []job.EndpointKey{{Client: apptest.ClientA}}, job.EndpointKey{Client: apptest.ClientB, Endpoint: endpointB}
		w.Store.subscribers = func() []job.EndpointKey { return subscribed }
		s := NewSubscribers(w.Store, w.Logger)
		answered := make(chan struct{})
		w.Store.Hook("Subscribers", apptest.Hook{After: func(context.Context) error { <-answered; return nil }})
		w.Background(s.Run)
		s.Add(added)
		s.Add(added) // it was enabled again
		require.Equal(t, 1, s.Webhooks(apptest.ClientB))
		close(answered)
		synctest.Wait()
		require.Equal(t, []int{1, 1}, []int{s.Webhooks(apptest.ClientA), s.Webhooks(apptest.ClientB)})
		apptest.Pass(subscribersInterval)
		require.False(t, s.Has(apptest.ClientB))
		w.Store.Hook("Subscribers", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		apptest.Pass(time.Minute)
		require.True(t, s.Has(apptest.ClientA))
		require.Len(t, w.Log.Lines(t, map[string]any{"level": "WARN"}), 1, "not with each try")
		subscribed = nil
		w.Store.Hook("Subscribers", apptest.Hook{})
		apptest.Pass(subscribersInterval)
		require.False(t, s.Has(apptest.ClientA))
	})
}

// Events of clients with webhooks, and of jobs with a callback, have their deliveries enqueued, each once, together and without the
// writer waiting; while storage is away they are left to the relay.
func TestNewDeliveriesHaveTheirTasks(t *testing.T) {
	sending(t, nil, func(t *testing.T, w *worldDelivery) {
		s := NewSubscribers(w.Store, w.Logger)
		n := NewNotifier(w.Queue, s, w.Store, w.Logger)
		w.Background(n.Run)
		s.Add(job.EndpointKey{Client: apptest.ClientA, Endpoint: endpointA})
		written := func(client job.ID) job.Notification {
			id := app.NewID()
			w.Store.deliver(client, endpointA, func(r *deliveryRow) { r.JobID = id })
			return job.Notification{ClientID: client, JobID: id}
		}
		a, b, c := written(apptest.ClientA), written(apptest.ClientB), written(apptest.ClientB)
		n.Publish(a)
		n.Publish(b)
		n.Deliver(c.ClientID, c.JobID)
		apptest.Pass(feedPause)
		require.Equal(t, []job.Notification{a, b}, w.Queue.Notifications())
		require.Equal(t, 2, w.Queue.waiting())
		looks := w.Store.Count("NewDeliveries")
		w.Queue.flush()
		progress := a
		progress.Progress = &job.Progress{Percentage: 1}
		n.Publish(progress)
		apptest.Pass(feedPause)
		require.Equal(t, looks, w.Store.Count("NewDeliveries"), "progress is delivered to nobody")
		for range 100 {
			n.Publish(a)
		}
		apptest.Pass(10 * feedPause)
		require.LessOrEqual(t, w.Store.Count("NewDeliveries"), looks+2)
		require.Zero(t, w.Queue.waiting(), "it was enqueued before")
		w.Store.Hook("NewDeliveries", apptest.Hook{Before: apptest.Fails(2, apptest.ErrStorage)})
		for range 3 {
			n.Publish(written(apptest.ClientA))
			apptest.Pass(feedPause)
		}
		require.Equal(t, 1, w.Queue.waiting())
		require.Len(t, w.Log.Lines(t, map[string]any{"level": "WARN"}), 1)
	})
}
