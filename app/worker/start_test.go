package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/maintenance"
	"github.com/forgerun/forgerun/job"
)

// neverRuns is a world in which no work may begin.
func neverRuns(t *testing.T) *world {
	w := newWorld(t)
	w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
		t.Error("a job ran that was not started")
		return nil, nil
	}
	w.start()
	return w
}

// requireUnstarted checks that a job was claimed and nothing more: what is known
// of it was published once.
func (w *world) requireUnstarted(task job.Task, fenced float64) {
	w.T.Helper()
	require.Equal(w.T, []job.Notification{event(task)}, w.Queue.Notifications())
	require.Equal(w.T, fenced, w.Metric(w.Metrics.FencedWrites.WithLabelValues("start")))
	require.Zero(w.T, w.Metric(w.Metrics.Running.WithLabelValues("SUCCESS_FAST")))
	require.Zero(w.T, w.Store.Count("Finish"))
	require.Empty(w.T, w.worker.holding)
}

func TestStartIsRepeatedThroughStorageTrouble(t *testing.T) {
	for name, h := range map[string]apptest.Hook{
		"refused":      {Before: apptest.Fails(3, apptest.ErrStorage)},
		"answer lost":  {After: apptest.Fails(1, apptest.ErrStorage)},
		"answers lost": {After: apptest.Fails(4, apptest.ErrStorage)},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorld(t)
				runner, runs := countingRuns(apptest.Takes(time.Second))
				w.runner = runner
				w.start()
				task := w.Add()
				w.Store.Hook("Start", h)
				require.NoError(t, w.handle(task))
				w.ranOnce(task, runs)
				lines := w.Log.Lines(t, map[string]any{"level": "WARN", "action": "start", "job_id": task.JobID.String()})
				require.Len(t, lines, w.Store.Count("Start")-1)
				require.Equal(t, "RFA_STORAGE_UNAVAILABLE", lines[0]["error_code"])
				require.Equal(t, "request-1", lines[0]["request_id"])
			})
		})
	}
}

func TestCancelBetweenClaimAndStart(t *testing.T) {
	for name, test := range map[string]struct {
		operation string
		signal    bool
		fenced    float64
	}{
		"before the claim is answered":            {"Claim", false, 1},
		"signalled before the claim is answered":  {"Claim", true, 1},
		"while the start is on its way":           {"Start", false, 1},
		"signalled while the start is on its way": {"Start", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := neverRuns(t)
				task := w.Add()
				cancel := func(context.Context) error {
					w.Happens(task, job.Canceled)
					if test.signal {
						w.worker.Canceled(task.JobID)
					}
					return nil
				}
				if test.operation == "Claim" {
					w.Store.Hook("Claim", apptest.Hook{After: cancel})
				} else {
					w.Store.Hook("Start", apptest.Hook{Before: cancel})
				}
				require.NoError(t, w.handle(task), "there is nothing left for the queue to do")
				require.Equal(t, job.Canceled, w.Store.RowOf(task.JobID).State)
				w.requireUnstarted(task, test.fenced)
			})
		})
	}
}

func TestCancelWhileTheStartHasStorageTrouble(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := neverRuns(t)
		task := w.Add()
		w.Store.Hook("Start", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		running := w.handling(task)
		w.cancel(task)
		require.NoError(t, <-running)
		w.requireUnstarted(task, 0)
	})
}

// The lease ends between claim and start, on Postgres' clock: the worker drops
// the job, and the rescuer gives it back.
func TestALeaseThatEndsBeforeTheStart(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := neverRuns(t)
		task := w.Add()
		w.Store.Hook("Start", apptest.Hook{Before: func(context.Context) error {
			w.Store.Expire()
			return nil
		}})
		require.NoError(t, w.handle(task))
		w.requireUnstarted(task, 1)
		require.Equal(t, job.Assigned, w.Store.RowOf(task.JobID).State)

		w.Store.Hook("Start", apptest.Hook{})
		w.runner = apptest.Takes(time.Second)
		w.lead()
		apptest.Pass(maintenance.RescuerInterval + time.Second)
		w.Queue.Notifications()
		row := w.Store.RowOf(task.JobID)
		require.Equal(t, job.Queued, row.State)
		require.Equal(t, 1, row.Attempt)
		require.NoError(t, w.handle(apptest.TaskOf(&row)))
		w.Ended(task, job.Succeeded)
	})
}

// A job whose start has no answer when the grace of Drain ends is given back as
// storage has it: to the queue, or failed if it had started.
func TestDrainGivesBackAJobWithoutAnAnswerToItsStart(t *testing.T) {
	for name, test := range map[string]struct {
		h    apptest.Hook
		want job.State
	}{
		"refused":      {apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)}, job.Queued},
		"answers lost": {apptest.Hook{After: apptest.Fails(-1, apptest.ErrStorage)}, job.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := neverRuns(t)
				task := w.Add()
				w.Store.Hook("Start", test.h)
				running := w.handling(task)
				began := time.Now()
				w.draining(time.Second)()
				require.LessOrEqual(t, time.Since(began), 2*time.Second)
				require.NoError(t, <-running)
				require.Equal(t, test.want, w.Store.RowOf(task.JobID).State)
				if test.want == job.Failed {
					require.True(t, w.Ended(task, job.Failed).Failure.Retryable)
				}
				require.Empty(t, w.worker.holding)
			})
		})
	}
}

func TestTimesInQueuedAndAssignedAreCounted(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.Store.Hook("Start", apptest.Hook{Before: func(context.Context) error { time.Sleep(2 * time.Second); return nil }})
		task := w.Add()
		apptest.Pass(3 * time.Second)
		require.NoError(t, w.handle(task))
		require.Equal(t, [2]float64{1, 3}, w.observed("job_queued_seconds"))
		require.Equal(t, [2]float64{1, 2}, w.observed("job_assigned_seconds"))
	})
}

// observed gives how often a histogram was observed, and the sum.
func (w *world) observed(histogram string) (found [2]float64) {
	families, err := w.Registry.Gather()
	require.NoError(w.T, err)
	for _, f := range families {
		if f.GetName() == histogram {
			for _, m := range f.GetMetric() {
				found[0] += float64(m.GetHistogram().GetSampleCount())
				found[1] += m.GetHistogram().GetSampleSum()
			}
		}
	}
	return found
}
