package worker

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/maintenance"
	"github.com/forgerun/forgerun/job"
)

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

func TestDrainWaitsForRunningJobs(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(20 * time.Second)
		w.start()
		task := w.Add()
		running := w.handling(task)
		began := time.Now()
		drained := w.draining(30 * time.Second)
		require.False(t, w.worker.Alive())
		require.ErrorIs(t, w.handle(w.Add()), errBusy)
		drained()
		require.Equal(t, 20*time.Second, time.Since(began))
		require.NoError(t, <-running)
		w.Ended(task, job.Succeeded)
		require.NotZero(t, w.Store.Count("Renew"), "heartbeats went on")
	})
}

func TestDrainFailsWhatIsLeftAfterItsGrace(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(time.Hour)
		w.start()
		task := w.Add(func(r *apptest.Row) { r.AutoRetry = true })
		running := w.handling(task)
		began := time.Now()
		w.draining(30 * time.Second)()
		require.Equal(t, 30*time.Second, time.Since(began))
		require.NoError(t, <-running)
		end := w.Ended(task, job.Failed)
		require.Equal(t, job.WorkerShutdown, end.Failure.Reason)
		require.True(t, end.Failure.Retryable)
		require.Len(t, w.Queue.Sent(), 1, "the automatic retry goes to another worker")
	})
}

func TestDrainTakesASuccessThatComesJustInTime(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = func(ctx context.Context, d job.Definition, _ int) (*job.Result, error) {
			<-ctx.Done()
			return apptest.GoodResult(d), nil
		}
		w.start()
		task := w.Add()
		running := w.handling(task)
		w.draining(time.Second)()
		require.NoError(t, <-running)
		w.Ended(task, job.Succeeded)
	})
}

// A claim that was under way when draining began is waited for like a job.
func TestDrainWaitsForClaimsUnderWay(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(5 * time.Second)
		w.start()
		task := w.Add()
		w.Store.Hook("Claim", apptest.Hook{After: func(context.Context) error { time.Sleep(4 * time.Second); return nil }})
		running := w.handling(task)
		began := time.Now()
		w.draining(30 * time.Second)()
		require.Equal(t, 9*time.Second, time.Since(began))
		require.NoError(t, <-running)
		w.Ended(task, job.Succeeded)
	})
}

// A job that turns out to be held when the grace has ended has not started, and
// goes to another worker.
func TestDrainGivesBackAJobWhoseClaimCameTooLate(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(time.Hour)
		w.start()
		task := w.Add()
		began := time.Now()
		w.Store.Hook("Claim", apptest.Hook{After: func(context.Context) error { time.Sleep(4 * time.Second); return nil }})
		running := w.handling(task)
		w.draining(time.Second)()
		require.NoError(t, <-running)
		require.Equal(t, 4*time.Second, time.Since(began))
		require.Equal(t, []job.State{job.Created, job.Queued, job.Assigned, job.Queued}, w.Store.RowOf(task.JobID).History)
		require.Equal(t, 1, w.Store.RowOf(task.JobID).Attempt, "no attempt is used up")
		require.Zero(t, w.Store.Count("Start"))
		require.Len(t, w.Queue.Sent(), 1, "its next task")
		require.Empty(t, w.worker.holding)
	})
}

func TestDrainDoesNotWaitForAClaimWhileStorageIsAway(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.Add()
		w.Store.Hook("Claim", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		running := w.handling(task)
		began := time.Now()
		w.draining(10 * time.Second)()
		require.Zero(t, time.Since(began))
		err := <-running
		require.ErrorIs(t, err, apptest.ErrStorage, "the queue offers the task to another worker")
		require.ErrorIs(t, err, errBusy)
		require.Equal(t, job.Queued, w.Store.RowOf(task.JobID).State)
	})
}

// With storage gone for good, Drain ends with the lease.
func TestDrainIsBoundedByTheLease(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(time.Hour)
		w.start()
		running := w.handling(w.Add())
		for _, operation := range []string{"Finish", "Renew", "Register", "Retire"} {
			w.Store.Hook(operation, apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		}
		began := time.Now()
		w.draining(time.Second)()
		require.Less(t, time.Since(began), apptest.LeaseTime)
		require.NoError(t, <-running)
	})
}

func TestDrainIsBoundedEvenIfAnOutcomeIsNeverTaken(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(time.Hour)
		stop := w.start()
		task := w.Add()
		running := w.handling(task)
		w.Store.Hook("Finish", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		began := time.Now()
		w.draining(time.Second)()
		require.Equal(t, time.Second+apptest.LeaseTime, time.Since(began))
		require.NoError(t, <-running)
		stop()

		w.Store.Hook("Finish", apptest.Hook{})
		w.lead()
		apptest.Pass(maintenance.RescuerInterval + time.Second)
		require.Equal(t, job.WorkerLost, w.Ended(task, job.Failed).Failure.Reason)
	})
}

func TestDrainWakesThoseThatWaitForALease(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		waiting := w.handling(w.Add())
		w.worker.Drain(context.Background())
		require.ErrorIs(t, <-waiting, errBusy)
	})
}

func TestDrainRefusesThoseThatWaitForASlot(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Concurrency = 1 })
		w.runner = apptest.Takes(10 * time.Second)
		w.start()
		first, second := w.handling(w.Add()), w.handling(w.Add())
		w.draining(time.Minute)()
		require.NoError(t, <-first)
		require.ErrorIs(t, <-second, errBusy)
		require.Equal(t, 1, w.Store.Count("Claim"))
	})
}

func TestDrainAtAnyTime(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		w.worker.Drain(context.Background()) // before Run
		w.worker.Drain(ended)
		stop := w.start()
		require.ErrorIs(t, w.handle(w.Add()), errBusy, "draining is for good")
		stop()
		w.worker.Drain(ended) // after Run
	})
}

func TestDrainTwiceAtOnce(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(10 * time.Second)
		w.start()
		running := []<-chan error{w.handling(w.Add()), w.handling(w.Add())}
		began := time.Now()
		a, b := w.draining(time.Minute), w.draining(time.Minute)
		a()
		b()
		require.Equal(t, 10*time.Second, time.Since(began))
		for _, answer := range running {
			require.NoError(t, <-answer)
		}
	})
}

func TestDrainSurvivesALostLease(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(time.Hour)
		w.start()
		running := w.handling(w.Add())
		w.Store.Expire()
		began := time.Now()
		w.draining(time.Minute)()
		require.LessOrEqual(t, time.Since(began), apptest.Heartbeat)
		require.NoError(t, <-running)
		require.False(t, w.worker.Alive())
	})
}
