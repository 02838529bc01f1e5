package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestHandleDropsUsedTasks(t *testing.T) {
	used := map[string]func(w *world) job.Task{
		"earlier attempt": func(w *world) job.Task {
			task := w.Add(func(r *apptest.Row) { r.Attempt = 2 })
			task.Attempt = 1
			return task
		},
		"canceled": func(w *world) job.Task { return w.Add(func(r *apptest.Row) { r.State = job.Canceled }) },
		"held by somebody": func(w *world) job.Task {
			return w.Add(func(r *apptest.Row) { r.State, r.Worker = job.Running, app.NewID() })
		},
	}
	for name, make := range used {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
					t.Error("a used task ran its job")
					return nil, nil
				}
				w.start()
				require.NoError(t, w.handle(make(w)))
				require.Equal(t, 1.0, w.Metric(w.Metrics.TasksDropped.WithLabelValues("stale")))
				require.Empty(t, w.Queue.Sent())
			})
		})
	}
}

// The queue keeps an early task until its time.
func TestHandleLeavesAnEarlyTaskToTheQueue(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.Add(func(r *apptest.Row) { r.RunAt, r.Dispatch = time.Now().Add(10*time.Second), 3 })
		task.Dispatch = 1 // an older task of the same attempt is as good
		var early *job.TaskEarly
		require.ErrorAs(t, w.worker.Handle(context.Background(), task), &early)
		require.Equal(t, 10*time.Second, early.Wait)
		require.Equal(t, job.Queued, w.Store.RowOf(task.JobID).State)
		require.Empty(t, w.Queue.Sent())
		apptest.Pass(early.Wait)
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)
	})
}

// What the queue is told of a task agrees with what was recorded.
func TestHandleTellsHowItsTaskEnded(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Fixed(nil, apptest.Failure{Reason: job.DependencyFailed})
		w.start()
		task := w.Add(func(r *apptest.Row) { r.AutoRetry = true })
		var failed *job.TaskFailed
		require.ErrorAs(t, w.worker.Handle(context.Background(), task), &failed)
		failure := job.NewFailure(job.DependencyFailed, 1, apptest.Backoff)
		require.Equal(t, string(failure.Code)+": "+failure.Detail, failed.Text)
		next := w.Queue.Sent()[0]
		require.Equal(t, job.DependencyFailed, next.Reason)
		require.Equal(t, 2, next.Attempt)
		require.NotZero(t, next.ClientID)
		require.NotEmpty(t, next.WorkKind)
		require.ErrorIs(t, w.worker.Handle(context.Background(), task), job.ErrTaskStale)
		require.ErrorIs(t, w.worker.Handle(context.Background(), job.Task{JobID: app.NewID(), Attempt: 1}), job.ErrTaskStale)
	})
}

func TestHandleClaimsAJobThatBecomesDueMeanwhile(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.Store.AlmostDue = claimTries - 1
		task := w.Add()
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)

		w.Store.AlmostDue = 100
		require.ErrorIs(t, w.handle(w.Add()), errBusy, "not for ever")
		require.Equal(t, 2*claimTries, w.Store.Count("Claim"))
	})
}

func TestHandleClaimsADeferredJobThatTheSchedulerHasNotSeen(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.AddDeferred(time.Second)
		apptest.Pass(time.Second)
		require.NoError(t, w.handle(task))
		require.Equal(t, []job.State{job.Created, job.Queued, job.Assigned, job.Running, job.Succeeded}, w.Store.RowOf(task.JobID).History)
	})
}

func TestHandleOnADeadWorkerFindsANewLeaseAtOnce(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		first := w.worker.id
		w.Store.Expire()
		began := time.Now()
		task := w.Add()
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)
		require.Zero(t, time.Since(began), "without waiting for the next heartbeat")
		require.NotEqual(t, first, w.worker.id)
		require.Equal(t, 1.0, w.Metric(w.Metrics.LeasesLost))
	})
}

func TestHandleDoesNotWaitForeverForAnotherLease(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.Store.DeadOnly = true // the claim looked just before a renewal was committed
		require.ErrorIs(t, w.handle(w.Add()), errBusy)
		require.Equal(t, claimTries, w.Store.Count("Claim"))
	})
}

func TestHandleEasesOffWithStorageTrouble(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.Store.Hook("Claim", apptest.Hook{Before: apptest.Fails(2*claimTries, apptest.ErrStorage)})
		began := time.Now()
		task := w.Add()
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)
		require.Equal(t, 2*claimTries*w.worker.pause(), time.Since(began), "a whole queue must not be churned through meanwhile")
	})
}

func TestHandleWaitsForALease(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Store.Hook("Register", apptest.Hook{Before: apptest.Fails(3, apptest.ErrStorage)})
		w.start()
		task := w.Add()
		began := time.Now()
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)
		require.Equal(t, 3*w.worker.pause(), time.Since(began))
		require.Equal(t, 1, w.Store.Count("Claim"))
	})
}

