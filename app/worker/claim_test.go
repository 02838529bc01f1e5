package worker

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/maintenance"
	"github.com/forgerun/forgerun/job"
)

// countingRuns is a runner that also counts how often it is called.
func countingRuns(runner apptest.RunnerFunc) (apptest.RunnerFunc, *atomic.Int64) {
	var runs atomic.Int64
	return func(ctx context.Context, d job.Definition, attempt int) (*job.Result, error) {
		runs.Add(1)
		return runner(ctx, d, attempt)
	}, &runs
}

// ranOnce asserts that a job ran once to its end, and was told of once.
func (w *world) ranOnce(task job.Task, runs *atomic.Int64) {
	w.T.Helper()
	w.Ended(task, job.Succeeded)
	require.EqualValues(w.T, 1, runs.Load())
	require.Equal(w.T, []job.State{job.Created, job.Queued, job.Assigned, job.Running, job.Succeeded}, w.Store.RowOf(task.JobID).History)
	require.Equal(w.T, 1.0, w.Metric(w.Metrics.Running.WithLabelValues("SUCCESS_FAST")))
	w.Logged(task, "assign", "QUEUED", "ASSIGNED")
	w.Logged(task, "run", "ASSIGNED", "RUNNING")
	w.Logged(task, "finish", "RUNNING", "SUCCEEDED")
	require.Equal(w.T, []job.Notification{event(task), event(task), end(task)}, w.Queue.Notifications())
	require.Zero(w.T, w.Sum("fenced_writes_total"))
	synctest.Wait()
	require.Empty(w.T, w.worker.holding)
}

func TestClaimIsRepeatedThroughStorageTrouble(t *testing.T) {
	for name, h := range map[string]apptest.Hook{
		"refused":      {Before: apptest.Fails(10, apptest.ErrStorage)},
		"answer lost":  {After: apptest.Fails(1, apptest.ErrStorage)},
		"answers lost": {After: apptest.Fails(4, apptest.ErrStorage)},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorld(t, func(c *Config) { c.Lease, c.Heartbeat = 3*time.Minute, time.Minute }) // none comes in between
				runner, runs := countingRuns(apptest.Takes(time.Second))
				w.runner = runner
				w.start()
				task := w.Add()
				w.Store.Hook("Claim", h)
				require.NoError(t, w.handle(task))
				w.ranOnce(task, runs)
				lines := w.Log.Lines(t, map[string]any{"level": "WARN", "action": "assign", "job_id": task.JobID.String(), "attempt": 1.0})
				require.Len(t, lines, w.Store.Count("Claim")-1)
				require.Equal(t, "RFA_STORAGE_UNAVAILABLE", lines[0]["error_code"])

				require.NoError(t, w.handle(task), "offered again, the task is used")
				require.EqualValues(t, 1, runs.Load())
				require.Equal(t, 1.0, w.Metric(w.Metrics.TasksDropped.WithLabelValues("stale")))
			})
		})
	}
}

// The queue gives a task up whose claim had no answer, and offers it anew.
func TestALostClaimIsAnsweredToTheNextTask(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		runner, runs := countingRuns(apptest.Takes(time.Second))
		w.runner = runner
		w.start()
		task := w.Add()
		w.Store.Hook("Claim", apptest.Hook{After: apptest.Fails(-1, apptest.ErrStorage)})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second/2)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, w.worker.Handle(ctx, task), apptest.ErrStorage)
		require.Equal(t, time.Second/2, time.Since(began))
		require.Equal(t, job.Assigned, w.Store.RowOf(task.JobID).State, "without anybody who runs it")
		require.Empty(t, w.worker.holding)

		w.Store.Hook("Claim", apptest.Hook{})
		require.NoError(t, w.handle(task))
		w.ranOnce(task, runs)
	})
}

func TestTasksOfOneJobRunItOnce(t *testing.T) {
	for name, h := range map[string]apptest.Hook{
		"one after the other": {},
		"claims at once":      {After: func(context.Context) error { time.Sleep(time.Second); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorld(t)
				runner, runs := countingRuns(apptest.Takes(3 * time.Second))
				w.runner = runner
				w.start()
				w.Store.Hook("Claim", h)
				task := w.Add()
				again := task
				again.Dispatch++
				began := time.Now()
				answers := []<-chan error{w.handling(task), w.handling(again), w.handling(task)}
				apptest.Pass(2 * time.Second)
				require.Equal(t, 1.0, w.Metric(w.Metrics.SlotsUsed))
				for _, answer := range answers {
					require.NoError(t, <-answer)
				}
				require.LessOrEqual(t, time.Since(began), 4*time.Second)
				w.ranOnce(task, runs)
				require.Equal(t, 1, w.Store.Count("Claim"))
				require.Equal(t, 2.0, w.Metric(w.Metrics.TasksDropped.WithLabelValues("stale")))
			})
		})
	}
}

// A claim whose answer is out is no lost one, for however many heartbeats.
func TestASlowClaimIsNotGivenBack(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Lease, c.Heartbeat = time.Minute, time.Second })
		runner, runs := countingRuns(apptest.Takes(time.Second))
		w.runner = runner
		w.start()
		w.Store.Hook("Claim", apptest.Hook{After: func(context.Context) error { time.Sleep(10 * time.Second); return nil }})
		task := w.Add()
		require.NoError(t, w.handle(task))
		w.ranOnce(task, runs)
	})
}

// A worker asks for a lost claim under the identity that it had then. When that
// has ended, the job is the rescuer's; one that nobody got is claimed anew.
func TestALostClaimEndsWithTheLease(t *testing.T) {
	for name, test := range map[string]struct {
		h   apptest.Hook
		own bool // the job runs here in the end
	}{
		"answer lost": {h: apptest.Hook{After: apptest.Fails(3, apptest.ErrStorage)}},
		"refused":     {h: apptest.Hook{Before: apptest.Fails(3, apptest.ErrStorage)}, own: true},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorld(t)
				runner, runs := countingRuns(apptest.Takes(time.Second))
				w.runner = runner
				w.start()
				first := w.identityNow()
				task := w.Add()
				w.Store.Hook("Claim", test.h)
				handled := w.handling(task)
				w.Store.Expire()
				w.worker.beatNow()
				require.NoError(t, <-handled)
				require.NotEqual(t, first, w.identityNow())
				if test.own {
					w.ranOnce(task, runs)
					return
				}
				require.Zero(t, runs.Load())
				require.Equal(t, job.Assigned, w.Store.RowOf(task.JobID).State)
				require.Equal(t, first, w.Store.RowOf(task.JobID).Worker)
				w.lead()
				apptest.Pass(maintenance.RescuerInterval + time.Second)
				require.Equal(t, job.Queued, w.Store.RowOf(task.JobID).State, "no attempt is used up")
			})
		})
	}
}

func TestCancelWhileTheClaimHasStorageTrouble(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		runner, runs := countingRuns(apptest.Takes(time.Second))
		w.runner = runner
		w.start()
		task := w.Add()
		w.Store.Hook("Claim", apptest.Hook{After: apptest.Fails(5, apptest.ErrStorage)})
		running := w.handling(task)
		w.cancel(task)
		require.NoError(t, <-running, "there is nothing left for the queue to do")
		require.Zero(t, runs.Load())
		require.Equal(t, 1.0, w.Metric(w.Metrics.TasksDropped.WithLabelValues("stale")))
	})
}
