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
		j, err := s.Await(ctx, clientA, id, done)
		answer <- awaited{j, err}
	}()
	synctest.Wait()
	return answer
}

// relayNews lets the hub hear what was announced.
func (w *worldJobs) relayNews() {
	for _, n := range w.queue.news() {
		w.hub.Received(n)
	}
	synctest.Wait()
}

func TestAwait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		w.background(w.hub.Run)
		w.runner = takes(10 * time.Second)
		w.start()
		task := w.add()
		answer := w.awaiting(s, 30*time.Second, task.JobID, isFinal)
		running := w.handling(task)
		w.relayNews()
		pass(5 * time.Second)
		reads := w.store.count("Job")
		w.hub.Received(job.Notification{ClientID: clientA, JobID: task.JobID, Attempt: 1, Progress: percent(50)})
		synctest.Wait()
		require.Equal(t, reads, w.store.count("Job"), "progress is no reason to read")
		require.NoError(t, <-running)
		w.relayNews()
		select {
		case a := <-answer:
			require.NoError(t, a.err)
			require.Equal(t, job.Succeeded, a.job.State)
		default:
			t.Fatal("not told of the end")
		}
		require.LessOrEqual(t, w.store.count("Job"), 5, "read with its events only")
		require.Zero(t, w.sum("watchers"))
	})
}

func TestAwaitOfWhatIsDoneAlready(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		task := w.add(failedJob)
		a := <-w.awaiting(w.service(10), time.Minute, task.JobID, isFinal)
		require.NoError(t, a.err)
		require.Equal(t, job.Failed, a.job.State)
		require.Equal(t, 1, w.store.count("Job"))
		require.Zero(t, w.sum("watchers"))
	})
}

func TestAwaitEndsInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		w.background(w.hub.Run)
		task := w.add(func(r *row) { r.State = job.Running })
		w.queue.Publish(job.Notification{JobID: task.JobID, Attempt: 1, Progress: percent(10)})
		began := time.Now()
		answer := w.awaiting(s, 30*time.Second, task.JobID, isFinal)
		pass(20 * time.Second)
		w.queue.Publish(job.Notification{JobID: task.JobID, Attempt: 1, Progress: percent(60)})
		a := <-answer
		require.NoError(t, a.err)
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Equal(t, job.Running, a.job.State)
		require.Equal(t, percent(60), a.job.Progress, "as it is at the end")
		require.Equal(t, 1, w.store.count("Job"), "waiting costs storage nothing")
	})
}

// The change comes after the job was read and before anybody waits.
func TestAwaitMissesNothingBetweenReadingAndWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		task := w.add()
		first := true
		w.store.hook("Job", hook{after: func(context.Context) error {
			if first {
				first = false
				w.happens(task, job.Canceled)
				w.hub.Received(job.Notification{ClientID: clientA, JobID: task.JobID})
			}
			return nil
		}})
		a := <-w.awaiting(s, time.Minute, task.JobID, isFinal)
		require.NoError(t, a.err)
		require.Equal(t, job.Canceled, a.job.State)
		require.Equal(t, 2, w.store.count("Job"))
	})
}

func TestAwaitWithoutNews(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		w.listener.setConnected(false)
		w.background(w.hub.Run)
		task := w.add()
		answer := w.awaiting(s, 30*time.Second, task.JobID, isFinal)
		began := time.Now()
		w.happens(task, job.Canceled)
		a := <-answer
		require.NoError(t, a.err)
		require.Equal(t, job.Canceled, a.job.State)
		require.LessOrEqual(t, time.Since(began), sweepInterval)
	})
}

func TestAwaitOfAJobThatIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		w.background(w.hub.Run)
		task := w.add(failedJob)
		answer := w.awaiting(s, 30*time.Second, task.JobID, func(*job.Job) bool { return false })
		require.NoError(t, s.Delete(context.Background(), clientA, task.JobID))
		a := <-answer
		require.Equal(t, job.CodeJobNotFound, job.CodeOf(a.err), "the store's own answer")
		require.Nil(t, a.job)
	})
}

func TestAwaitThroughTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		task := w.add()
		w.store.hook("Job", hook{before: hangs})
		a := <-w.awaiting(s, time.Second, task.JobID, isFinal)
		require.ErrorIs(t, a.err, context.DeadlineExceeded, "it was never read")

		w.store.hook("Job", hook{})
		answer := w.awaiting(s, 10*time.Second, task.JobID, isFinal)
		w.store.hook("Job", hook{before: hangs})
		w.hub.Received(job.Notification{ClientID: clientA, JobID: task.JobID})
		a = <-answer
		require.NoError(t, a.err, "the time was up while it was read again")
		require.Equal(t, job.Queued, a.job.State)

		w.store.hook("Job", hook{})
		answer = w.awaiting(s, 10*time.Second, task.JobID, isFinal)
		w.store.hook("Job", hook{before: fails(1, errStorage)})
		w.hub.Received(job.Notification{ClientID: clientA, JobID: task.JobID})
		require.ErrorIs(t, (<-answer).err, errStorage)

		w.store.hook("Job", hook{})
		_, err := s.Await(context.Background(), clientB, task.JobID, isFinal)
		require.Equal(t, job.CodeJobNotFound, job.CodeOf(err))
		require.Zero(t, w.sum("watchers"))
	})
}

// All watchers want to read at once when news comes in again.
func TestFewWatchersReadAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		task := w.add()
		var mu sync.Mutex
		reading, most := 0, 0
		slow := hook{before: func(context.Context) error {
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
			w.store.hook(operation, slow)
		}
		var all sync.WaitGroup
		done := func(*job.Job) bool { return true }
		for range 20 {
			all.Go(func() { _, _ = w.reader.JobEvents(context.Background(), clientA, task.JobID, 0, 10) })
			all.Go(func() { _, _ = w.reader.ClientEvents(context.Background(), clientA, job.Position{}, 10) })
			all.Go(func() { _, _ = s.Await(context.Background(), clientA, task.JobID, done) })
		}
		synctest.Wait()
		hasty, cancel := context.WithTimeout(context.Background(), time.Second/2)
		defer cancel()
		_, err := w.reader.JobEvents(hasty, clientA, task.JobID, 0, 10)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		all.Wait()
		require.Equal(t, watcherReads, most)
		require.Equal(t, 40, w.store.count("Events")+w.store.count("ClientEvents"))
	})
}
