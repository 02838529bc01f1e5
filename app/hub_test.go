package app

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// heard takes the news that is there, and tells whether there was any.
func heard(news <-chan job.Notification) (job.Notification, bool) {
	select {
	case n := <-news:
		return n, true
	default:
		return job.Notification{}, false
	}
}

func (w *worldEvents) requireHeard(news <-chan job.Notification, what string) job.Notification {
	w.t.Helper()
	n, ok := heard(news)
	require.True(w.t, ok, what)
	_, again := heard(news)
	require.False(w.t, again, what+", once")
	return n
}

func (w *worldEvents) requireQuiet(news <-chan job.Notification, what string) {
	w.t.Helper()
	n, ok := heard(news)
	require.False(w.t, ok, "%s: %+v", what, n)
}

// happens changes a job without anybody being told.
func (w *testWorld) happens(t job.Task, to job.State) {
	w.store.change(t.JobID, func(r *row) { w.store.move(r, to) })
}

// read reads a job's history as a stream does.
func (w *worldEvents) read(t job.Task) {
	w.t.Helper()
	_, err := w.reader.JobEvents(context.Background(), clientA, t.JobID, 0, 100)
	require.NoError(w.t, err)
}

func percent(n int) *job.Progress { return &job.Progress{Percentage: n} }

func TestHubListensForWatchedClientsOnly(t *testing.T) {
	t.Parallel()
	w := newWorldEvents(t)
	_, first := w.hub.Watch(clientA, newID())
	_, second := w.hub.Watch(clientA, job.ID{})
	watched, changes := w.listener.watching(clientA)
	require.True(t, watched)
	require.Equal(t, 1, changes, "once for all of a client's watchers")
	require.Equal(t, 1.0, w.metric(w.metrics.watchers.WithLabelValues("job")))
	require.Equal(t, 1.0, w.metric(w.metrics.watchers.WithLabelValues("client")))
	first()
	first()
	watched, _ = w.listener.watching(clientA)
	require.True(t, watched)
	second()
	watched, _ = w.listener.watching(clientA)
	require.False(t, watched)
	require.Zero(t, w.metric(w.metrics.watchers.WithLabelValues("job")))
	require.Zero(t, w.metric(w.metrics.watchers.WithLabelValues("client")))
	require.Empty(t, w.hub.clients)

	_, third := w.hub.Watch(clientA, newID())
	first()
	watched, _ = w.listener.watching(clientA)
	require.True(t, watched, "who left long ago takes nobody along")
	third()
}

func TestHubPassesNewsOn(t *testing.T) {
	t.Parallel()
	w := newWorldEvents(t)
	mine, other := newID(), newID()
	watch := func(client, id job.ID) <-chan job.Notification {
		news, stop := w.hub.Watch(client, id)
		t.Cleanup(stop)
		return news
	}
	one, two, feed := watch(clientA, mine), watch(clientA, mine), watch(clientA, job.ID{})
	quiet := []<-chan job.Notification{watch(clientA, other), watch(clientB, mine), watch(clientB, job.ID{})}

	n := job.Notification{ClientID: clientA, JobID: mine, Ended: true}
	w.hub.Received(n)
	for _, news := range []<-chan job.Notification{one, two, feed} {
		require.Equal(t, n, w.requireHeard(news, "an event"))
	}
	n = job.Notification{ClientID: clientA, JobID: mine, Attempt: 1, Progress: percent(10)}
	w.hub.Received(n)
	require.Equal(t, n, w.requireHeard(one, "progress"))
	require.Equal(t, n, w.requireHeard(two, "progress"))
	w.requireQuiet(feed, "progress is of single jobs")

	w.hub.Received(job.Notification{ClientID: clientA})
	w.requireHeard(feed, "a batch")
	w.requireQuiet(one, "a batch")
	require.Equal(t, 6.0, w.metric(w.metrics.pokes.WithLabelValues("news")))

	w.hub.Resumed(clientA)
	for _, news := range []<-chan job.Notification{one, two, feed, quiet[0]} {
		w.requireHeard(news, "resumed")
	}
	require.Equal(t, 4.0, w.metric(w.metrics.pokes.WithLabelValues("resumed")))
	for _, news := range quiet {
		w.requireQuiet(news, "somebody else's")
	}
}

