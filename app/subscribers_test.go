package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// subscribe stores a webhook as another process would.
func (w *testWorld) subscribe(client job.ID) *webhookRow {
	r := &webhookRow{Webhook: job.Webhook{ID: newID(), ClientID: client}}
	w.store.meddle(func() { w.store.hooked[r.ID] = r })
	return r
}

func TestSubscribersAreKnownWithinASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldDelivery(t)
		first := w.subscribe(clientA)
		s := NewSubscribers(w.store, w.logger)
		w.background(s.Run)
		require.True(t, s.Has(clientA), "at once at the start")
		require.False(t, s.Has(clientB))
		w.subscribe(clientB)
		pass(subscribersInterval)
		require.True(t, s.Has(clientB))

		w.store.hook("Subscribers", hook{before: fails(-1, errStorage)})
		w.store.meddle(func() { first.Disabled = &job.Disabled{} })
		pass(time.Minute)
		require.True(t, s.Has(clientA), "as it was")
		require.Len(t, w.log.lines(t, map[string]any{"level": "WARN"}), 1, "not with each try")
		w.store.hook("Subscribers", hook{})
		pass(subscribersInterval)
		require.False(t, s.Has(clientA))
		require.True(t, s.Has(clientB))
	})
}

// A reading that began before a registration has not seen it.
func TestASubscriberThatIsAddedDuringAReadingStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldDelivery(t)
		s := NewSubscribers(w.store, w.logger)
		answered := make(chan struct{})
		w.store.hook("Subscribers", hook{after: func(context.Context) error { <-answered; return nil }})
		w.background(s.Run)
		s.Add(clientA)
		require.True(t, s.Has(clientA))
		close(answered)
		synctest.Wait()
		require.True(t, s.Has(clientA))
		pass(subscribersInterval)
		require.False(t, s.Has(clientA), "the next reading knows better")
	})
}

func TestNewsOfSubscribersIsHintedToTheCouriers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldDelivery(t)
		s := NewSubscribers(w.store, w.logger)
		n := NewNotifier(w.queue, s)
		s.Add(clientA)
		a, b := job.Notification{ClientID: clientA, JobID: newID()}, job.Notification{ClientID: clientB, JobID: newID()}
		n.Publish(a)
		n.Publish(b)
		require.Equal(t, []job.Notification{a, b}, w.queue.news())
		require.Equal(t, []job.ID{clientA}, w.queue.hints())
		a.Progress = &job.Progress{Percentage: 1}
		n.Publish(a)
		require.Empty(t, w.queue.hints(), "progress is delivered to nobody")
	})
}
