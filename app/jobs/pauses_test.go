package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// stops are pauses that a test sets.
type stops struct{ now job.Pauses }

func (s *stops) Now() job.Pauses { return s.now }

func TestDrainedSubmissionsAreRefused(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, stopped := newWorldJobs(t), &stops{}
		s := w.service(100)
		s.pauses = stopped
		ctx := context.Background()
		keyed := newRequest(func(r *job.Request) { r.IdempotencyKey = "key" })
		first, err := s.Submit(ctx, keyed)
		require.NoError(t, err)
		rows := len(w.Store.Rows)
		client := keyed.ClientID.String()
		for _, p := range []job.Pause{
			{Scope: job.PauseAll}, {Scope: job.PauseClient, Target: client},
			{Scope: job.PauseKind, Target: string(w.Store.Rows[first.JobID].WorkKind)},
		} {
			p.Mode = job.ModeDrain
			stopped.now = job.Pauses{p}
			fresh := newRequest(func(r *job.Request) { r.WorkKind = w.Store.Rows[first.JobID].WorkKind })
			_, err = s.Submit(ctx, fresh)
			require.Equal(t, job.CodeQueueFull, job.CodeOf(err), "%+v", p)
			require.Contains(t, err.Error(), "The operator has stopped taking")
			_, _, err = s.SubmitBatch(ctx, newBatchRequest(newRequest(), fresh))
			require.Equal(t, job.CodeQueueFull, job.CodeOf(err), "%+v", p)
			again, err := s.Submit(ctx, keyed)
			require.NoError(t, err, "it was accepted before")
			require.Equal(t, first.JobID, again.JobID)
			require.Len(t, w.Store.Rows, rows)
		}
		for _, p := range []job.Pause{
			{Scope: job.PauseAll, Mode: job.ModePause}, {Scope: job.PauseWorker, Target: client, Mode: job.ModeDrain},
			{Scope: job.PauseKind, Target: string(job.FailImmediate), Mode: job.ModeDrain},
		} {
			stopped.now = job.Pauses{p}
			_, err = s.Submit(ctx, newRequest(func(r *job.Request) { r.WorkKind = job.SuccessFast }))
			require.NoError(t, err, "%+v", p)
		}
		require.Equal(t, rows+3, len(w.Store.Rows))
		s.pauses = nil
		for range 100 - rows - 3 { // what was refused took no room
			_, err = s.Submit(ctx, newRequest())
			require.NoError(t, err)
		}
	})
}

func TestPausedJobsSaySo(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, stopped := newWorldJobs(t), &stops{}
		s := w.service(100)
		s.pauses = stopped
		ctx := context.Background()
		soon := time.Now().Add(time.Hour)
		queued, err := s.Submit(ctx, newRequest())
		require.NoError(t, err)
		later, err := s.Submit(ctx, newRequest(func(r *job.Request) { r.Type, r.ExecutionAt = job.Deferred, &soon }))
		require.NoError(t, err)
		client := w.Store.Rows[queued.JobID].ClientID
		waits := func(id job.ID) job.WaitingReason {
			j, err := s.Job(ctx, client, id)
			require.NoError(t, err)
			return j.Waiting
		}
		before := waits(queued.JobID)
		require.NotEqual(t, job.WaitingPaused, before)
		stopped.now = job.Pauses{{Scope: job.PauseClient, Target: client.String(), Mode: job.ModePause}}
		require.Equal(t, job.WaitingPaused, waits(queued.JobID))
		require.Equal(t, job.WaitingScheduled, waits(later.JobID), "its time comes first")
		stopped.now[0].Mode = job.ModeDrain
		require.Equal(t, before, waits(queued.JobID), "it is run")
	})
}