func TestHubMergesWhatIsNotReceived(t *testing.T) {
	t.Parallel()
	event := job.Notification{}
	at := func(attempt, percentage int) job.Notification {
		return job.Notification{Attempt: attempt, Progress: percent(percentage)}
	}
	tests := map[string]struct {
		news []job.Notification
		want job.Notification
	}{
		"events":                   {[]job.Notification{event, event}, event},
		"later progress":           {[]job.Notification{at(1, 10), at(1, 20), at(1, 30)}, at(1, 30)},
		"progress out of order":    {[]job.Notification{at(1, 30), at(1, 20)}, at(1, 30)},
		"the next attempt":         {[]job.Notification{at(1, 90), at(2, 10)}, at(2, 10)},
		"an attempt out of order":  {[]job.Notification{at(2, 10), at(1, 90)}, at(2, 10)},
		"progress, then an event":  {[]job.Notification{at(1, 40), event}, at(1, 40)},
		"an event, then progress":  {[]job.Notification{event, at(1, 40)}, at(1, 40)},
		"an end, then something":   {[]job.Notification{{Ended: true}, event}, job.Notification{Ended: true}},
		"all of these in sequence": {[]job.Notification{at(1, 10), event, at(1, 50), {Ended: true}, at(1, 20)}, job.Notification{Attempt: 1, Progress: percent(50), Ended: true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, id := newWorldEvents(t), newID()
			news, stop := w.hub.Watch(clientA, id)
			defer stop()
			for _, n := range test.news {
				n.ClientID, n.JobID = clientA, id
				w.hub.Received(n)
			}
			test.want.ClientID, test.want.JobID = clientA, id
			require.Equal(t, test.want, w.requireHeard(news, "merged"))
		})
	}
}

// Everything at once, for the race detector; and whoever stays gets the last
// word.
func TestHubUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorldEvents(t)
	jobs := []job.ID{{}, newID(), newID(), newID()}
	var loud, quiet sync.WaitGroup
	calm := make(chan struct{})
	for i := range 8 {
		loud.Go(func() {
			for n := range 2000 {
				id := jobs[(n+i)%len(jobs)]
				w.hub.Received(job.Notification{ClientID: clientA, JobID: id, Attempt: 1, Progress: percent(n / 20)})
				w.hub.Received(job.Notification{ClientID: clientA, JobID: id})
				if n%100 == 0 {
					w.hub.Resumed(clientA)
					_ = w.hub.sweep(context.Background())
				}
			}
		})
		loud.Go(func() { // come and go
			for n := range 2000 {
				news, stop := w.hub.Watch(clientA, jobs[(n+i)%len(jobs)])
				w.hub.saw(clientA, jobs[n%len(jobs)], job.Position{Seq: n})
				if n%2 == 0 {
					heard(news)
				}
				stop()
				stop()
			}
		})
	}
	for i := range 200 { // stay
		news, stop := w.hub.Watch(clientA, jobs[i%len(jobs)])
		quiet.Go(func() {
			defer stop()
			for {
				select {
				case n := <-news:
					if n.Ended {
						return
					}
				case <-calm:
					select {
					case n := <-news:
						if !n.Ended {
							t.Errorf("the last word was lost: %+v", n)
						}
					default:
						t.Error("the last word was lost")
					}
					return
				}
			}
		})
	}
	loud.Wait()
	for _, id := range jobs {
		w.hub.Received(job.Notification{ClientID: clientA, JobID: id, Ended: true})
	}
	close(calm)
	quiet.Wait()
	require.Empty(t, w.hub.clients)
	require.Zero(t, w.metric(w.metrics.watchers.WithLabelValues("job")))
	require.Zero(t, w.metric(w.metrics.watchers.WithLabelValues("client")))
	watched, _ := w.listener.watching(clientA)
	require.False(t, watched)
}

func TestSweepMakesUpForLostNews(t *testing.T) {
	for name, connected := range map[string]bool{"connected": true, "cut off": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorldEvents(t)
				w.listener.setConnected(connected)
				w.background(w.hub.Run)
				interval := sweepInterval
				if connected {
					interval *= calmRounds
				}
				task := w.add(func(r *row) { r.EventSeq = 2 })
				news, stop := w.reader.Watch(clientA, task.JobID)
				defer stop()
				feed, leave := w.reader.Watch(clientA, job.ID{})
				defer leave()
				w.read(task)
				_, err := w.reader.ClientEvents(context.Background(), clientA, job.Position{}, 100)
				require.NoError(t, err)
				pass(2 * interval)
				w.requireQuiet(news, "nothing happened")
				w.requireQuiet(feed, "nothing happened")

				w.happens(task, job.Assigned)
				pass(interval)
				require.Equal(t, job.Notification{ClientID: clientA, JobID: task.JobID}, w.requireHeard(news, "lost news"))
				require.Equal(t, job.Notification{ClientID: clientA}, w.requireHeard(feed, "lost news"))
				require.Equal(t, 2.0, w.metric(w.metrics.pokes.WithLabelValues("sweep")))
				pass(2 * interval)
				w.requireQuiet(news, "nothing else happened")
				w.requireQuiet(feed, "nothing else happened")
			})
		})
	}
}

