package events

import (
	"context"
	"crypto/sha256"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

func stored(t *testing.T) *world {
	t.Parallel()
	return newWorld(t, repotest.OpenURL(t, repotest.URL(t)))
}

func (w *world) add() job.ID {
	j := job.Job{
		ID: app.NewID(), ClientID: apptest.ClientA, Type: job.Execute, WorkKind: job.SuccessFast, MaxAttempts: 1, Language: "en",
		RequestID: "r", Definition: apptest.DefinitionOf(job.SuccessFast),
	}
	_, err := w.hub.store.InsertJob(w.T.Context(), job.Submission{Job: j, RequestHash: sha256.Sum256(j.ID[:])})
	require.NoError(w.T, err)
	return j.ID
}

// cancel cancels a job, but the hub gets no notification.
func (w *world) cancel(id job.ID) {
	_, _, err := w.hub.store.Cancel(w.T.Context(), apptest.ClientA, id)
	require.NoError(w.T, err)
}

func (w *world) watch(id job.ID) <-chan job.Notification {
	notifications, stop := w.hub.Watch(apptest.ClientA, id)
	w.T.Cleanup(stop)
	return notifications
}

func (w *world) read(id job.ID) job.Log {
	log, err := w.hub.JobEvents(w.T.Context(), apptest.ClientA, id, 0, 100)
	require.NoError(w.T, err)
	return log
}

func (w *world) sweep() { require.NoError(w.T, w.hub.sweep(w.T.Context())) }

func TestSweepReplacesLostNotifications(t *testing.T) {
	w := stored(t)
	changed, same, gone := w.add(), w.add(), w.add()
	w.cancel(gone)
	testkit.Eventually(t, "the feed can be read to its end: transactions of other tests hold it back", func() bool {
		feed, err := w.hub.store.ClientEvents(t.Context(), apptest.ClientA, job.Position{}, 100)
		return err == nil && !feed.Held
	})
	notifications, unchanged, deleted, feed := w.watch(changed), w.watch(same), w.watch(gone), w.watch(job.ID{})
	for _, id := range []job.ID{changed, same, gone} {
		w.read(id)
	}
	_, err := w.hub.ClientEvents(t.Context(), apptest.ClientA, job.Position{}, 100)
	require.NoError(t, err)
	for range 2 {
		w.sweep()
	}
	w.requireQuiet(notifications, "without changes")
	w.requireQuiet(feed, "without changes")

	w.cancel(changed)
	require.NoError(t, w.hub.store.Delete(t.Context(), apptest.ClientA, gone))
	w.sweep()
	require.Equal(t, job.Notification{ClientID: apptest.ClientA, JobID: changed}, w.requireHeard(notifications, "a lost notification"))
	require.Equal(t, job.Notification{ClientID: apptest.ClientA}, w.requireHeard(feed, "a lost notification"))
	w.requireHeard(deleted, "the job was deleted")
	w.requireQuiet(unchanged, "the job is unchanged")
	require.Equal(t, 3.0, w.Metric(w.Metrics.Notifications.WithLabelValues("sweep")))

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, second(w.hub.JobEvents(canceled, apptest.ClientA, changed, 2, 10)))
	w.sweep()
	w.requireHeard(notifications, "after a failed read")
}

func second[T any](_ T, err error) error { return err }

func TestFirstSweepUsesReadPositions(t *testing.T) {
	w := stored(t)
	changed, same := w.add(), w.add()
	first, second := w.watch(changed), w.watch(same)
	w.read(changed)
	w.read(same)
	w.cancel(changed)
	w.sweep()
	w.requireHeard(first, "the job changed")
	w.requireQuiet(second, "the job is unchanged")

	late := w.add()
	before := w.read(late) // no watcher yet, so the hub does not record this read
	notifications := w.watch(late)
	w.cancel(late)
	w.sweep()
	w.requireQuiet(notifications, "the sweep does not know the position")
	w.hub.saw(apptest.ClientA, late, job.Position{Seq: before.Last})
	w.sweep()
	w.requireHeard(notifications, "the job changed after the read")
}

func TestSweepsFollowTheConnection(t *testing.T) {
	closed := repotest.OpenURL(t, "postgres://127.0.0.1:1/none")
	closed.Close()
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, closed)
		w.watch(app.NewID())
		require.False(t, w.hub.canSkip(calmRounds))
		require.True(t, w.hub.canSkip(calmRounds+1))
		w.Background(w.hub.Run)
		apptest.Pass((calmRounds + 2) * SweepInterval)
		require.Len(t, w.Log.Lines(t, map[string]any{"level": "WARN", "msg": "cannot look for missed events"}), 3)
		w.listener.up = false
		require.False(t, w.hub.canSkip(calmRounds+1))
	})
}

