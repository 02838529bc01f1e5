package worker

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestGiveBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		assigned := w.Add(apptest.HeldByTheDead(job.Assigned))
		running := w.Add(apptest.HeldByTheDead(job.Running))
		last := w.Add(apptest.HeldByTheDead(job.Running, func(r *apptest.Row) { r.AutoRetry, r.Attempt = true, r.MaxAttempts }))
		retried := w.Add(apptest.HeldByTheDead(job.Running, func(r *apptest.Row) { r.AutoRetry = true }))
		apptest.Pass(2 * time.Second)

		w.giveBack()
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
		require.ElementsMatch(t, []job.Notification{apptest.Event(assigned), apptest.End(running), apptest.End(last), apptest.End(retried)},
			w.Queue.Notifications())
		require.ElementsMatch(t, []job.ID{assigned.JobID, running.JobID, last.JobID, retried.JobID}, w.Queue.Delivered(),
			"they may have callbacks")
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
	bubble(t, func(t *testing.T, w *world) {
		for expiries, wait := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
			task := w.Add(apptest.HeldByTheDead(job.Assigned, func(r *apptest.Row) { r.Expiries = expiries }))
			w.giveBack()
			r := w.Store.RowOf(task.JobID)
			require.Equal(t, wait, time.Until(r.RunAt))
			require.Equal(t, expiries+1, r.Expiries)
		}
	})
}

func TestGiveBackOfWhatWentOnMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
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

func TestGiveBackReportsTroubleAndDoesTheRest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
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

// draining drains in the background, with a grace; it lets it come to rest.
func (w *world) draining(grace time.Duration) (drained func()) {
	var running sync.WaitGroup
	running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		w.worker.Drain(ctx)
	})
	synctest.Wait()
	return running.Wait
}

// What becomes of a job while the worker drains, and how long it takes until it has gone.
func TestDrain(t *testing.T) {
	away, lost := apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)}, apptest.Hook{After: apptest.Fails(-1, apptest.ErrStorage)}
	slow := apptest.Hook{After: apptest.Slow(4 * time.Second)}
	justInTime := func(ctx context.Context, d job.Definition, _ int) (*job.Result, error) {
		<-ctx.Done()
		return apptest.GoodResult(d), nil
	}
	for name, c := range map[string]struct {
		runner apptest.RunnerFunc
		hooks  map[string]apptest.Hook
		grace  time.Duration
		took   time.Duration
		want   job.State
		err    error // of the task
		reason job.Reason
	}{
		"it runs":                  {apptest.Takes(20 * time.Second), nil, 30 * time.Second, 20 * time.Second, job.Succeeded, nil, ""},
		"it runs for too long":     {apptest.Takes(time.Hour), nil, 30 * time.Second, 30 * time.Second, job.Failed, nil, job.WorkerShutdown},
		"it ends just in time":     {justInTime, nil, time.Second, time.Second, job.Succeeded, nil, ""},
		"its claim is under way":   {apptest.Takes(5 * time.Second), hook("Claim", slow), time.Minute, 9 * time.Second, job.Succeeded, nil, ""},
		"its claim comes too late": {apptest.Takes(time.Hour), hook("Claim", slow), time.Second, 4 * time.Second, job.Queued, nil, ""},
		"its claim is refused":     {apptest.Takes(time.Hour), hook("Claim", away), 10 * time.Second, 0, job.Queued, errBusy, ""},
		"its start is refused":     {apptest.Takes(time.Hour), hook("Start", away), time.Second, time.Second, job.Queued, nil, ""},
		"its start has no answer":  {apptest.Takes(time.Hour), hook("Start", lost), time.Second, time.Second, job.Failed, nil, job.WorkerLost},
		"its end is never taken": {apptest.Takes(time.Hour), hook("Finish", away), time.Second, time.Second + apptest.LeaseTime, job.Running,
			nil, ""},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.runner = c.runner
			stop := w.start()
			task := w.Add()
			for operation, h := range c.hooks {
				w.Store.Hook(operation, h)
			}
			handled := w.handling(task)
			began := time.Now()
			drained := w.draining(c.grace)
			require.False(t, w.worker.Alive())
			require.ErrorIs(t, w.handle(w.Add()), errBusy)
			drained()
			require.ErrorIs(t, <-handled, c.err)
			require.Equal(t, c.took, time.Since(began))
			r := w.Store.RowOf(task.JobID)
			require.Equal(t, []any{c.want, 1}, []any{r.State, r.Attempt}, "no attempt is used up")
			require.Empty(t, w.worker.holding)
			if c.reason != "" {
				require.Equal(t, []any{c.reason, true}, []any{r.Failure.Reason, r.Failure.Retryable})
			}
			if c.want == job.Running {
				stop()
				w.Store.Hook("Finish", apptest.Hook{})
				w.giveBack()
				require.Equal(t, job.WorkerLost, w.Ended(task, job.Failed).Failure.Reason)
			}
		})
	}
}

func hook(operation string, h apptest.Hook) map[string]apptest.Hook {
	return map[string]apptest.Hook{operation: h}
}

// With storage gone for good, or the lease, Drain ends with the lease.
func TestDrainIsBoundedByTheLease(t *testing.T) {
	working(t, apptest.Takes(time.Hour), func(t *testing.T, w *world) {
		handled := w.handling(w.Add())
		for _, operation := range []string{"Finish", "Renew", "Register", "Retire"} {
			w.Store.Hook(operation, apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		}
		began := time.Now()
		w.draining(time.Second)()
		require.Less(t, time.Since(began), apptest.LeaseTime)
		require.NoError(t, <-handled)
	})
}

func TestDrainSurvivesALostLease(t *testing.T) {
	working(t, apptest.Takes(time.Hour), func(t *testing.T, w *world) {
		handled := w.handling(w.Add())
		w.Store.Expire()
		began := time.Now()
		first, second := w.draining(time.Minute), w.draining(time.Minute)
		first()
		second()
		require.LessOrEqual(t, time.Since(began), apptest.Heartbeat)
		require.NoError(t, <-handled)
		require.False(t, w.worker.Alive())
	})
}

func TestDrainRefusesThoseThatWait(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		leaseless := w.handling(w.Add())
		w.worker.Drain(context.Background()) // before Run
		require.ErrorIs(t, <-leaseless, errBusy)
		stop := w.start()
		require.ErrorIs(t, w.handle(w.Add()), errBusy, "draining is for good")
		stop()
		w.worker.Drain(context.Background()) // after Run

		w = newWorld(t, func(c *Config) { c.Concurrency = 1 })
		w.runner = apptest.Takes(10 * time.Second)
		w.start()
		first, slotless := w.handling(w.Add()), w.handling(w.Add())
		w.draining(time.Minute)()
		require.NoError(t, <-first)
		require.ErrorIs(t, <-slotless, errBusy)
		require.Equal(t, 1, w.Store.Count("Claim"))
		require.NotZero(t, w.Store.Count("Renew"), "heartbeats went on")
	})
}
