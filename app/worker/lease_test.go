package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// identityNow reads the worker's id.
func (w *world) identityNow() job.ID {
	w.worker.mu.Lock()
	defer w.worker.mu.Unlock()
	return w.worker.id
}

// holdsUnknowingly is a job that storage says the worker holds: its claim was
// never answered.
func (w *world) holdsUnknowingly(s job.State) func(*apptest.Row) {
	return func(r *apptest.Row) {
		began := time.Now()
		r.State, r.Worker, r.Fence, r.StartedAt = s, w.identityNow(), 7, &began
	}
}

// Promise: contract 12b
func TestTheLeaseIsKeptWithHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		require.False(t, w.worker.Alive())
		w.start()
		require.True(t, w.worker.Alive())
		id := w.identityNow()
		apptest.Pass(10*time.Minute + time.Second)
		require.Equal(t, id, w.identityNow())
		require.Equal(t, 120, w.Store.Count("Renew"))
		require.Equal(t, 1, w.Store.Count("Register"))
		require.Zero(t, w.Metric(w.Metrics.LeasesLost))
	})
}

func TestAFailedHeartbeatIsRepeatedSoon(t *testing.T) {
	working(t, apptest.Takes(time.Minute), func(t *testing.T, w *world) {
		task := w.Add()
		running := w.handling(task)
		w.Store.Hook("Renew", apptest.Hook{Before: apptest.Fails(15, apptest.ErrStorage)})
		require.NoError(t, <-running)
		w.Ended(task, job.Succeeded)
		require.Equal(t, 1, w.Store.Count("Register"))
	})
}

// Work must be over before storage may give the jobs to somebody else, however
// the renewal fails.
func TestTheLeaseIsLostBeforeStorageCountsItOut(t *testing.T) {
	stubborn := func(context.Context) error {
		time.Sleep(3 * apptest.LeaseTime) // ignores its caller
		return apptest.ErrStorage
	}
	renewals := 0
	slowThenSilent := func(ctx context.Context) error {
		if renewals++; renewals < 4 {
			return nil
		}
		return apptest.Hangs(ctx)
	}
	for name, h := range map[string]apptest.Hook{
		"slow, then hangs":          {Before: slowThenSilent, After: apptest.Slow(9 * time.Second)},
		"fails":                     {Before: apptest.Fails(-1, apptest.ErrStorage)},
		"hangs":                     {Before: apptest.Hangs},
		"hangs and does not stop":   {Before: stubborn},
		"answers are lost":          {After: apptest.Hangs},
		"the answer comes too late": {After: apptest.Slow(apptest.LeaseTime)},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.runner = apptest.Takes(time.Hour)
			began := time.Now()
			w.start()
			first := w.identityNow()
			task := w.Add()
			running := w.handling(task)
			w.Store.Hook("Renew", h)
			require.NoError(t, <-running)

			require.GreaterOrEqual(t, time.Since(began), apptest.LeaseTime/2, "not at the first failure")
			w.Store.Update(func() { require.True(t, time.Now().Before(w.Store.Workers[first].Expires)) })
			require.NotEqual(t, first, w.identityNow())
			require.Zero(t, w.Store.Count("Finish"))
			require.Equal(t, job.Running, w.Store.RowOf(task.JobID).State, "the rescuer decides")
			require.Equal(t, 1.0, w.Metric(w.Metrics.LeasesLost))
			require.Len(t, w.Log.Lines(t, map[string]any{"level": "ERROR", "jobs": 1.0}), 1)

			w.Store.Hook("Renew", apptest.Hook{})
			apptest.Pass(5 * apptest.LeaseTime)
			require.True(t, w.worker.Alive())
			require.NotEqual(t, first, w.identityNow())
			require.True(t, w.Store.Workers[first].Retired, "storage may count the old lease on")
			require.Equal(t, 1.0, w.Metric(w.Metrics.LeasesLost))
		})
	}
}

func TestTheLeaseCountsFromBeforeTheRegistration(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.runner = apptest.Takes(time.Hour)
		w.Store.Hook("Register", apptest.Hook{After: apptest.Slow(10 * time.Second)})
		w.Store.Hook("Renew", apptest.Hook{Before: apptest.Hangs})
		began := time.Now()
		w.start()
		require.NoError(t, w.handle(w.Add()))
		require.Less(t, time.Since(began), apptest.LeaseTime)
	})
}

func TestAWorkerThatStorageCallsDeadStopsEverything(t *testing.T) {
	working(t, apptest.Takes(time.Hour), func(t *testing.T, w *world) {
		first := w.identityNow()
		a, b := w.handling(w.Add()), w.handling(w.Add())
		w.Store.Expire()
		began := time.Now()
		require.NoError(t, <-a)
		require.NoError(t, <-b)
		require.LessOrEqual(t, time.Since(began), apptest.Heartbeat)
		require.Zero(t, w.Store.Count("Finish"))
		synctest.Wait()
		require.NotEqual(t, first, w.identityNow())
		require.True(t, w.worker.Alive())
		require.False(t, w.Store.Workers[first].Retired, "it stays what it is: dead")
	})
}

