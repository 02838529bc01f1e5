package events

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

type world struct {
	*apptest.World
	listener *fakeListener
	hub      *Hub
}

func newWorld(t testing.TB, store *repo.Store) *world {
	w := &world{World: apptest.NewWorld(t), listener: &fakeListener{watched: map[job.ID]bool{}, up: true}}
	w.hub = NewHub(store, w.listener, w.Metrics, w.Logger)
	return w
}

type fakeListener struct {
	mu      sync.Mutex
	watched map[job.ID]bool
	changes int
	up      bool
}

func (l *fakeListener) Watch(client job.ID)   { l.set(client, true) }
func (l *fakeListener) Unwatch(client job.ID) { l.set(client, false) }
func (l *fakeListener) Connected() bool       { return l.up }

func (l *fakeListener) set(client job.ID, watched bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	l.watched[client] = watched
}

func (l *fakeListener) watching(client job.ID) (bool, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watched[client], l.changes
}

func heard(notifications <-chan job.Notification) (job.Notification, bool) {
	select {
	case n := <-notifications:
		return n, true
	default:
		return job.Notification{}, false
	}
}

func (w *world) requireHeard(notifications <-chan job.Notification, what string) job.Notification {
	w.T.Helper()
	n, ok := heard(notifications)
	require.True(w.T, ok, what)
	_, again := heard(notifications)
	require.False(w.T, again, what+", once")
	return n
}

func (w *world) requireQuiet(notifications <-chan job.Notification, what string) {
	w.T.Helper()
	n, ok := heard(notifications)
	require.False(w.T, ok, "%s: %+v", what, n)
}

func TestHubListensForWatchedClientsOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	_, first := w.hub.Watch(apptest.ClientA, app.NewID())
	_, second := w.hub.Watch(apptest.ClientA, job.ID{})
	watched, changes := w.listener.watching(apptest.ClientA)
	require.True(t, watched)
	require.Equal(t, 1, changes, "one subscription for all watchers of a client")
	require.Equal(t, 1.0, w.Metric(w.Metrics.Watchers.WithLabelValues("job")))
	require.Equal(t, 1.0, w.Metric(w.Metrics.Watchers.WithLabelValues("client")))
	first()
	first()
	watched, _ = w.listener.watching(apptest.ClientA)
	require.True(t, watched)
	second()
	watched, _ = w.listener.watching(apptest.ClientA)
	require.False(t, watched)
	require.Zero(t, w.Metric(w.Metrics.Watchers.WithLabelValues("job")))
	require.Zero(t, w.Metric(w.Metrics.Watchers.WithLabelValues("client")))
	require.Empty(t, w.hub.clients)

	_, third := w.hub.Watch(apptest.ClientA, app.NewID())
	first()
	watched, _ = w.listener.watching(apptest.ClientA)
	require.True(t, watched, "a watcher that left does not remove others")
	third()
}

func TestHubPassesNotificationsOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	mine, other := app.NewID(), app.NewID()
	watch := func(client, id job.ID) <-chan job.Notification {
		notifications, stop := w.hub.Watch(client, id)
		t.Cleanup(stop)
		return notifications
	}
	one, two, feed := watch(apptest.ClientA, mine), watch(apptest.ClientA, mine), watch(apptest.ClientA, job.ID{})
	quiet := []<-chan job.Notification{watch(apptest.ClientA, other), watch(apptest.ClientB, mine), watch(apptest.ClientB, job.ID{})}

	n := job.Notification{ClientID: apptest.ClientA, JobID: mine, Ended: true}
	w.hub.Received(n)
	for _, notifications := range []<-chan job.Notification{one, two, feed} {
		require.Equal(t, n, w.requireHeard(notifications, "an event"))
	}
	n = job.Notification{ClientID: apptest.ClientA, JobID: mine, Attempt: 1, Progress: apptest.Percent(10)}
	w.hub.Received(n)
	require.Equal(t, n, w.requireHeard(one, "progress"))
	require.Equal(t, n, w.requireHeard(two, "progress"))
	w.requireQuiet(feed, "a client's feed has no progress")

	w.hub.Received(job.Notification{ClientID: apptest.ClientA})
	w.requireHeard(feed, "a batch")
	w.requireQuiet(one, "a batch")
	require.Equal(t, 6.0, w.Metric(w.Metrics.Notifications.WithLabelValues("event")))

	w.hub.Resumed(apptest.ClientA)
	for _, notifications := range []<-chan job.Notification{one, two, feed, quiet[0]} {
		w.requireHeard(notifications, "resumed")
	}
	require.Equal(t, 4.0, w.Metric(w.Metrics.Notifications.WithLabelValues("resumed")))
	for _, notifications := range quiet {
		w.requireQuiet(notifications, "notification of another client")
	}
}

func TestHubMergesPendingNotifications(t *testing.T) {
	t.Parallel()
	event := job.Notification{}
	at := func(attempt, percentage int) job.Notification {
		return job.Notification{Attempt: attempt, Progress: apptest.Percent(percentage)}
	}
	tests := map[string]struct {
		notifications []job.Notification
		want          job.Notification
	}{
		"events":                  {[]job.Notification{event, event}, event},
		"later progress":          {[]job.Notification{at(1, 10), at(1, 20), at(1, 30)}, at(1, 30)},
		"progress out of order":   {[]job.Notification{at(1, 30), at(1, 20)}, at(1, 30)},
		"the next attempt":        {[]job.Notification{at(1, 90), at(2, 10)}, at(2, 10)},
		"an attempt out of order": {[]job.Notification{at(2, 10), at(1, 90)}, at(2, 10)},
		"progress, then an event": {[]job.Notification{at(1, 40), event}, at(1, 40)},
		"an event, then progress": {[]job.Notification{event, at(1, 40)}, at(1, 40)},
		"an end, then something":  {[]job.Notification{{Ended: true}, event}, job.Notification{Ended: true}},
		"all of these in sequence": {[]job.Notification{at(1, 10), event, at(1, 50), {Ended: true}, at(1, 20)},
			job.Notification{Attempt: 1, Progress: apptest.Percent(50), Ended: true}},
	}
	w := newWorld(t, nil)
	for name, test := range tests {
		id := app.NewID()
		notifications, stop := w.hub.Watch(apptest.ClientA, id)
		for _, n := range test.notifications {
			n.ClientID, n.JobID = apptest.ClientA, id
			w.hub.Received(n)
		}
		test.want.ClientID, test.want.JobID = apptest.ClientA, id
		require.Equal(t, test.want, w.requireHeard(notifications, name))
		stop()
	}
}
