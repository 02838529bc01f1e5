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

func (w *world) holdsUnknowingly(s job.State) func(*row) {
	return func(r *row) {
		began := time.Now()
		r.State, r.worker, r.fence, r.StartedAt = s, w.identityNow(), 7, &began
	}
}

// Promise: contract 12b
func TestTheLeaseIsKeptWithHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		require.False(t, w.alive())
		w.start()
		require.True(t, w.alive())
		id := w.identityNow()
		apptest.Pass(10*time.Minute + time.Second)
		require.Equal(t, id, w.identityNow())
		require.Equal(t, 120, w.store.count("Renew"))
		require.Equal(t, 1, w.store.count("Register"))
		require.Zero(t, w.Metric(w.Metrics.LeasesLost))
	})
}

func TestFailedHeartbeatIsRetriedSoon(t *testing.T) {
	working(t, takes(time.Minute), func(t *testing.T, w *world) {
		task := w.store.add()
		running := w.handling(task)
		w.store.hook("Renew", hook{before: fails(15, errStorage)})
		require.NoError(t, <-running)
		w.ended(task, job.Succeeded)
		require.Equal(t, 1, w.store.count("Register"))
	})
}

func TestLeaseEndsBeforeItExpiresInStorage(t *testing.T) {
	stubborn := func(context.Context) error {
		time.Sleep(3 * leaseTime)
		return errStorage
	}
	renewals := 0
	slowThenSilent := func(ctx context.Context) error {
		if renewals++; renewals < 4 {
			return nil
		}
		return hangs(ctx)
	}
	for name, h := range map[string]hook{
		"slow, then hangs":        {before: slowThenSilent, after: slow(9 * time.Second)},
		"fails":                   {before: fails(-1, errStorage)},
		"hangs":                   {before: hangs},
		"hangs and does not stop": {before: stubborn},
		"responses are lost":      {after: hangs},
		"response comes too late": {after: slow(leaseTime)},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.runner = takes(time.Hour)
			began := time.Now()
			w.start()
			first := w.identityNow()
			task := w.store.add()
			running := w.handling(task)
			w.store.hook("Renew", h)
			require.NoError(t, <-running)

			require.GreaterOrEqual(t, time.Since(began), leaseTime/2, "the lease survives the first failure")
			w.store.update(func() { require.True(t, time.Now().Before(w.store.leases[first])) })
			require.NotEqual(t, first, w.identityNow())
			require.Zero(t, w.store.count("Finish"))
			require.Equal(t, job.Running, w.store.row(task.JobID).State, "the job is left to the rescuer")
			require.Equal(t, 1.0, w.Metric(w.Metrics.LeasesLost))
			require.Len(t, w.Log.Lines(t, map[string]any{"level": "ERROR", "jobs": 1.0}), 1)

			w.store.hook("Renew", hook{})
			apptest.Pass(5 * leaseTime)
			require.True(t, w.alive())
			require.NotEqual(t, first, w.identityNow())
			require.True(t, w.store.retired[first], "the old lease is released")
			require.Equal(t, 1.0, w.Metric(w.Metrics.LeasesLost))
		})
	}
}

func TestLeaseCountsFromBeforeRegistration(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.runner = takes(time.Hour)
		w.store.hook("Register", hook{after: slow(10 * time.Second)})
		w.store.hook("Renew", hook{before: hangs})
		began := time.Now()
		w.start()
		require.NoError(t, w.handle(w.store.add()))
		require.Less(t, time.Since(began), leaseTime)
	})
}

func TestWorkerDeclaredDeadStopsEverything(t *testing.T) {
	working(t, takes(time.Hour), func(t *testing.T, w *world) {
		first := w.identityNow()
		a, b := w.handling(w.store.add()), w.handling(w.store.add())
		w.store.expire()
		began := time.Now()
		require.NoError(t, <-a)
		require.NoError(t, <-b)
		require.LessOrEqual(t, time.Since(began), heartbeat)
		require.Zero(t, w.store.count("Finish"))
		synctest.Wait()
		require.NotEqual(t, first, w.identityNow())
		require.True(t, w.alive())
		require.False(t, w.store.retired[first], "a dead worker is not retired")
	})
}

func TestJobsOfEarlierLeaseAreNotFinishedUnderNext(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		w.runner = func(_ context.Context, d job.Definition, _ int) (*job.Result, error) {
			<-release // work that does not stop when it should
			return goodResult(d), nil
		}
		w.start()
		task := w.store.add()
		running := w.handling(task)
		w.store.expire()
		apptest.Pass(2 * heartbeat)
		require.True(t, w.alive())
		close(release)
		require.NoError(t, <-running)
		require.Zero(t, w.store.count("Finish"))
	})
}

