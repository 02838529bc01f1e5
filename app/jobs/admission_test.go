package jobs

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestDrainedSubmissionsAreRefused(t *testing.T) {
	w := newWorld(t)
	first := w.submit(w.Service, withKey("key"))
	client := apptest.ClientA.String()
	for _, p := range []job.Pause{
		{Scope: job.PauseAll}, {Scope: job.PauseClient, Target: client}, {Scope: job.PauseKind, Target: string(job.SuccessFast)},
	} {
		p.Mode = job.ModeDrain
		w.pauses = job.Pauses{p}
		refusal := w.refused(w.Service)
		require.Equal(t, job.CodeQueueFull, refusal.Code, "%+v", p)
		require.Contains(t, refusal.Detail, "The operator has stopped accepting")
		_, _, err := w.SubmitBatch(t.Context(), newBatchRequest(newRequest(ofKind(job.RunsLong)), newRequest()))
		require.Equal(t, job.CodeQueueFull, job.CodeOf(err), "%+v", p)
		_, err = w.Service.Trigger(t.Context(), app.NewID(), newRequest())
		require.Equal(t, job.CodeQueueFull, job.CodeOf(err), "%+v", p)
		require.Equal(t, first.JobID, w.submit(w.Service, withKey("key")).JobID, "replay of an accepted request")
	}
	for _, p := range []job.Pause{
		{Scope: job.PauseAll, Mode: job.ModePause}, {Scope: job.PauseWorker, Target: client, Mode: job.ModeDrain},
		{Scope: job.PauseKind, Target: string(job.FailImmediate), Mode: job.ModeDrain},
	} {
		w.pauses = job.Pauses{p}
		w.submit(w.Service)
	}
	require.Equal(t, 4, w.active())
}

func TestFullDailyStorageRefuses(t *testing.T) {
	w := newWorld(t)
	large := func(r *job.Request) { r.Params = []byte(`{"a":"` + strings.Repeat("x", 64<<10) + `"}`) }
	w.full = true
	refusal := w.refused(w.Service, large)
	require.Equal(t, job.CodeRateLimited, refusal.Code)
	require.Equal(t, time.Hour, refusal.RetryAfter)
	w.nothingDone()
	require.Zero(t, w.Admission.Capacity.lease.used)
	w.submit(w.Service)
}

func TestOneClientCannotTakeAll(t *testing.T) {
	w := newWorld(t)
	other := w.service(0) // another process
	w.limit(w.Service, shared(20, 5))
	w.limit(other, shared(20, 5))
	for range 5 {
		w.submit(w.Service, deferred(time.Hour))
	}
	full := w.refused(w.Service)
	require.Equal(t, job.CodeQueueFull, full.Code)
	require.Equal(t, capacityInterval, full.RetryAfter)
	require.Contains(t, full.Detail, "limit of 5 unfinished jobs")
	w.submit(w.Service, of(apptest.ClientB))

	require.NoError(t, w.Admission.Capacity.Renew(t.Context()))
	require.NoError(t, other.Admission.Capacity.Renew(t.Context()))
	_ = w.refused(other) // the limit counts the jobs of both processes
	w.submit(other, of(apptest.ClientB))

	w.limit(w.Service, Limits{Active: 20, Queued: 20, ClientActive: 9, ClientQueued: 1})
	w.submit(w.Service)
	require.Contains(t, w.refused(w.Service).Detail, "limit of 1 jobs in QUEUED")
	w.submit(w.Service, deferred(time.Hour)) // not queued yet
}
