package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// refusing has each claim answered with not, the zero one: as it comes.
func (w *world) refusing(not job.NotClaimed) {
	w.Store.Update(func() { w.Store.Refuse = func() job.NotClaimed { return not } })
}

// What storage says of a job that is not claimed decides what becomes of its task.
func TestHandleDropsTasks(t *testing.T) {
	for name, c := range map[string]struct {
		make   func(w *world) job.Task
		reason string
	}{
		"of an earlier attempt": {func(w *world) job.Task {
			task := w.Add(func(r *apptest.Row) { r.Attempt = 2 })
			task.Attempt = 1
			return task
		}, "stale"},
		"of a job that is held by somebody": {func(w *world) job.Task {
			return w.Add(func(r *apptest.Row) { r.State, r.Worker = job.Running, app.NewID() })
		}, "stale"},
		"of an unknown job": {func(*world) job.Task { return job.Task{JobID: app.NewID(), Attempt: 1} }, "unknown"},
		"of a throttled job": {func(w *world) job.Task {
			w.refusing(job.NotClaimed{Throttled: true})
			return w.Add()
		}, "client_limit"},
		"of a paused job": {func(w *world) job.Task {
			w.refusing(job.NotClaimed{Paused: true})
			return w.Add()
		}, "paused"},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.runner = w.never
			w.start()
			require.ErrorIs(t, w.worker.Handle(context.Background(), c.make(w)), job.ErrTaskStale)
			require.Equal(t, 1.0, w.Metric(w.Metrics.TasksDropped.WithLabelValues(c.reason)))
			require.Equal(t, 1.0, w.Sum("tasks_dropped_total"))
			require.Empty(t, w.Queue.Sent())
		})
	}
}

// The queue keeps a task until its time, and what is stopped as a whole is offered again.
func TestHandleLeavesAnEarlyTaskToTheQueue(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
		task := w.Add(func(r *apptest.Row) { r.RunAt, r.Dispatch = time.Now().Add(10*time.Second), 3 })
		task.Dispatch = 1 // an older task of the same attempt is as good
		var early *job.TaskEarly
		require.ErrorAs(t, w.worker.Handle(context.Background(), task), &early)
		require.Equal(t, 10*time.Second, early.Wait)
		require.Equal(t, job.Queued, w.Store.RowOf(task.JobID).State)
		apptest.Pass(early.Wait)
		w.refusing(job.NotClaimed{Stopped: true, StillWaiting: true})
		require.ErrorAs(t, w.worker.Handle(context.Background(), task), &early)
		require.Equal(t, time.Second, early.Wait)
		w.refusing(job.NotClaimed{})
		require.Empty(t, w.Queue.Sent())
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)
	})
}

// What the queue is told of a task agrees with what was recorded.
func TestHandleTellsHowItsTaskEnded(t *testing.T) {
	working(t, apptest.Fixed(nil, apptest.Failure{Reason: job.DependencyFailed}), func(t *testing.T, w *world) {
		task := w.Add(func(r *apptest.Row) { r.AutoRetry = true })
		var failed *job.TaskFailed
		require.ErrorAs(t, w.worker.Handle(context.Background(), task), &failed)
		failure := job.NewFailure(job.DependencyFailed, 1, apptest.Backoff)
		require.Equal(t, string(failure.Code)+": "+failure.Detail, failed.Text)
		next := w.Queue.Sent()[0]
		require.Equal(t, []any{job.DependencyFailed, 2}, []any{next.Reason, next.Attempt})
		require.NotZero(t, next.ClientID)
		require.NotEmpty(t, next.WorkKind)
		require.ErrorIs(t, w.worker.Handle(context.Background(), task), job.ErrTaskStale)
	})
}

func TestHandleClaimsAJobThatBecomesDueMeanwhile(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
		almost := claimTries - 1 // that it is due
		w.Store.Refuse = func() job.NotClaimed {
			almost--
			return job.NotClaimed{StillWaiting: almost >= 0}
		}
		task := w.Add()
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)

		almost = 100
		require.ErrorIs(t, w.handle(w.Add()), errBusy, "not for ever")
		require.Equal(t, 2*claimTries, w.Store.Count("Claim"))
	})
}

func TestHandleOnADeadWorkerFindsANewLeaseAtOnce(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
		first := w.worker.id
		w.Store.Expire()
		began := time.Now()
		task := w.Add()
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)
		require.Zero(t, time.Since(began), "without waiting for the next heartbeat")
		require.NotEqual(t, first, w.worker.id)
		require.Equal(t, 1.0, w.Metric(w.Metrics.LeasesLost))

		claims := w.Store.Count("Claim")
		w.refusing(job.NotClaimed{StillWaiting: true, WorkerDead: true}) // the claim looked just before a renewal was committed
		require.ErrorIs(t, w.handle(w.Add()), errBusy, "not for ever")
		require.Equal(t, claims+claimTries, w.Store.Count("Claim"))
	})
}

