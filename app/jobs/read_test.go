package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
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
