package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestHandleDropsSpentTasks(t *testing.T) {
	spent := map[string]func(w *world) job.Task{
		"earlier attempt": func(w *world) job.Task {
			task := w.add(func(r *row) { r.Attempt = 2 })
			task.Attempt = 1
			return task
		},
		"canceled":         func(w *world) job.Task { return w.add(func(r *row) { r.State = job.Canceled }) },
		"held by somebody": func(w *world) job.Task { return w.add(func(r *row) { r.State, r.worker = job.Running, newID() }) },
	}
	for name, make := range spent {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
					t.Error("a spent task ran its job")
					return nil, nil
				}
				w.start()
				require.NoError(t, w.handle(make(w)))
				require.Equal(t, 1.0, w.metric(w.metrics.tasksDropped.WithLabelValues("spent")))
				require.Empty(t, w.queue.sent())
			})
		})
	}
}

func TestHandlePostponesAnEarlyTaskUnderANewName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		early := w.add(func(r *row) { r.RunAt = time.Now().Add(10 * time.Second) })
		require.NoError(t, w.handle(early))

		later := w.store.job(early.JobID)
		require.Equal(t, job.Queued, later.State)
		require.Equal(t, []job.Task{{JobID: early.JobID, Attempt: 1, Dispatch: 1, RunAt: later.RunAt}}, w.queue.sent())

		pass(10 * time.Second)
		require.NoError(t, w.handle(w.queue.sent()[0]))
		w.ended(early, job.Succeeded)
	})
}

func TestHandlePostponesUnderTheNameThatIsNext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		early := w.add(func(r *row) { r.RunAt, r.dispatch = time.Now().Add(10*time.Second), 3 })
		early.Dispatch = 1 // an older task of the same attempt
		require.NoError(t, w.handle(early))
		require.Equal(t, 4, w.queue.sent()[0].Dispatch)
	})
}

func TestHandleReportsAPostponementThatFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.store.hook("Redispatch", hook{before: fails(1, errStorage)})
		early := w.add(func(r *row) { r.RunAt = time.Now().Add(10 * time.Second) })
		require.ErrorIs(t, w.handle(early), errStorage)
		require.Empty(t, w.queue.sent())
		require.NoError(t, w.handle(early), "the queue offers the task again")
		require.Len(t, w.queue.sent(), 1)
	})
}

func TestHandleClaimsAJobThatBecomesDueMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.store.almostDue = claimTries - 1
		task := w.add()
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)

		w.store.almostDue = 100
		require.ErrorIs(t, w.handle(w.add()), errBusy, "not for ever")
		require.Equal(t, 2*claimTries, w.store.count("Claim"))
	})
}

func TestHandleClaimsADeferredJobThatTheSchedulerHasNotSeen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.addDeferred(time.Second)
		pass(time.Second)
		require.NoError(t, w.handle(task))
		require.Equal(t, []job.State{job.Created, job.Queued, job.Assigned, job.Running, job.Succeeded}, w.store.job(task.JobID).history)
	})
}

func TestHandleOnADeadWorkerFindsANewLeaseAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		first := w.worker.id
		w.store.expire()
		began := time.Now()
		task := w.add()
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)
		require.Zero(t, time.Since(began), "without waiting for the next heartbeat")
		require.NotEqual(t, first, w.worker.id)
		require.Equal(t, 1.0, w.metric(w.metrics.leasesLost))
	})
}

func TestHandleDoesNotWaitForeverForAnotherLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.store.deadOnly = true // the claim looked just before a renewal was committed
		require.ErrorIs(t, w.handle(w.add()), errBusy)
		require.Equal(t, claimTries, w.store.count("Claim"))
	})
}

func TestHandleEasesOffWithStorageTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.store.hook("Claim", hook{before: fails(2*claimTries, errStorage)})
		began := time.Now()
		task := w.add()
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)
		require.Equal(t, 2*claimTries*w.worker.pause(), time.Since(began), "a whole queue must not be churned through meanwhile")
	})
}

func TestHandleWaitsForALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.store.hook("Register", hook{before: fails(3, errStorage)})
		w.start()
		task := w.add()
		began := time.Now()
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)
		require.Equal(t, 3*w.worker.pause(), time.Since(began))
		require.Equal(t, 1, w.store.count("Claim"))
	})
}

func TestHandleStopsWaitingWithTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, func(c *WorkerConfig) { c.Concurrency = 1 })
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.worker.Handle(ctx, w.add()), context.DeadlineExceeded, "there is no lease")

		w.runner = takes(time.Minute)
		w.start()
		running := w.handling(w.add())
		ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.worker.Handle(ctx, w.add()), context.DeadlineExceeded, "there is no slot")
		require.NoError(t, <-running)
	})
}

func TestTheQueuesOpinionDoesNotStopAJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = takes(40 * time.Second)
		w.start()
		task := w.add()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, w.worker.Handle(ctx, task))
		require.Error(t, ctx.Err())
		w.ended(task, job.Succeeded)
	})
}

func TestAClaimIsNotGivenUpHalfWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.add()
		w.store.hook("Claim", hook{after: func(ctx context.Context) error {
			sleep(ctx, 2*time.Second)
			return ctx.Err()
		}})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.NoError(t, w.worker.Handle(ctx, task))
		w.ended(task, job.Succeeded)
	})
}

func TestHandleRunsNoMoreJobsAtOnceThanItHasSlots(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, func(c *WorkerConfig) { c.Concurrency = 2 })
		w.runner = takes(10 * time.Second)
		w.start()
		answers := make([]<-chan error, 6)
		began := time.Now()
		for i := range answers {
			answers[i] = w.handling(w.add())
		}
		require.Equal(t, 2.0, w.metric(w.metrics.slotsUsed))
		for _, answer := range answers {
			require.NoError(t, <-answer)
		}
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Zero(t, w.metric(w.metrics.slotsUsed))
		synctest.Wait()
		require.Empty(t, w.worker.holding)
		require.Empty(t, w.worker.busy)
	})
}

func TestHandleCountsTasksOfUnknownJobs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		require.NoError(t, w.handle(job.Task{JobID: newID(), Attempt: 1}))
		require.Equal(t, 1.0, w.metric(w.metrics.tasksDropped.WithLabelValues("unknown")))
		require.Equal(t, 0.0, w.metric(w.metrics.tasksDropped.WithLabelValues("spent")))
	})
}

// A claim that comes before the scheduler passes QUEUED, and that counts.
func TestClaimOfACreatedJobCountsAsQueued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		queued := w.metrics.queued.WithLabelValues(string(job.SuccessFast))
		past := time.Now().Add(-time.Second)
		task := w.add(func(r *row) { r.State, r.ExecutionAt, r.WorkKind = job.Created, &past, job.SuccessFast })
		require.NoError(t, w.handle(task))
		require.Equal(t, 1.0, w.metric(queued))
	})
}