func TestClaimWithExpiredLeaseIsNotRun(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
		first := w.identityNow()
		task := w.store.add()
		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
			t.Error("the rescuer's job ran")
			return nil, nil
		}
		w.store.hook("Claim", hook{after: func(context.Context) error {
			w.store.expire()
			time.Sleep(2 * heartbeat)
			return nil
		}})
		require.NoError(t, w.handle(task))
		require.NotEqual(t, first, w.identityNow())
		require.Zero(t, w.store.count("Finish"))
		r := w.store.row(task.JobID)
		require.Equal(t, job.Assigned, r.State)
		require.Zero(t, w.store.count("Start"))
		require.Len(t, w.Log.Lines(t, map[string]any{"msg": "skipping a claimed job", "job_id": task.JobID.String()}), 1)
		require.Equal(t, first, r.worker, "the job is left to the rescuer")
		require.Empty(t, w.worker.holding)
	})
}

func TestJobClaimedDuringHeartbeatIsNotStopped(t *testing.T) {
	working(t, takes(time.Minute), func(t *testing.T, w *world) {
		task := w.store.add()
		var running <-chan error
		w.store.hook("Renew", hook{after: func(context.Context) error {
			if running == nil { // this runs after the renewal is stored, and before its response
				time.Sleep(time.Second)
				answer := make(chan error, 1)
				go func() { answer <- w.handle(task) }()
				running = answer
				time.Sleep(time.Second)
			}
			return nil
		}})
		apptest.Pass(heartbeat + 3*time.Second)
		require.NoError(t, <-running)
		w.ended(task, job.Succeeded)
	})
}

func TestJobsOfLostClaimsAreReleasedOnSecondHeartbeat(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
		assigned := w.store.add(w.holdsUnknowingly(job.Assigned))
		running := w.store.add(w.holdsUnknowingly(job.Running))
		apptest.Pass(heartbeat + time.Second)
		require.Equal(t, job.Assigned, w.store.row(assigned.JobID).State, "the claim may be pending during one heartbeat")
		require.Equal(t, job.Running, w.store.row(running.JobID).State)

		apptest.Pass(heartbeat)
		require.Equal(t, job.Queued, w.store.row(assigned.JobID).State)
		require.Equal(t, job.WorkerLost, w.ended(running, job.Failed).Failure.Reason)
		require.NoError(t, w.handle(assigned))
		w.ended(assigned, job.Succeeded)
	})
}

func TestReleaseIsRetriedUntilStorageAgrees(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
		task := w.store.add(w.holdsUnknowingly(job.Assigned))
		w.store.hook("GiveBack", hook{before: fails(2, errStorage)})
		apptest.Pass(4*heartbeat + time.Second)
		require.Equal(t, job.Queued, w.store.row(task.JobID).State, "the release succeeds at the fourth heartbeat")
		require.Equal(t, 3, w.store.count("GiveBack"))

		w.store.hook("GiveBack", hook{before: hangs})
		w.store.add(w.holdsUnknowingly(job.Running))
		apptest.Pass(5 * time.Minute)
		require.Equal(t, 1, w.store.count("Register"), "the lease is kept")
		require.Zero(t, w.Metric(w.Metrics.LeasesLost))
	})
}

func TestRunGivesTheLeaseUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.runner = takes(time.Hour)
		stop := w.start()
		id := w.identityNow()
		running := w.handling(w.store.add()) // the job still runs, because Drain was not called
		stop()
		require.NoError(t, <-running)
		require.Zero(t, w.store.count("Finish"), "the job is left to the rescuer")
		require.True(t, w.store.retired[id])
		require.False(t, w.alive())
		require.Zero(t, w.Metric(w.Metrics.LeasesLost), "the lease was released, not lost")
		require.ErrorIs(t, w.handle(w.store.add()), errBusy)
		w.worker.Drain(context.Background())
	})
}

func TestRunEndsWhileStorageIsAway(t *testing.T) {
	for _, operation := range []string{"Register", "Renew", "Retire"} {
		apptest.Run(t, operation, func(t *testing.T) {
			w := newWorld(t)
			w.store.hook(operation, hook{before: hangs})
			stop := w.start()
			apptest.Pass(heartbeat + time.Second)
			began := time.Now()
			stop()
			require.LessOrEqual(t, time.Since(began), heartbeat)
		})
	}
}