func TestHandleEasesOffWithStorageTrouble(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.Store.Hook("Register", apptest.Hook{Before: apptest.Fails(3, apptest.ErrStorage)})
		w.Store.Hook("Claim", apptest.Hook{Before: apptest.Fails(2*claimTries, apptest.ErrStorage)})
		w.start()
		began := time.Now()
		task := w.Add()
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)
		require.Equal(t, (3+2*claimTries)*w.worker.pause(), time.Since(began), "a whole queue must not be churned through meanwhile")
		require.Equal(t, 2*claimTries+1, w.Store.Count("Claim"))
	})
}

func TestHandleStopsWaitingWithTheQueue(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Concurrency = 1 })
		w.runner = apptest.Takes(time.Minute)
		impatient := func(task job.Task) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return w.worker.Handle(ctx, task)
		}
		require.ErrorIs(t, impatient(w.Add()), context.DeadlineExceeded, "there is no lease")
		w.start()
		running := w.handling(w.Add())
		require.ErrorIs(t, impatient(w.Add()), context.DeadlineExceeded, "there is no slot")
		require.NoError(t, <-running)

		task := w.Add()
		w.Store.Hook("Claim", apptest.Hook{After: func(ctx context.Context) error {
			app.Sleep(ctx, 2*time.Second)
			return ctx.Err()
		}})
		require.NoError(t, impatient(task), "neither a claim nor a job is given up half-way")
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

// A worker that lost its lease stays drained under its next one: operators named the process by the id that it had.
func TestADrainedWorkerStaysDrained(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
		before := w.identityNow()
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
		require.NotEqual(t, before, w.identityNow())
		require.True(t, w.worker.Stopped(drained))
		require.Len(t, w.worker.ids, maxIdentities)
	})
}

// fullDisk is a machine on which one kind cannot be run for a while.
type fullDisk struct {
	full atomic.Bool
	kind job.Kind
	ran  int
}

func (f *fullDisk) Probe(_ context.Context, k job.Kind) error {
	if f.full.Load() && k == f.kind {
		return fmt.Errorf("%w: no space left", job.ErrExhausted)
	}
	return nil
}

func (f *fullDisk) Run(ctx context.Context, d job.Definition, _ int, _ job.Observer) (*job.Result, error) {
	f.ran++
	if err := f.Probe(ctx, d.WorkKind); err != nil {
		return nil, err
	}
	return apptest.GoodResult(d), nil
}

func TestWorkThatThisMachineCannotDoIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		disk := &fullDisk{kind: job.IOHeavy}
		disk.full.Store(true)
		w.worker.runner = disk
		w.start()
		w.Background(w.worker.ProbeRefused)
		heavy := func(r *apptest.Row) { r.WorkKind, r.Definition = job.IOHeavy, apptest.DefinitionOf(job.IOHeavy) }
		first := w.Add(heavy)
		require.NoError(t, w.handle(first))
		end := w.Store.RowOf(first.JobID)
		require.Equal(t, job.Failed, end.State)
		require.Equal(t, []any{job.WorkerExhausted, true}, []any{end.Failure.Reason, end.Failure.Retryable})
		require.Equal(t, []job.Kind{job.IOHeavy}, w.worker.Refused())
		require.Equal(t, 1.0, w.Metric(w.Metrics.KindsRefused))

		named, unnamed, other := w.Add(heavy), w.Add(heavy), w.Add()
		named.WorkKind = job.IOHeavy
		var early *job.TaskEarly
		require.True(t, errors.As(w.worker.Handle(context.Background(), named), &early), "others may take it")
		require.NoError(t, w.handle(unnamed))
		row := w.Store.RowOf(unnamed.JobID)
		require.Equal(t, []any{job.Queued, 1}, []any{row.State, row.Attempt}, "given back, in the same attempt")
		require.NoError(t, w.handle(other))
		require.Equal(t, job.Succeeded, w.Store.RowOf(other.JobID).State)
		require.Equal(t, 2, disk.ran)

		apptest.Pass(time.Minute)
		require.NotEmpty(t, w.worker.Refused())
		disk.full.Store(false)
		apptest.Pass(2 * probeInterval)
		require.Empty(t, w.worker.Refused())
		require.Zero(t, w.Metric(w.Metrics.KindsRefused))
		require.NoError(t, w.handle(named))
		require.Equal(t, job.Succeeded, w.Store.RowOf(named.JobID).State)
	})
}
