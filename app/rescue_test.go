package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// heldByTheDead is a job of a worker that does not exist any more.
func heldByTheDead(s job.State, change ...func(*row)) func(*row) {
	return func(r *row) {
		began := time.Now()
		r.State, r.worker, r.fence, r.StartedAt = s, newID(), 3, &began
		for _, f := range change {
			f(r)
		}
	}
}

func (w *testWorld) orphans() []job.Held {
	held, err := w.store.Orphans(context.Background(), 1000)
	require.NoError(w.t, err)
	return held
}

func TestGiveBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		assigned := w.add(heldByTheDead(job.Assigned))
		running := w.add(heldByTheDead(job.Running))
		last := w.add(heldByTheDead(job.Running, func(r *row) { r.AutoRetry, r.Attempt = true, r.MaxAttempts }))
		retried := w.add(heldByTheDead(job.Running, func(r *row) { r.AutoRetry = true }))
		pass(2 * time.Second)

		require.NoError(t, w.worker.rescuer.giveBack(context.Background(), w.orphans()))
		require.Empty(t, w.orphans())

		require.Equal(t, job.Queued, w.store.job(assigned.JobID).State)
		require.Equal(t, time.Now(), w.store.job(assigned.JobID).RunAt, "it may run at once")
		end := w.ended(running, job.Failed)
		require.Equal(t, job.NewFailure(job.WorkerLost, 1, testBackoff), end.Failure)
		require.Nil(t, end.RetryWait)
		require.False(t, end.Exhausted)
		require.True(t, w.ended(last, job.Failed).Exhausted)
		require.Nil(t, w.ended(last, job.Failed).RetryWait)
		require.Equal(t, job.Queued, w.store.job(retried.JobID).State)
		require.Equal(t, 2, w.store.job(retried.JobID).Attempt)

		require.ElementsMatch(t, []job.Task{
			{JobID: assigned.JobID, Attempt: 1, Dispatch: 1, RunAt: time.Now()},
			{JobID: retried.JobID, Attempt: 2, RunAt: w.store.job(retried.JobID).RunAt},
		}, w.queue.sent())
		require.Equal(t, []job.ID{clientA, clientA, clientA, clientA}, w.queue.hints(), "they may have callbacks")
		kind := "SUCCESS_FAST"
		require.Equal(t, 1.0, w.metric(w.metrics.repaired.WithLabelValues("rescuer_requeued")))
		require.Equal(t, 3.0, w.metric(w.metrics.repaired.WithLabelValues("rescuer_failed")))
		require.Equal(t, 3.0, w.sum("jobs_failed_total"))
		require.Equal(t, 2.0, w.metric(w.metrics.queued.WithLabelValues(kind)))
		require.Equal(t, 1.0, w.metric(w.metrics.retried.WithLabelValues("auto")))
		require.Equal(t, 6.0, w.sum("job_execution_seconds"))
		for action, n := range map[string]int{"requeue": 1, "fail": 3, "auto_retry": 1} {
			require.Len(t, w.log.lines(t, map[string]any{"msg": "job transition", "action": action}), n)
		}
	})
}

func TestGiveBackBacksOffWithRepeatedExpiry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for expiries, wait := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
			task := w.add(heldByTheDead(job.Assigned, func(r *row) { r.expiries = expiries }))
			require.NoError(t, w.worker.rescuer.giveBack(context.Background(), w.orphans()))
			r := w.store.job(task.JobID)
			require.Equal(t, wait, time.Until(r.RunAt))
			require.Equal(t, expiries+1, r.expiries)
		}
	})
}

func TestGiveBackOfWhatWentOnMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(heldByTheDead(job.Assigned))
		w.add(heldByTheDead(job.Running))
		held := w.orphans()
		for _, h := range held {
			w.store.change(h.JobID, func(r *row) { r.fence++ })
		}
		require.NoError(t, w.worker.rescuer.giveBack(context.Background(), held))
		require.Empty(t, w.queue.sent())
		require.Zero(t, w.sum("jobs_failed_total"))
		require.Zero(t, w.metric(w.metrics.repaired.WithLabelValues("rescuer_failed")))
	})
}

func TestGiveBackTwiceAtOnceHasOneEffect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for range 50 {
			w.add(heldByTheDead(job.Assigned))
			w.add(heldByTheDead(job.Running, func(r *row) { r.AutoRetry = true }))
		}
		held := w.orphans()
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- w.worker.rescuer.giveBack(context.Background(), held) }()
		}
		require.NoError(t, <-done)
		require.NoError(t, <-done)
		require.Len(t, w.queue.sent(), 100)
		require.Equal(t, 50.0, w.sum("jobs_failed_total"))
	})
}

func TestGiveBackReportsTroubleAndDoesTheRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		assigned := w.add(heldByTheDead(job.Assigned))
		running := w.add(heldByTheDead(job.Running))
		w.store.hook("Finish", hook{before: fails(-1, errStorage)})
		require.ErrorIs(t, w.worker.rescuer.giveBack(context.Background(), w.orphans()), errStorage)
		require.Equal(t, job.Queued, w.store.job(assigned.JobID).State)

		w.store.hook("Finish", hook{})
		w.add(heldByTheDead(job.Assigned))
		w.store.hook("Release", hook{before: fails(-1, errStorage)})
		require.ErrorIs(t, w.worker.rescuer.giveBack(context.Background(), w.orphans()), errStorage)
		w.ended(running, job.Failed)
	})
}
