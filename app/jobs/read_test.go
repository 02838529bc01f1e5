package jobs

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// read reads a job that must be there.
func (w *worldJobs) read(s *Service, id job.ID) *job.Job {
	w.T.Helper()
	j := apptest.Must(s.Job(context.Background(), apptest.ClientA, id))(w.T)
	return j
}

// Promise: contract 14d
func TestWhatAJobWaitsFor(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		waiting := func(task job.Task) job.WaitingReason { return w.read(s, task.JobID).Waiting }
		queued, scheduled, running := w.Add(), w.AddDeferred(time.Hour), w.Add(inState(job.Running))
		backoff := w.Add(func(r *apptest.Row) { r.RunAt = time.Now().Add(time.Hour) })
		require.Equal(t, job.WaitingQueue, waiting(queued), "nobody has counted yet")
		w.Background(s.deps.Capacity.Run)
		require.Equal(t, job.WaitingNoWorkers, waiting(queued))
		require.Equal(t, job.WaitingScheduled, waiting(scheduled))
		require.Equal(t, job.WaitingBackoff, waiting(backoff))
		require.Empty(t, waiting(running))

		stop := w.start()
		apptest.Pass(capacityInterval)
		require.Equal(t, job.WaitingQueue, waiting(queued))
		w.Store.Hook("LiveWorkers", apptest.Hook{Before: apptest.Fails(2, apptest.ErrStorage)})
		stop()
		apptest.Pass(2 * capacityInterval)
		require.Equal(t, job.WaitingQueue, waiting(queued), "as counted last")
		apptest.Pass(capacityInterval)
		require.Equal(t, job.WaitingNoWorkers, waiting(queued))

		stopped := &stops{job.Pauses{{Scope: job.PauseClient, Target: apptest.ClientA.String(), Mode: job.ModePause}}}
		s.deps.Pauses = stopped
		require.Equal(t, job.WaitingPaused, waiting(queued))
		require.Equal(t, job.WaitingScheduled, waiting(scheduled), "its time comes first")
		stopped.now[0].Mode = job.ModeDrain
		require.Equal(t, job.WaitingNoWorkers, waiting(queued), "it is run")
	})
}

// stops are pauses that a test sets.
type stops struct{ now job.Pauses }

func (s *stops) Now() job.Pauses { return s.now }

func TestDrainedSubmissionsAreRefused(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		stopped := &stops{}
		s.deps.Pauses = stopped
		first := w.submit(s, withKey("key"))
		client := apptest.ClientA.String()
		for _, p := range []job.Pause{
			{Scope: job.PauseAll}, {Scope: job.PauseClient, Target: client}, {Scope: job.PauseKind, Target: string(job.SuccessFast)},
		} {
			p.Mode = job.ModeDrain
			stopped.now = job.Pauses{p}
			refusal := w.refused(s)
			require.Equal(t, job.CodeQueueFull, refusal.Code, "%+v", p)
			require.Contains(t, refusal.Detail, "The operator has stopped taking")
			_, _, err := s.SubmitBatch(context.Background(), newBatchRequest(newRequest(ofKind(job.RunsLong)), newRequest()))
			require.Equal(t, job.CodeQueueFull, job.CodeOf(err), "%+v", p)
			require.Equal(t, first.JobID, w.submit(s, withKey("key")).JobID, "it was accepted before")
			require.Len(t, w.Store.Rows, 1)
		}
		for _, p := range []job.Pause{
			{Scope: job.PauseAll, Mode: job.ModePause}, {Scope: job.PauseWorker, Target: client, Mode: job.ModeDrain},
			{Scope: job.PauseKind, Target: string(job.FailImmediate), Mode: job.ModeDrain},
		} {
			stopped.now = job.Pauses{p}
			w.submit(s)
		}
		require.Equal(t, 4, w.held(s).Active, "what was refused took no room")
	})
}

func isFinal(j *job.Job) bool { return j.State.Final() }

type awaited struct {
	job *job.Job
	err error
}

