package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/events"
	"github.com/forgerun/forgerun/job"
)

// Promise: contract 14d
func TestWhatAJobWaitsFor(t *testing.T) {
	now := time.Now().Add(time.Minute) // later than any backoff
	w := newWorld(t, func(c *Config) { c.Clock = func() time.Time { return now } })
	waiting := func(id job.ID) job.WaitingReason {
		return apptest.Must(w.Job(t.Context(), apptest.ClientA, id))(t).Waiting
	}
	queued, scheduled, running := w.submit(w.Service).JobID, w.submit(w.Service, deferred(time.Hour)).JobID, w.submit(w.Service).JobID
	backoff := w.failed(w.Service)
	apptest.Must(w.Retry(t.Context(), apptest.ClientA, backoff))(t)
	w.run(running, 1)
	workers := w.Admission.Capacity
	require.Equal(t, job.WaitingQueue, waiting(queued), "before the first count of workers")
	require.NoError(t, workers.countWorkers(t.Context()))
	require.Equal(t, job.WaitingQueue, waiting(queued), "there is a worker")
	require.Equal(t, job.WaitingScheduled, waiting(scheduled))
	require.Empty(t, waiting(running))
	now = now.Add(-2 * time.Minute)
	require.Equal(t, job.WaitingBackoff, waiting(backoff))
	now = now.Add(2 * time.Minute)

	leases := w.store.NewLeases()
	defer leases.Close()
	require.NoError(t, leases.Retire(t.Context(), w.worker))
	require.NoError(t, workers.countWorkers(t.Context()))
	require.Equal(t, job.WaitingNoWorkers, waiting(queued))

	w.pauses = job.Pauses{{Scope: job.PauseClient, Target: apptest.ClientA.String(), Mode: job.ModePause}}
	require.Equal(t, job.WaitingPaused, waiting(queued))
	require.Equal(t, job.WaitingScheduled, waiting(scheduled), "the execution time takes precedence")
	w.pauses[0].Mode = job.ModeDrain
	require.Equal(t, job.WaitingNoWorkers, waiting(queued), "a drained client's jobs run")
}

// connected is a listener whose notifications the test sends.
type connected struct{}

func (connected) Watch(job.ID)    {}
func (connected) Unwatch(job.ID)  {}
func (connected) Connected() bool { return true }

type awaited struct {
	job *job.Job
	err error
}

// await calls Await in the background, and returns once the job has been read.
func (w *world) await(ctx context.Context, id job.ID) <-chan awaited {
	answer, read := make(chan awaited, 1), make(chan struct{}, 100)
	go func() {
		j, err := w.Await(ctx, apptest.ClientA, id, func(j *job.Job) bool {
			read <- struct{}{}
			return j.State.Final()
		})
		answer <- awaited{j, err}
	}()
	<-read
	return answer
}

func TestAwait(t *testing.T) {
	w := newWorld(t)
	w.Hub = events.NewHub(w.store, connected{}, w.World.Metrics, w.Logger)
	// After the timeout the job is returned in its current state.
	running := w.submit(w.Service).JobID
	w.run(running, 1)
	ctx, cancel := context.WithCancel(t.Context())
	answer := w.await(ctx, running)
	w.Queue.Publish(job.Notification{JobID: running, Attempt: 1, Progress: apptest.Percent(60)})
	cancel()
	a := <-answer
	require.NoError(t, a.err)
	require.Equal(t, job.Running, a.job.State)
	require.Equal(t, apptest.Percent(60), a.job.Progress)

	// A job deleted during the wait is not found.
	failed := w.submit(w.Service).JobID
	answer = w.await(t.Context(), failed)
	w.fail(failed, 1, job.DependencyFailed)
	w.Queue.Notifications()
	require.NoError(t, w.Delete(t.Context(), apptest.ClientA, failed))
	for _, n := range w.Queue.Notifications() {
		w.Hub.Received(n)
	}
	require.Equal(t, job.CodeJobGone, job.CodeOf((<-answer).err))
	require.Zero(t, w.Sum("watchers"))
}