func TestJobsOfAnEarlierLeaseAreNotFinishedUnderTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		w.runner = func(_ context.Context, d job.Definition, _ int) (*job.Result, error) {
			<-release // work that does not stop when it should
			return apptest.GoodResult(d), nil
		}
		w.start()
		task := w.Add()
		running := w.handling(task)
		w.Store.Expire()
		apptest.Pass(2 * apptest.Heartbeat)
		require.True(t, w.worker.Alive())
		close(release)
		require.NoError(t, <-running)
		require.Zero(t, w.Store.Count("Finish"))
	})
}

// The claim was committed under a lease that ended before its answer came.
func TestAClaimThatOutlivesItsLeaseIsNotRun(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
		first := w.identityNow()
		task := w.Add()
		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
			t.Error("the rescuer's job ran")
			return nil, nil
		}
		w.Store.Hook("Claim", apptest.Hook{After: func(context.Context) error {
			w.Store.Expire()
			time.Sleep(2 * apptest.Heartbeat)
			return nil
		}})
		require.NoError(t, w.handle(task))
		require.NotEqual(t, first, w.identityNow())
		require.Zero(t, w.Store.Count("Finish"))
		r := w.Store.RowOf(task.JobID)
		require.Equal(t, job.Assigned, r.State)
		require.Zero(t, w.Store.Count("Start"))
		require.Len(t, w.Log.Lines(t, map[string]any{"msg": "a claimed job is not run", "job_id": task.JobID.String()}), 1)
		require.Equal(t, first, r.Worker, "the rescuer finds it there")
		require.Empty(t, w.worker.holding)
	})
}

func TestAJobThatIsClaimedDuringAHeartbeatIsNotStopped(t *testing.T) {
	working(t, apptest.Takes(time.Minute), func(t *testing.T, w *world) {
		task := w.Add()
		var running <-chan error
		w.Store.Hook("Renew", apptest.Hook{After: func(context.Context) error {
			if running == nil { // after storage looked, before its answer arrives
				time.Sleep(time.Second)
				answer := make(chan error, 1)
				go func() { answer <- w.handle(task) }()
				running = answer
				time.Sleep(time.Second)
			}
			return nil
		}})
		apptest.Pass(apptest.Heartbeat + 3*time.Second)
		require.NoError(t, <-running)
		w.Ended(task, job.Succeeded)
	})
}

func TestJobsOfLostClaimsAreGivenBackOnTheSecondBeat(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
		assigned := w.Add(w.holdsUnknowingly(job.Assigned))
		running := w.Add(w.holdsUnknowingly(job.Running))
		apptest.Pass(apptest.Heartbeat + time.Second)
		require.Equal(t, job.Assigned, w.Store.RowOf(assigned.JobID).State, "on one beat its answer may be on the way")
		require.Equal(t, job.Running, w.Store.RowOf(running.JobID).State)

		apptest.Pass(apptest.Heartbeat)
		require.Equal(t, job.Queued, w.Store.RowOf(assigned.JobID).State)
		require.Equal(t, job.WorkerLost, w.Ended(running, job.Failed).Failure.Reason)
		require.Len(t, w.Queue.Sent(), 1)
		require.NoError(t, w.handle(w.Queue.Sent()[0]))
		w.Ended(assigned, job.Succeeded)
	})
}

func TestGivingBackIsRepeatedUntilStorageAgrees(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
		task := w.Add(w.holdsUnknowingly(job.Assigned))
		w.Store.Hook("Release", apptest.Hook{Before: apptest.Fails(2, apptest.ErrStorage)})
		apptest.Pass(4*apptest.Heartbeat + time.Second)
		require.Equal(t, job.Queued, w.Store.RowOf(task.JobID).State, "beats 2 and 3 failed, beat 4 did not")
		require.Equal(t, 3, w.Store.Count("Release"))

		w.Store.Hook("Finish", apptest.Hook{Before: apptest.Hangs})
		for range 200 {
			w.Add(w.holdsUnknowingly(job.Running))
		}
		apptest.Pass(5 * time.Minute)
		require.Equal(t, 1, w.Store.Count("Register"), "it never costs the lease")
		require.Zero(t, w.Metric(w.Metrics.LeasesLost))
	})
}

func TestRunGivesTheLeaseUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.runner = apptest.Takes(time.Hour)
		stop := w.start()
		id := w.identityNow()
		running := w.handling(w.Add()) // without a drain
		stop()
		require.NoError(t, <-running)
		require.Zero(t, w.Store.Count("Finish"), "the rescuer fails them")
		require.True(t, w.Store.Workers[id].Retired)
		require.False(t, w.worker.Alive())
		require.Zero(t, w.Metric(w.Metrics.LeasesLost), "it was not lost")
		require.ErrorIs(t, w.handle(w.Add()), errBusy)
		w.worker.Drain(context.Background())
	})
}

func TestRunEndsWhileStorageIsAway(t *testing.T) {
	for _, operation := range []string{"Register", "Renew", "Retire"} {
		apptest.Run(t, operation, func(t *testing.T) {
			w := newWorld(t)
			w.Store.Hook(operation, apptest.Hook{Before: apptest.Hangs})
			stop := w.start()
			apptest.Pass(apptest.Heartbeat + time.Second)
			began := time.Now()
			stop()
			require.LessOrEqual(t, time.Since(began), apptest.Heartbeat)
		})
	}
}
