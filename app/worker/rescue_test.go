package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestGiveBack(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		assigned := w.Add(apptest.HeldByTheDead(job.Assigned))
		running := w.Add(apptest.HeldByTheDead(job.Running))
		last := w.Add(apptest.HeldByTheDead(job.Running, func(r *apptest.Row) { r.AutoRetry, r.Attempt = true, r.MaxAttempts }))
		retried := w.Add(apptest.HeldByTheDead(job.Running, func(r *apptest.Row) { r.AutoRetry = true }))
		apptest.Pass(2 * time.Second)

		require.NoError(t, w.worker.rescuer.GiveBack(context.Background(), w.Orphans()))
		require.Empty(t, w.Orphans())

		require.Equal(t, job.Queued, w.Store.RowOf(assigned.JobID).State)
		require.Equal(t, time.Now(), w.Store.RowOf(assigned.JobID).RunAt, "it may run at once")
		end := w.Ended(running, job.Failed)
		require.Equal(t, job.NewFailure(job.WorkerLost, 1, apptest.Backoff), end.Failure)
		require.Nil(t, end.RetryWait)
		require.False(t, end.Exhausted)
		require.True(t, w.Ended(last, job.Failed).Exhausted)
		require.Nil(t, w.Ended(last, job.Failed).RetryWait)
		require.Equal(t, job.Queued, w.Store.RowOf(retried.JobID).State)
		require.Equal(t, 2, w.Store.RowOf(retried.JobID).Attempt)

		require.ElementsMatch(t, []job.Task{
			{JobID: assigned.JobID, Attempt: 1, Dispatch: 1, RunAt: time.Now()},
			{JobID: retried.JobID, Attempt: 2, RunAt: w.Store.RowOf(retried.JobID).RunAt},
		}, apptest.Named(w.Queue.Sent()))
		require.Equal(t, []job.ID{apptest.ClientA, apptest.ClientA, apptest.ClientA, apptest.ClientA}, w.Queue.Woken(), "they may have callbacks")
		kind := "SUCCESS_FAST"
		require.Equal(t, 1.0, w.Metric(w.Metrics.Repaired.WithLabelValues("rescuer_requeued")))
		require.Equal(t, 3.0, w.Metric(w.Metrics.Repaired.WithLabelValues("rescuer_failed")))
		require.Equal(t, 3.0, w.Sum("jobs_failed_total"))
		require.Equal(t, 2.0, w.Metric(w.Metrics.Queued.WithLabelValues(kind)))
		require.Equal(t, 1.0, w.Metric(w.Metrics.Retried.WithLabelValues("auto")))
		require.Equal(t, 6.0, w.Sum("job_execution_seconds"))
		for action, n := range map[string]int{"requeue": 1, "fail": 3, "auto_retry": 1} {
			require.Len(t, w.Log.Lines(t, map[string]any{"msg": "job transition", "action": action}), n)
		}
	})
}

func TestGiveBackBacksOffWithRepeatedExpiry(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for expiries, wait := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
			task := w.Add(apptest.HeldByTheDead(job.Assigned, func(r *apptest.Row) { r.Expiries = expiries }))
			require.NoError(t, w.worker.rescuer.GiveBack(context.Background(), w.Orphans()))
			r := w.Store.RowOf(task.JobID)
			require.Equal(t, wait, time.Until(r.RunAt))
			require.Equal(t, expiries+1, r.Expiries)
		}
	})
}

func TestGiveBackOfWhatWentOnMeanwhile(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Add(apptest.HeldByTheDead(job.Assigned))
		w.Add(apptest.HeldByTheDead(job.Running))
		held := w.Orphans()
		for _, h := range held {
			w.Store.Change(h.JobID, func(r *apptest.Row) { r.Fence++ })
		}
		require.NoError(t, w.worker.rescuer.GiveBack(context.Background(), held))
		require.Empty(t, w.Queue.Sent())
		require.Zero(t, w.Sum("jobs_failed_total"))
		require.Zero(t, w.Metric(w.Metrics.Repaired.WithLabelValues("rescuer_failed")))
	})
}

func TestGiveBackTwiceAtOnceHasOneEffect(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for range 50 {
			w.Add(apptest.HeldByTheDead(job.Assigned))
			w.Add(apptest.HeldByTheDead(job.Running, func(r *apptest.Row) { r.AutoRetry = true }))
		}
		held := w.Orphans()
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- w.worker.rescuer.GiveBack(context.Background(), held) }()
		}
		require.NoError(t, <-done)
		require.NoError(t, <-done)
		require.Len(t, w.Queue.Sent(), 100)
		require.Equal(t, 50.0, w.Sum("jobs_failed_total"))
	})
}

func TestGiveBackReportsTroubleAndDoesTheRest(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		assigned := w.Add(apptest.HeldByTheDead(job.Assigned))
		running := w.Add(apptest.HeldByTheDead(job.Running))
		w.Store.Hook("Finish", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		require.ErrorIs(t, w.worker.rescuer.GiveBack(context.Background(), w.Orphans()), apptest.ErrStorage)
		require.Equal(t, job.Queued, w.Store.RowOf(assigned.JobID).State)

		w.Store.Hook("Finish", apptest.Hook{})
		w.Add(apptest.HeldByTheDead(job.Assigned))
		w.Store.Hook("Release", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		require.ErrorIs(t, w.worker.rescuer.GiveBack(context.Background(), w.Orphans()), apptest.ErrStorage)
		w.Ended(running, job.Failed)
	})
}