type waiting struct {
	*world
	id    job.ID
	reads int
	read  func(context.Context) (*job.Job, error)
	over  chan waited
}

type waited struct {
	job  *job.Job
	over bool
	err  error
}

func await(w *world, limit time.Duration, read func(context.Context) (*job.Job, error)) *waiting {
	a := &waiting{world: w, id: app.NewID(), read: read, over: make(chan waited, 1)}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		j, over, err := w.hub.Await(ctx, apptest.ClientA, a.id, func(ctx context.Context) (*job.Job, error) {
			a.reads++
			return a.read(ctx)
		}, func(j *job.Job) bool { return j.State.Final() })
		a.over <- waited{j, over, err}
	}()
	synctest.Wait()
	return a
}

func (a *waiting) received(n job.Notification) {
	n.ClientID, n.JobID = apptest.ClientA, a.id
	a.hub.Received(n)
	synctest.Wait()
}

func is(s job.State) func(context.Context) (*job.Job, error) {
	return func(context.Context) (*job.Job, error) { return &job.Job{State: s}, nil }
}

func TestAwait(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		a := await(w, time.Minute, is(job.Queued))
		a.received(job.Notification{Attempt: 1, Progress: apptest.Percent(50)})
		require.Equal(t, 1, a.reads, "progress causes no read")
		a.received(job.Notification{})
		require.Equal(t, 2, a.reads, "each event causes a read")
		a.read = is(job.Canceled)
		a.received(job.Notification{})
		require.Equal(t, waited{&job.Job{State: job.Canceled}, false, nil}, <-a.over)

		a = await(w, time.Minute, is(job.Failed))
		require.Equal(t, job.Failed, (<-a.over).job.State)
		require.Equal(t, 1, a.reads, "a finished job is read once")

		began := time.Now()
		require.Equal(t, waited{&job.Job{State: job.Running}, true, nil}, <-await(w, 30*time.Second, is(job.Running)).over)
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Zero(t, w.Sum("watchers"))
	})
}

func TestAwaitMissesNoChangeBetweenReadAndWait(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		id, state := app.NewID(), job.Queued
		j, over, err := w.hub.Await(t.Context(), apptest.ClientA, id, func(context.Context) (*job.Job, error) {
			read := &job.Job{State: state}
			state = job.Canceled
			w.hub.Received(job.Notification{ClientID: apptest.ClientA, JobID: id})
			return read, nil
		}, func(j *job.Job) bool { return j.State.Final() })
		require.Equal(t, waited{&job.Job{State: job.Canceled}, false, nil}, waited{j, over, err})
	})
}

func TestAwaitThroughTrouble(t *testing.T) {
	hangs := func(ctx context.Context) (*job.Job, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		require.ErrorIs(t, (<-await(w, time.Second, hangs).over).err, context.DeadlineExceeded, "the first read timed out")
		again := func(read func(context.Context) (*job.Job, error)) waited {
			a := await(w, 10*time.Second, is(job.Queued))
			a.read = read
			a.received(job.Notification{})
			return <-a.over
		}
		require.Equal(t, waited{&job.Job{State: job.Queued}, true, nil}, again(hangs), "the second read timed out")
		gone := job.Errorf(job.CodeJobNotFound, "gone")
		require.Equal(t, waited{nil, false, gone}, again(func(context.Context) (*job.Job, error) { return nil, gone }), "the error of the store")
		require.Zero(t, w.Sum("watchers"))
	})
}

func TestFewWatchersReadAtOnce(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		release := make(chan struct{})
		var mu sync.Mutex
		reading, read := 0, 0
		for range 20 {
			go func() {
				_, _ = limitedRead(t.Context(), w.hub, func() (int, error) {
					mu.Lock()
					reading++
					mu.Unlock()
					<-release
					mu.Lock()
					read++
					mu.Unlock()
					return 0, nil
				})
			}()
		}
		synctest.Wait()
		require.Equal(t, MaxConcurrentReads, reading)
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, err := range []error{
			second(w.hub.JobEvents(hasty, apptest.ClientA, app.NewID(), 0, 10)),
			second(w.hub.ClientEvents(hasty, apptest.ClientA, job.Position{}, 10)),
			(<-await(w, time.Second, is(job.Failed)).over).err,
		} {
			require.ErrorIs(t, err, context.DeadlineExceeded, "reads wait for their turn")
		}
		close(release)
		synctest.Wait()
		require.Equal(t, 20, read)
	})
}
