package events

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// heard takes the notifications that is there, and tells whether there was any.
func heard(notifications <-chan job.Notification) (job.Notification, bool) {
	select {
	case n := <-notifications:
		return n, true
	default:
		return job.Notification{}, false
	}
}

func (w *worldEvents) requireHeard(notifications <-chan job.Notification, what string) job.Notification {
	w.T.Helper()
	n, ok := heard(notifications)
	require.True(w.T, ok, what)
	_, again := heard(notifications)
	require.False(w.T, again, what+", once")
	return n
}

func (w *worldEvents) requireQuiet(notifications <-chan job.Notification, what string) {
	w.T.Helper()
	n, ok := heard(notifications)
	require.False(w.T, ok, "%s: %+v", what, n)
}

func TestHubListensForWatchedClientsOnly(t *testing.T) {
	t.Parallel()
	w := newWorldEvents(t)
	_, first := w.hub.Watch(apptest.ClientA, app.NewID())
	_, second := w.hub.Watch(apptest.ClientA, job.ID{})
	watched, changes := w.listener.watching(apptest.ClientA)
	require.True(t, watched)
	require.Equal(t, 1, changes, "once for all of a client's watchers")
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
	w := newWorldEvents(t)
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
	w.requireQuiet(feed, "progress is of single jobs")

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
		w.requireQuiet(notifications, "somebody else's")
	}
}

func TestHubMergesWhatIsNotReceived(t *testing.T) {
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
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, id := newWorldEvents(t), app.NewID()
			notifications, stop := w.hub.Watch(apptest.ClientA, id)
			defer stop()
			for _, n := range test.notifications {
				n.ClientID, n.JobID = apptest.ClientA, id
				w.hub.Received(n)
			}
			test.want.ClientID, test.want.JobID = apptest.ClientA, id
			require.Equal(t, test.want, w.requireHeard(notifications, "merged"))
		})
	}
}

// read reads a job's history as a stream does.
func (w *worldEvents) read(t job.Task) {
	w.T.Helper()
	_, err := w.reader.JobEvents(context.Background(), apptest.ClientA, t.JobID, 0, 100)
	require.NoError(w.T, err)
}

// watch watches a job, or all of a client for the zero task.
func (w *worldEvents) watch(t job.Task) <-chan job.Notification {
	notifications, stop := w.reader.Watch(apptest.ClientA, t.JobID)
	w.T.Cleanup(stop)
	return notifications
}

// Everything at once, for the race detector; and whoever stays gets the last word.
func TestHubUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorldEvents(t)
	jobs := []job.ID{{}, app.NewID(), app.NewID(), app.NewID()}
	var loud, quiet sync.WaitGroup
	for i := range 8 {
		loud.Go(func() {
			for n := range 1000 {
				id := jobs[(n+i)%len(jobs)]
				w.hub.Received(job.Notification{ClientID: apptest.ClientA, JobID: id, Attempt: 1, Progress: apptest.Percent(n / 10)})
				w.hub.Received(job.Notification{ClientID: apptest.ClientA, JobID: id})
				if n%100 == 0 {
					w.hub.Resumed(apptest.ClientA)
					_ = w.hub.sweep(context.Background())
				}
			}
		})
		loud.Go(func() { // come and go
			for n := range 1000 {
				notifications, stop := w.hub.Watch(apptest.ClientA, jobs[(n+i)%len(jobs)])
				w.hub.saw(apptest.ClientA, jobs[n%len(jobs)], job.Position{Seq: n})
				if n%2 == 0 {
					heard(notifications)
				}
				stop()
			}
		})
	}
	for i := range 200 { // stay
		notifications, stop := w.hub.Watch(apptest.ClientA, jobs[i%len(jobs)])
		quiet.Go(func() {
			defer stop()
			for n := range notifications {
				if n.Ended {
					return
				}
			}
		})
	}
	loud.Wait()
	for _, id := range jobs {
		w.hub.Received(job.Notification{ClientID: apptest.ClientA, JobID: id, Ended: true})
	}
	quiet.Wait() // for ever, if the last word was lost
	require.Empty(t, w.hub.clients)
	require.Zero(t, w.Sum("watchers"))
	watched, _ := w.listener.watching(apptest.ClientA)
	require.False(t, watched)
}