// Between a watcher's reading and the first sweep, news may be lost too.
func TestTheFirstSweepKnowsWhatWasRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldEvents(t)
		w.listener.setConnected(false)
		w.background(w.hub.Run)
		old := func(r *row) { r.EventSeq = 2 }
		changed, same := w.add(old), w.add(old)
		var watching []<-chan job.Notification
		for range 100 {
			for _, task := range []job.Task{changed, same} {
				news, stop := w.reader.Watch(clientA, task.JobID)
				defer stop()
				w.read(task)
				watching = append(watching, news)
			}
		}
		w.happens(changed, job.Assigned)
		pass(sweepInterval)
		for i, news := range watching {
			if i%2 == 0 {
				w.requireHeard(news, "of the change")
			} else {
				w.requireQuiet(news, "no stampede")
			}
		}
	})
}

// A sweep may answer between a watcher's reading and its report of it.
func TestASweepDuringTheFirstReading(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldEvents(t)
		w.listener.setConnected(false)
		w.background(w.hub.Run)
		task := w.add()
		news, stop := w.reader.Watch(clientA, task.JobID)
		defer stop()
		w.store.hook("Events", hook{after: func(context.Context) error { // a slow answer
			w.happens(task, job.Assigned)
			time.Sleep(3 * sweepInterval / 2)
			return nil
		}})
		w.read(task)
		w.requireQuiet(news, "the sweep could not know")
		pass(sweepInterval)
		w.requireHeard(news, "what came after the reading")
	})
}

func TestAReaderThatFailedIsPokedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldEvents(t)
		w.listener.setConnected(false)
		w.background(w.hub.Run)
		task := w.add(func(r *row) { r.EventSeq = 2 })
		news, stop := w.reader.Watch(clientA, task.JobID)
		defer stop()
		w.read(task)
		feed, leave := w.reader.Watch(clientA, job.ID{})
		defer leave()
		pass(sweepInterval)
		w.happens(task, job.Assigned)
		pass(sweepInterval)
		w.requireHeard(news, "of the event")
		w.requireHeard(feed, "of the event")
		w.store.hook("Events", hook{before: fails(1, errStorage)})
		w.store.hook("ClientEvents", hook{before: fails(1, errStorage)})
		_, err := w.reader.JobEvents(context.Background(), clientA, task.JobID, 2, 10)
		require.Error(t, err)
		_, err = w.reader.ClientEvents(context.Background(), clientA, job.Position{}, 10)
		require.Error(t, err)
		pass(sweepInterval)
		w.requireHeard(news, "again")
		w.requireHeard(feed, "again")
	})
}

func TestAWatchedJobThatIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldEvents(t)
		w.background(w.hub.Run)
		task := w.add(failedJob)
		news, stop := w.reader.Watch(clientA, task.JobID)
		defer stop()
		w.read(task)
		require.NoError(t, w.store.Delete(context.Background(), clientA, task.JobID))
		pass(calmRounds * sweepInterval)
		w.requireHeard(news, "it is gone")
	})
}

func TestSweepAsksOnceForAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldEvents(t)
		w.listener.setConnected(false)
		w.background(w.hub.Run)
		pass(10 * sweepInterval)
		require.Empty(t, w.store.asked, "nobody watches")

		var stops []func()
		for i := range 2 * sweepChunk {
			for range 3 { // of one job
				_, stop := w.hub.Watch(job.ID{1, byte(i), byte(i >> 8)}, job.ID{2, byte(i), byte(i >> 8)})
				stops = append(stops, stop)
			}
			_, stop := w.hub.Watch(job.ID{1, byte(i), byte(i >> 8)}, job.ID{})
			stops = append(stops, stop)
		}
		pass(sweepInterval)
		require.Len(t, w.store.asked, 4)
		ids := map[job.ID]bool{}
		for _, asked := range w.store.asked {
			require.Len(t, asked, sweepChunk)
			for _, id := range asked {
				ids[id] = true
			}
		}
		require.Len(t, ids, 4*sweepChunk)
		for _, stop := range stops {
			stop()
		}
		w.store.asked = nil
		pass(10 * sweepInterval)
		require.Empty(t, w.store.asked)
	})
}

func TestSweepThroughStorageTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldEvents(t)
		stop := w.background(w.hub.Run)
		task := w.add()
		news, leave := w.reader.Watch(clientA, task.JobID)
		defer leave()
		w.read(task)
		w.happens(task, job.Assigned)
		w.store.hook("EventSeqs", hook{before: fails(2, errStorage)})
		pass((calmRounds + 1) * sweepInterval)
		w.requireQuiet(news, "storage is away")
		pass(sweepInterval)
		w.requireHeard(news, "soon after it is back")
		require.Len(t, w.log.lines(t, map[string]any{"level": "WARN", "msg": "cannot look for missed news"}), 2)

		w.store.hook("EventSeqs", hook{before: hangs})
		pass(calmRounds * sweepInterval)
		stop() // at once, although storage hangs
		w.hub.Received(job.Notification{ClientID: clientA, JobID: task.JobID})
		w.requireHeard(news, "a hub that is stopped does no harm")
		synctest.Wait()
	})
}