func TestHandleStopsWaitingWithTheQueue(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Concurrency = 1 })
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.worker.Handle(ctx, w.Add()), context.DeadlineExceeded, "there is no lease")

		w.runner = apptest.Takes(time.Minute)
		w.start()
		running := w.handling(w.Add())
		ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.worker.Handle(ctx, w.Add()), context.DeadlineExceeded, "there is no slot")
		require.NoError(t, <-running)
	})
}

func TestTheQueuesOpinionDoesNotStopAJob(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(40 * time.Second)
		w.start()
		task := w.Add()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, w.worker.Handle(ctx, task))
		require.Error(t, ctx.Err())
		w.Ended(task, job.Succeeded)
	})
}

func TestAClaimIsNotGivenUpHalfWay(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.Add()
		w.Store.Hook("Claim", apptest.Hook{After: func(ctx context.Context) error {
			app.Sleep(ctx, 2*time.Second)
			return ctx.Err()
		}})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.NoError(t, w.worker.Handle(ctx, task))
		w.Ended(task, job.Succeeded)
	})
}

func TestHandleRunsNoMoreJobsAtOnceThanItHasSlots(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Concurrency = 2 })
		w.runner = apptest.Takes(10 * time.Second)
		w.start()
		answers := make([]<-chan error, 6)
		began := time.Now()
		for i := range answers {
			answers[i] = w.handling(w.Add())
		}
		require.Equal(t, 2.0, w.Metric(w.Metrics.SlotsUsed))
		for _, answer := range answers {
			require.NoError(t, <-answer)
		}
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Zero(t, w.Metric(w.Metrics.SlotsUsed))
		synctest.Wait()
		require.Empty(t, w.worker.holding)
		require.Empty(t, w.worker.busy)
	})
}

func TestHandleCountsTasksOfUnknownJobs(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		require.NoError(t, w.handle(job.Task{JobID: app.NewID(), Attempt: 1}))
		require.Equal(t, 1.0, w.Metric(w.Metrics.TasksDropped.WithLabelValues("unknown")))
		require.Equal(t, 0.0, w.Metric(w.Metrics.TasksDropped.WithLabelValues("stale")))
	})
}

// TestHandleDropsTasksOfThrottledJobs: there will be others.
func TestHandleDropsTasksOfThrottledJobs(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.Store.ClientLimit = true
		require.NoError(t, w.handle(w.Add()))
		require.Equal(t, 1.0, w.Metric(w.Metrics.TasksDropped.WithLabelValues("client_limit")))
	})
}

// A task of a job that was put aside is dropped; what is stopped as a whole is offered again.
func TestTasksOfWhatIsPaused(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.Store.Paused = true
		require.NoError(t, w.handle(w.Add()))
		require.Equal(t, 1.0, w.Metric(w.Metrics.TasksDropped.WithLabelValues("paused")))
		w.Store.Paused, w.Store.Stopped = false, true
		task := w.Add()
		var early *job.TaskEarly
		require.ErrorAs(t, w.worker.Handle(context.Background(), task), &early)
		require.Equal(t, time.Second, early.Wait)
		w.Store.Stopped = false
		require.NoError(t, w.handle(task))
		require.Equal(t, job.Succeeded, w.Store.Rows[task.JobID].State)
	})
}

// A worker that lost its lease stays drained under its next one: operators named the process by the id that it had.
func TestADrainedWorkerStaysDrained(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		id := func() job.ID {
			id, err := w.worker.identity(t.Context())
			require.NoError(t, err)
			return id
		}
		before := id()
		drained := job.Pauses{{Scope: job.PauseWorker, Target: before.String(), Mode: job.ModeDrain}}
		require.True(t, w.worker.Stopped(drained))
		require.True(t, w.worker.Stopped(job.Pauses{{Scope: job.PauseAll, Mode: job.ModePause}}))
		require.False(t, w.worker.Stopped(job.Pauses{
			{Scope: job.PauseAll, Mode: job.ModeDrain}, {Scope: job.PauseKind, Target: "SUCCESS_FAST", Mode: job.ModePause},
			{Scope: job.PauseWorker, Target: app.NewID().String(), Mode: job.ModeDrain},
		}))
		w.worker.lose(before, errLapsed)
		require.True(t, w.worker.Stopped(drained), "without a lease, too")
		for range maxIdentities - 1 {
			_, err := w.worker.register(t.Context())
			require.NoError(t, err)
		}
		require.NotEqual(t, before, id())
		require.True(t, w.worker.Stopped(drained))
		require.Len(t, w.worker.ids, maxIdentities)
	})
}

// A claim that comes before the scheduler passes QUEUED, and that counts.
func TestClaimOfACreatedJobCountsAsQueued(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		queued := w.Metrics.Queued.WithLabelValues(string(job.SuccessFast))
		past := time.Now().Add(-time.Second)
		task := w.Add(func(r *apptest.Row) { r.State, r.ExecutionAt, r.WorkKind = job.Created, &past, job.SuccessFast })
		require.NoError(t, w.handle(task))
		require.Equal(t, 1.0, w.Metric(queued))
	})
}