// awaiting waits for the end of a job in the background.
func (w *worldJobs) awaiting(s *Service, limit time.Duration, id job.ID) <-chan awaited {
	answer := make(chan awaited, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		j, err := s.Await(ctx, apptest.ClientA, id, isFinal)
		answer <- awaited{j, err}
	}()
	synctest.Wait()
	return answer
}

// ended asserts that a wait came to its end, with a job in a state.
func (w *worldJobs) ended(answer <-chan awaited, want job.State) *job.Job {
	w.T.Helper()
	a := <-answer
	require.NoError(w.T, a.err)
	require.Equal(w.T, want, a.job.State)
	require.Zero(w.T, w.Sum("watchers"))
	return a.job
}

// receiveAll gives the hub what was published.
func (w *worldJobs) receiveAll() {
	for _, n := range w.Queue.Notifications() {
		w.hub.Received(n)
	}
	synctest.Wait()
}

func TestAwait(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		w.runner = apptest.Takes(10 * time.Second)
		w.start()
		task := w.Add()
		answer := w.awaiting(s, 30*time.Second, task.JobID)
		running := w.handling(task)
		w.receiveAll()
		apptest.Pass(5 * time.Second)
		reads := w.Store.Count("Job")
		w.hub.Received(job.Notification{ClientID: apptest.ClientA, JobID: task.JobID, Attempt: 1, Progress: apptest.Percent(50)})
		synctest.Wait()
		require.Equal(t, reads, w.Store.Count("Job"), "progress is no reason to read")
		require.NoError(t, <-running)
		w.receiveAll()
		require.Len(t, answer, 1, "told of the end")
		w.ended(answer, job.Succeeded)
		require.LessOrEqual(t, w.Store.Count("Job"), 5, "read with its events only")

		reads = w.Store.Count("Job")
		w.ended(w.awaiting(s, time.Minute, task.JobID), job.Succeeded)
		require.Equal(t, reads+1, w.Store.Count("Job"), "what is done already")
	})
}

func TestAwaitEndsInTime(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		task := w.Add(inState(job.Running))
		began := time.Now()
		answer := w.awaiting(s, 30*time.Second, task.JobID)
		apptest.Pass(20 * time.Second)
		w.Queue.Publish(job.Notification{JobID: task.JobID, Attempt: 1, Progress: apptest.Percent(60)})
		j := w.ended(answer, job.Running)
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Equal(t, apptest.Percent(60), j.Progress, "as it is at the end")
		require.Equal(t, 1, w.Store.Count("Job"), "waiting costs storage nothing")
		w.Store.Change(task.JobID, apptest.FailedJob)
		require.Nil(t, w.read(s, task.JobID).Progress, "it runs no more")
	})
}

// The change comes after the job was read and before anybody waits.
func TestAwaitMissesNothingBetweenReadingAndWaiting(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		task := w.Add()
		first := true
		w.Store.Hook("Job", apptest.Hook{After: func(context.Context) error {
			if first {
				first = false
				w.Happens(task, job.Canceled)
				w.hub.Received(apptest.Event(task))
			}
			return nil
		}})
		w.ended(w.awaiting(s, time.Minute, task.JobID), job.Canceled)
		require.Equal(t, 2, w.Store.Count("Job"))
	})
}

func TestAwaitThroughTrouble(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		task := w.Add()
		// again waits, and has the read after the first one go wrong.
		again := func(before func(context.Context) error) <-chan awaited {
			w.Store.Hook("Job", apptest.Hook{})
			answer := w.awaiting(s, 10*time.Second, task.JobID)
			w.Store.Hook("Job", apptest.Hook{Before: before})
			w.hub.Received(apptest.Event(task))
			return answer
		}
		w.Store.Hook("Job", apptest.Hook{Before: apptest.Hangs})
		require.ErrorIs(t, (<-w.awaiting(s, time.Second, task.JobID)).err, context.DeadlineExceeded, "it was never read")
		w.ended(again(apptest.Hangs), job.Queued) // the time was up while it was read again
		require.ErrorIs(t, (<-again(apptest.Fails(1, apptest.ErrStorage))).err, apptest.ErrStorage)
		require.Zero(t, w.Sum("watchers"))
	})
}
