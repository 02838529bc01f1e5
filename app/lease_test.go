package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

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
func (w *world) holdsUnknowingly(s job.State) func(*row) {
	return func(r *row) {
		began := time.Now()
		r.State, r.worker, r.fence, r.StartedAt = s, w.identityNow(), 7, &began
	}
}

func TestTheLeaseIsKeptWithHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		require.False(t, w.worker.Alive())
		w.start()
		require.True(t, w.worker.Alive())
		id := w.identityNow()
		pass(10*time.Minute + time.Second)
		require.Equal(t, id, w.identityNow())
		require.Equal(t, 120, w.store.count("Renew"))
		require.Equal(t, 1, w.store.count("Register"))
		require.Zero(t, w.metric(w.metrics.leasesLost))
	})
}

func TestAFailedHeartbeatIsRepeatedSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = takes(time.Minute)
		w.start()
		task := w.add()
		running := w.handling(task)
		w.store.hook("Renew", hook{before: fails(15, errStorage)})
		require.NoError(t, <-running)
		w.ended(task, job.Succeeded)
		require.Equal(t, 1, w.store.count("Register"))
	})
}

// Work must be over before storage may give the jobs to somebody else, however
// the renewal fails.
func TestTheLeaseIsLostBeforeStorageCountsItOut(t *testing.T) {
	stubborn := func(context.Context) error {
		time.Sleep(3 * testLease) // ignores its caller
		return errStorage
	}
	renewals := 0
	slowThenSilent := func(ctx context.Context) error {
		if renewals++; renewals < 4 {
			return nil
		}
		return hangs(ctx)
	}
	slow := func(context.Context) error { time.Sleep(9 * time.Second); return nil }
	for name, h := range map[string]hook{
		"slow, then hangs":          {before: slowThenSilent, after: slow},
		"fails":                     {before: fails(-1, errStorage)},
		"hangs":                     {before: hangs},
		"hangs and does not stop":   {before: stubborn},
		"answers are lost":          {after: hangs},
		"the answer comes too late": {after: func(context.Context) error { time.Sleep(testLease); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.runner = takes(time.Hour)
				began := time.Now()
				w.start()
				first := w.identityNow()
				task := w.add()
				running := w.handling(task)
				w.store.hook("Renew", h)
				require.NoError(t, <-running)

				require.GreaterOrEqual(t, time.Since(began), testLease/2, "not at the first failure")
				w.store.mu.Lock()
				expires := w.store.workers[first].expires
				w.store.mu.Unlock()
				require.True(t, time.Now().Before(expires))
				require.NotEqual(t, first, w.identityNow())
				require.Zero(t, w.store.count("Finish"))
				require.Equal(t, job.Running, w.store.job(task.JobID).State, "the rescuer decides")
				require.Equal(t, 1.0, w.metric(w.metrics.leasesLost))
				require.Len(t, w.log.lines(t, map[string]any{"level": "ERROR", "jobs": 1.0}), 1)

				w.store.hook("Renew", hook{})
				pass(5 * testLease)
				require.True(t, w.worker.Alive())
				require.NotEqual(t, first, w.identityNow())
				require.True(t, w.store.workers[first].retired, "storage may count the old lease on")
				require.Equal(t, 1.0, w.metric(w.metrics.leasesLost))
			})
		})
	}
}

func TestTheLeaseCountsFromBeforeTheRegistration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = takes(time.Hour)
		w.store.hook("Register", hook{after: func(context.Context) error { time.Sleep(10 * time.Second); return nil }})
		w.store.hook("Renew", hook{before: hangs})
		began := time.Now()
		w.start()
		require.NoError(t, w.handle(w.add()))
		require.Less(t, time.Since(began), testLease)
	})
}

func TestAWorkerThatStorageCallsDeadStopsEverything(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = takes(time.Hour)
		w.start()
		first := w.identityNow()
		a, b := w.handling(w.add()), w.handling(w.add())
		w.store.expire()
		began := time.Now()
		require.NoError(t, <-a)
		require.NoError(t, <-b)
		require.LessOrEqual(t, time.Since(began), testHeartbeat)
		require.Zero(t, w.store.count("Finish"))
		synctest.Wait()
		require.NotEqual(t, first, w.identityNow())
		require.True(t, w.worker.Alive())
		require.False(t, w.store.workers[first].retired, "it stays what it is: dead")
	})
}

func TestJobsOfAnEarlierLeaseAreNotFinishedUnderTheNext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		release := make(chan struct{})
		w.runner = func(_ context.Context, d job.Definition, _ int) (*job.Result, error) {
			<-release // work that does not stop when it should
			return goodResult(d), nil
		}
		w.start()
		task := w.add()
		running := w.handling(task)
		w.store.expire()
		pass(2 * testHeartbeat)
		require.True(t, w.worker.Alive())
		close(release)
		require.NoError(t, <-running)
		require.Zero(t, w.store.count("Finish"))
	})
}