func TestSweepMakesUpForLostNotifications(t *testing.T) {
	for name, connected := range map[string]bool{"connected": true, "cut off": false} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorldEvents(t)
			w.listener.up.Store(connected)
			w.Background(w.hub.Run)
			interval := SweepInterval
			if connected {
				interval *= calmRounds
			}
			old := func(r *apptest.Row) { r.EventSeq = 2 }
			task, same, gone := w.Add(old), w.Add(old), w.Add(apptest.FailedJob)
			notifications, unchanged, deleted, feed := w.watch(task), w.watch(same), w.watch(gone), w.watch(job.Task{})
			for _, t := range []job.Task{task, same, gone} {
				w.read(t)
			}
			_, err := w.reader.ClientEvents(context.Background(), apptest.ClientA, job.Position{}, 100)
			require.NoError(t, err)
			apptest.Pass(2 * interval)
			w.requireQuiet(notifications, "nothing happened")
			w.requireQuiet(feed, "nothing happened")

			w.Happens(task, job.Assigned)
			w.Store.Update(func() { delete(w.Store.Rows, gone.JobID) })
			apptest.Pass(interval)
			require.Equal(t, job.Notification{ClientID: apptest.ClientA, JobID: task.JobID}, w.requireHeard(notifications, "a lost notification"))
			require.Equal(t, job.Notification{ClientID: apptest.ClientA}, w.requireHeard(feed, "a lost notification"))
			w.requireHeard(deleted, "it is gone")
			w.requireQuiet(unchanged, "no stampede")
			require.Equal(t, 3.0, w.Metric(w.Metrics.Notifications.WithLabelValues("sweep")))
			if connected {
				return
			}
			w.Store.Hook("Events", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
			_, err = w.reader.JobEvents(context.Background(), apptest.ClientA, task.JobID, 2, 10)
			require.Error(t, err)
			apptest.Pass(interval)
			w.requireHeard(notifications, "whose reading failed, again")
		})
	}
}

// Between a watcher's reading and the first sweep, notifications may be lost too; and a sweep may answer between a watcher's reading
// and its report of it.
func TestTheFirstSweepKnowsWhatWasRead(t *testing.T) {
	bubble(t, func(_ *testing.T, w *worldEvents) {
		w.listener.up.Store(false)
		w.Background(w.hub.Run)
		changed, same := w.Add(), w.Add()
		first, second := w.watch(changed), w.watch(same)
		w.read(changed)
		w.read(same)
		w.Happens(changed, job.Assigned)
		apptest.Pass(SweepInterval)
		w.requireHeard(first, "of the change")
		w.requireQuiet(second, "no stampede")

		late := w.Add()
		notifications := w.watch(late)
		w.Store.Hook("Events", apptest.Hook{After: func(context.Context) error { // a slow answer
			w.Happens(late, job.Assigned)
			time.Sleep(3 * SweepInterval / 2)
			return nil
		}})
		w.read(late)
		w.requireQuiet(notifications, "the sweep could not know")
		apptest.Pass(SweepInterval)
		w.requireHeard(notifications, "what came after the reading")
	})
}

func TestSweepThroughStorageTrouble(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldEvents) {
		stop := w.Background(w.hub.Run)
		task := w.Add()
		notifications := w.watch(task)
		w.read(task)
		w.Happens(task, job.Assigned)
		w.Store.Hook("EventSeqs", apptest.Hook{Before: apptest.Fails(2, apptest.ErrStorage)})
		apptest.Pass((calmRounds + 1) * SweepInterval)
		w.requireQuiet(notifications, "storage is away")
		apptest.Pass(SweepInterval)
		w.requireHeard(notifications, "soon after it is back")
		require.Len(t, w.Log.Lines(t, map[string]any{"level": "WARN", "msg": "cannot look for missed events"}), 2)

		w.Store.Hook("EventSeqs", apptest.Hook{Before: apptest.Hangs})
		apptest.Pass(calmRounds * SweepInterval)
		stop() // at once, although storage hangs
		w.hub.Received(job.Notification{ClientID: apptest.ClientA, JobID: task.JobID})
		w.requireHeard(notifications, "a hub that is stopped does no harm")
	})
}

// worldEvents is the hub with everything around it.
type worldEvents struct {
	*apptest.World
	listener *fakeListener
	hub      *Hub
	reader   *Reader
}

// bubble runs a test in a world of its own.
func bubble(t *testing.T, f func(t *testing.T, w *worldEvents)) {
	t.Helper()
	apptest.Bubble(t, func(t *testing.T) { f(t, newWorldEvents(t)) })
}

func newWorldEvents(t testing.TB) *worldEvents {
	w := &worldEvents{World: apptest.NewWorld(t)}
	w.listener = &fakeListener{watched: map[job.ID]bool{}}
	w.listener.up.Store(true)
	w.hub = NewHub(w.Store, w.listener, w.Metrics, w.Logger)
	w.reader = NewReader(w.Store, w.hub)
	return w
}

// fakeListener is the way that notifications come by.
type fakeListener struct {
	mu      sync.Mutex
	watched map[job.ID]bool
	changes int
	up      atomic.Bool
}

func (l *fakeListener) Watch(client job.ID)   { l.set(client, true) }
func (l *fakeListener) Unwatch(client job.ID) { l.set(client, false) }
func (l *fakeListener) Connected() bool       { return l.up.Load() }

func (l *fakeListener) set(client job.ID, watched bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	l.watched[client] = watched
}

// watching says whether a client is watched, and how often that changed.
func (l *fakeListener) watching(client job.ID) (bool, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watched[client], l.changes
}
