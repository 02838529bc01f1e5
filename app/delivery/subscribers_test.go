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

func TestSubscribersAreKnownWithinASecond(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldDelivery(t)
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
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldDelivery(t)
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
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldDelivery(t)
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
