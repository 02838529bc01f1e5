package jobs

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/events"
	"github.com/forgerun/forgerun/job"
)

func isFinal(j *job.Job) bool { return j.State.Final() }

type awaited struct {
	job *job.Job
	err error
}

// awaiting waits for a job in the background.
func (w *worldJobs) awaiting(s *Service, limit time.Duration, id job.ID, done func(*job.Job) bool) <-chan awaited {
	answer := make(chan awaited, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		j, err := s.Await(ctx, apptest.ClientA, id, done)
		answer <- awaited{j, err}
	}()
	synctest.Wait()
	return answer
}

// receiveAll gives the hub what was published.
func (w *worldJobs) receiveAll() {
	for _, n := range w.Queue.Notifications() {
		w.hub.Received(n)
	}
	synctest.Wait()
}

func TestAwait(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		w.Background(w.hub.Run)
		w.runner = apptest.Takes(10 * time.Second)
		w.start()
		task := w.Add()
		answer := w.awaiting(s, 30*time.Second, task.JobID, isFinal)
		running := w.handling(task)
		w.receiveAll()
		apptest.Pass(5 * time.Second)
		reads := w.Store.Count("Job")
		w.hub.Received(job.Notification{ClientID: apptest.ClientA, JobID: task.JobID, Attempt: 1, Progress: apptest.Percent(50)})
		synctest.Wait()
		require.Equal(t, reads, w.Store.Count("Job"), "progress is no reason to read")
		require.NoError(t, <-running)
		w.receiveAll()
		select {
		case a := <-answer:
			require.NoError(t, a.err)
			require.Equal(t, job.Succeeded, a.job.State)
		default:
			t.Fatal("not told of the end")
		}
		require.LessOrEqual(t, w.Store.Count("Job"), 5, "read with its events only")
		require.Zero(t, w.Sum("watchers"))
	})
}

func TestAwaitOfWhatIsDoneAlready(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		task := w.Add(apptest.FailedJob)
		a := <-w.awaiting(w.service(10), time.Minute, task.JobID, isFinal)
		require.NoError(t, a.err)
		require.Equal(t, job.Failed, a.job.State)
		require.Equal(t, 1, w.Store.Count("Job"))
		require.Zero(t, w.Sum("watchers"))
	})
}

func TestAwaitEndsInTime(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		w.Background(w.hub.Run)
		task := w.Add(func(r *apptest.Row) { r.State = job.Running })
		w.Queue.Publish(job.Notification{JobID: task.JobID, Attempt: 1, Progress: apptest.Percent(10)})
		began := time.Now()
		answer := w.awaiting(s, 30*time.Second, task.JobID, isFinal)
		apptest.Pass(20 * time.Second)
		w.Queue.Publish(job.Notification{JobID: task.JobID, Attempt: 1, Progress: apptest.Percent(60)})
		a := <-answer
		require.NoError(t, a.err)
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Equal(t, job.Running, a.job.State)
		require.Equal(t, apptest.Percent(60), a.job.Progress, "as it is at the end")
		require.Equal(t, 1, w.Store.Count("Job"), "waiting costs storage nothing")
	})
}

// The change comes after the job was read and before anybody waits.
func TestAwaitMissesNothingBetweenReadingAndWaiting(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		task := w.Add()
		first := true
		w.Store.Hook("Job", apptest.Hook{After: func(context.Context) error {
			if first {
				first = false
				w.Happens(task, job.Canceled)
				w.hub.Received(job.Notification{ClientID: apptest.ClientA, JobID: task.JobID})
			}
			return nil
		}})
		a := <-w.awaiting(s, time.Minute, task.JobID, isFinal)
		require.NoError(t, a.err)
		require.Equal(t, job.Canceled, a.job.State)
		require.Equal(t, 2, w.Store.Count("Job"))
	})
}

func TestAwaitWithoutNotifications(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		w.listener.up.Store(false)
		w.Background(w.hub.Run)
		task := w.Add()
		answer := w.awaiting(s, 30*time.Second, task.JobID, isFinal)
		began := time.Now()
		w.Happens(task, job.Canceled)
		a := <-answer
		require.NoError(t, a.err)
		require.Equal(t, job.Canceled, a.job.State)
		require.LessOrEqual(t, time.Since(began), events.SweepInterval)
	})
}

func TestAwaitOfAJobThatIsDeleted(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		w.Background(w.hub.Run)
		task := w.Add(apptest.FailedJob)
		answer := w.awaiting(s, 30*time.Second, task.JobID, func(*job.Job) bool { return false })
		require.NoError(t, s.Delete(context.Background(), apptest.ClientA, task.JobID))
		a := <-answer
		require.Equal(t, job.CodeJobNotFound, job.CodeOf(a.err), "the store's own answer")
		require.Nil(t, a.job)
	})
}

func TestAwaitThroughTrouble(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		task := w.Add()
		w.Store.Hook("Job", apptest.Hook{Before: apptest.Hangs})
		a := <-w.awaiting(s, time.Second, task.JobID, isFinal)
		require.ErrorIs(t, a.err, context.DeadlineExceeded, "it was never read")

		w.Store.Hook("Job", apptest.Hook{})
		answer := w.awaiting(s, 10*time.Second, task.JobID, isFinal)
		w.Store.Hook("Job", apptest.Hook{Before: apptest.Hangs})
		w.hub.Received(job.Notification{ClientID: apptest.ClientA, JobID: task.JobID})
		a = <-answer
		require.NoError(t, a.err, "the time was up while it was read again")
		require.Equal(t, job.Queued, a.job.State)

		w.Store.Hook("Job", apptest.Hook{})
		answer = w.awaiting(s, 10*time.Second, task.JobID, isFinal)
		w.Store.Hook("Job", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		w.hub.Received(job.Notification{ClientID: apptest.ClientA, JobID: task.JobID})
		require.ErrorIs(t, (<-answer).err, apptest.ErrStorage)

		w.Store.Hook("Job", apptest.Hook{})
		_, err := s.Await(context.Background(), apptest.ClientB, task.JobID, isFinal)
		require.Equal(t, job.CodeJobNotFound, job.CodeOf(err))
		require.Zero(t, w.Sum("watchers"))
	})
}

// All watchers want to read at once when notifications come in again.
func TestFewWatchersReadAtOnce(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		task := w.Add()
		var mu sync.Mutex
		reading, most := 0, 0
		slow := apptest.Hook{Before: func(context.Context) error {
			mu.Lock()
			reading++
			most = max(most, reading)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			reading--
			return nil
		}}
		for _, operation := range []string{"Job", "Events", "ClientEvents"} {
			w.Store.Hook(operation, slow)
		}
		var all sync.WaitGroup
		done := func(*job.Job) bool { return true }
		for range 20 {
			all.Go(func() { _, _ = w.reader.JobEvents(context.Background(), apptest.ClientA, task.JobID, 0, 10) })
			all.Go(func() { _, _ = w.reader.ClientEvents(context.Background(), apptest.ClientA, job.Position{}, 10) })
			all.Go(func() { _, _ = s.Await(context.Background(), apptest.ClientA, task.JobID, done) })
		}
		synctest.Wait()
		hasty, cancel := context.WithTimeout(context.Background(), time.Second/2)
		defer cancel()
		_, err := w.reader.JobEvents(hasty, apptest.ClientA, task.JobID, 0, 10)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		all.Wait()
		require.Equal(t, events.MaxConcurrentReads, most)
		require.Equal(t, 40, w.Store.Count("Events")+w.Store.Count("ClientEvents"))
	})
}