// The claim was committed under a lease that ended before its answer came.
func TestAClaimThatOutlivesItsLeaseIsNotRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		first := w.identityNow()
		task := w.add()
		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
			t.Error("the rescuer's job ran")
			return nil, nil
		}
		w.store.hook("Claim", hook{after: func(context.Context) error {
			w.store.expire()
			time.Sleep(2 * testHeartbeat)
			return nil
		}})
		require.NoError(t, w.handle(task))
		require.NotEqual(t, first, w.identityNow())
		require.Zero(t, w.store.count("Finish"))
		r := w.store.job(task.JobID)
		require.Equal(t, job.Running, r.State)
		require.Len(t, w.log.lines(t, map[string]any{"msg": "a claimed job is not run", "job_id": task.JobID.String()}), 1)
		require.Equal(t, first, r.worker, "the rescuer finds it there")
		require.Empty(t, w.worker.holding)
	})
}

func TestJobsThatStorageTookAwayAreStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = takes(time.Hour)
		w.start()
		task := w.add()
		running := w.handling(task)
		w.store.change(task.JobID, func(r *row) { r.fence, r.worker = r.fence+1, newID() })
		began := time.Now()
		require.NoError(t, <-running)
		require.LessOrEqual(t, time.Since(began), testHeartbeat)
		require.Zero(t, w.store.count("Finish"))
		require.Zero(t, w.metric(w.metrics.leasesLost))
	})
}

func TestAJobThatIsClaimedDuringAHeartbeatIsNotStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = takes(time.Minute)
		w.start()
		task := w.add()
		var running <-chan error
		w.store.hook("Renew", hook{after: func(context.Context) error {
			if running == nil { // after storage looked, before its answer arrives
				time.Sleep(time.Second)
				answer := make(chan error, 1)
				go func() { answer <- w.handle(task) }()
				running = answer
				time.Sleep(time.Second)
			}
			return nil
		}})
		pass(testHeartbeat + 3*time.Second)
		require.NoError(t, <-running)
		w.ended(task, job.Succeeded)
	})
}

func TestJobsOfLostClaimsAreGivenBackOnTheSecondBeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		assigned := w.add(w.holdsUnknowingly(job.Assigned))
		running := w.add(w.holdsUnknowingly(job.Running))
		pass(testHeartbeat + time.Second)
		require.Equal(t, job.Assigned, w.store.job(assigned.JobID).State, "on one beat its answer may be on the way")
		require.Equal(t, job.Running, w.store.job(running.JobID).State)

		pass(testHeartbeat)
		require.Equal(t, job.Queued, w.store.job(assigned.JobID).State)
		require.Equal(t, job.WorkerLost, w.ended(running, job.Failed).Failure.Reason)
		require.Len(t, w.queue.sent(), 1)
		require.NoError(t, w.handle(w.queue.sent()[0]))
		w.ended(assigned, job.Succeeded)
	})
}

func TestAClaimWhoseAnswerIsSlowIsNotGivenBackTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.add()
		w.store.hook("Claim", hook{after: func(context.Context) error {
			time.Sleep(testHeartbeat + time.Second) // longer than to one beat, not to two
			return nil
		}})
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)
		pass(3 * testHeartbeat)
		require.Zero(t, w.store.count("Release"))
		require.Equal(t, 1, w.store.count("Finish"))
	})
}

func TestGivingBackIsRepeatedUntilStorageAgrees(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.add(w.holdsUnknowingly(job.Assigned))
		w.store.hook("Release", hook{before: fails(2, errStorage)})
		pass(4*testHeartbeat + time.Second)
		require.Equal(t, job.Queued, w.store.job(task.JobID).State, "beats 2 and 3 failed, beat 4 did not")
		require.Equal(t, 3, w.store.count("Release"))
	})
}

func TestGivingBackNeverCostsTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.add(w.holdsUnknowingly(job.Assigned))
		for range 200 {
			w.add(w.holdsUnknowingly(job.Running))
		}
		w.store.hook("Release", hook{before: hangs})
		w.store.hook("Finish", hook{before: hangs})
		pass(5 * time.Minute)
		require.Equal(t, 1, w.store.count("Register"))
		require.Zero(t, w.metric(w.metrics.leasesLost))
	})
}

func TestRunGivesTheLeaseUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.start()
		id := w.identityNow()
		stop()
		require.True(t, w.store.workers[id].retired)
		require.False(t, w.worker.Alive())
		require.Zero(t, w.metric(w.metrics.leasesLost), "it was not lost")
		require.ErrorIs(t, w.handle(w.add()), errBusy)
		w.worker.Drain(context.Background())
	})
}

func TestRunEndsWhileStorageIsAway(t *testing.T) {
	for _, operation := range []string{"Register", "Renew", "Retire"} {
		t.Run(operation, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.store.hook(operation, hook{before: hangs})
				stop := w.start()
				pass(testHeartbeat + time.Second)
				began := time.Now()
				stop()
				require.LessOrEqual(t, time.Since(began), testHeartbeat)
			})
		})
	}
}

func TestRunThatEndsWithoutADrainStopsItsJobs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = takes(time.Hour)
		stop := w.start()
		running := w.handling(w.add())
		stop()
		require.NoError(t, <-running)
		require.Zero(t, w.store.count("Finish"), "the lease was given up: the rescuer fails them")
	})
}
