package app

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// countingRuns is a runner that also counts how often it is called.
func countingRuns(runner runnerFunc) (runnerFunc, *atomic.Int64) {
	var runs atomic.Int64
	return func(ctx context.Context, d job.Definition, attempt int) (*job.Result, error) {
		runs.Add(1)
		return runner(ctx, d, attempt)
	}, &runs
}

// ranOnce asserts that a job ran once to its end, and was told of once.
func (w *world) ranOnce(task job.Task, runs *atomic.Int64) {
	w.t.Helper()
	w.ended(task, job.Succeeded)
	require.EqualValues(w.t, 1, runs.Load())
	require.Equal(w.t, []job.State{job.Created, job.Queued, job.Assigned, job.Running, job.Succeeded}, w.store.job(task.JobID).history)
	require.Equal(w.t, 1.0, w.metric(w.metrics.running.WithLabelValues("SUCCESS_FAST")))
	w.logged(task, "assign", "QUEUED", "ASSIGNED")
	w.logged(task, "run", "ASSIGNED", "RUNNING")
	w.logged(task, "finish", "RUNNING", "SUCCEEDED")
	require.Equal(w.t, []job.Notification{event(task), end(task)}, w.queue.news())
	require.Zero(w.t, w.sum("fenced_writes_total"))
	synctest.Wait()
	require.Empty(w.t, w.worker.holding)
}

func TestClaimIsRepeatedThroughStorageTrouble(t *testing.T) {
	for name, h := range map[string]hook{
		"refused":      {before: fails(10, errStorage)},
		"answer lost":  {after: fails(1, errStorage)},
		"answers lost": {after: fails(4, errStorage)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, func(c *WorkerConfig) { c.Lease, c.Heartbeat = 3*time.Minute, time.Minute }) // none comes in between
				runner, runs := countingRuns(takes(time.Second))
				w.runner = runner
				w.start()
				task := w.add()
				w.store.hook("Claim", h)
				require.NoError(t, w.handle(task))
				w.ranOnce(task, runs)
				lines := w.log.lines(t, map[string]any{"level": "WARN", "action": "assign", "job_id": task.JobID.String(), "attempt": 1.0})
				require.Len(t, lines, w.store.count("Claim")-1)
				require.Equal(t, "RFA_STORAGE_UNAVAILABLE", lines[0]["error_code"])

				require.NoError(t, w.handle(task), "offered again, the task is spent")
				require.EqualValues(t, 1, runs.Load())
				require.Equal(t, 1.0, w.metric(w.metrics.tasksDropped.WithLabelValues("spent")))
			})
		})
	}
}

// The queue gives a task up whose claim had no answer, and offers it anew.
func TestALostClaimIsAnsweredToTheNextTask(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		runner, runs := countingRuns(takes(time.Second))
		w.runner = runner
		w.start()
		task := w.add()
		w.store.hook("Claim", hook{after: fails(-1, errStorage)})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second/2)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, w.worker.Handle(ctx, task), errStorage)
		require.Equal(t, time.Second/2, time.Since(began))
		require.Equal(t, job.Running, w.store.job(task.JobID).State, "without anybody who runs it")
		require.Empty(t, w.worker.holding)

		w.store.hook("Claim", hook{})
		require.NoError(t, w.handle(task))
		w.ranOnce(task, runs)
	})
}

func TestTasksOfOneJobRunItOnce(t *testing.T) {
	for name, h := range map[string]hook{
		"one after the other": {},
		"claims at once":      {after: func(context.Context) error { time.Sleep(time.Second); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				runner, runs := countingRuns(takes(3 * time.Second))
				w.runner = runner
				w.start()
				w.store.hook("Claim", h)
				task := w.add()
				again := task
				again.Dispatch++
				began := time.Now()
				answers := []<-chan error{w.handling(task), w.handling(again), w.handling(task)}
				pass(2 * time.Second)
				require.Equal(t, 1.0, w.metric(w.metrics.slotsUsed))
				for _, answer := range answers {
					require.NoError(t, <-answer)
				}
				require.LessOrEqual(t, time.Since(began), 4*time.Second)
				w.ranOnce(task, runs)
				require.Equal(t, 1, w.store.count("Claim"))
				require.Equal(t, 2.0, w.metric(w.metrics.tasksDropped.WithLabelValues("spent")))
			})
		})
	}
}

// A claim whose answer is out is no lost one, for however many heartbeats.
func TestASlowClaimIsNotGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, func(c *WorkerConfig) { c.Lease, c.Heartbeat = time.Minute, time.Second })
		runner, runs := countingRuns(takes(time.Second))
		w.runner = runner
		w.start()
		w.store.hook("Claim", hook{after: func(context.Context) error { time.Sleep(10 * time.Second); return nil }})
		task := w.add()
		require.NoError(t, w.handle(task))
		w.ranOnce(task, runs)
	})
}

// A worker asks for a lost claim under the identity that it had then. When that
// has ended, the job is the rescuer's; one that nobody got is claimed anew.
func TestALostClaimEndsWithTheLease(t *testing.T) {
	for name, test := range map[string]struct {
		h   hook
		own bool // the job runs here in the end
	}{
		"answer lost": {h: hook{after: fails(3, errStorage)}},
		"refused":     {h: hook{before: fails(3, errStorage)}, own: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				runner, runs := countingRuns(takes(time.Second))
				w.runner = runner
				w.start()
				first := w.identityNow()
				task := w.add()
				w.store.hook("Claim", test.h)
				handled := w.handling(task)
				w.store.expire()
				w.worker.beatNow()
				require.NoError(t, <-handled)
				require.NotEqual(t, first, w.identityNow())
				if test.own {
					w.ranOnce(task, runs)
					return
				}
				require.Zero(t, runs.Load())
				require.Equal(t, job.Running, w.store.job(task.JobID).State)
				require.Equal(t, first, w.store.job(task.JobID).worker)
				w.lead()
				pass(rescuerInterval + time.Second)
				require.Equal(t, job.WorkerLost, w.ended(task, job.Failed).Failure.Reason)
			})
		})
	}
}

func TestCancelWhileTheClaimHasStorageTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		runner, runs := countingRuns(takes(time.Second))
		w.runner = runner
		w.start()
		task := w.add()
		w.store.hook("Claim", hook{after: fails(5, errStorage)})
		running := w.handling(task)
		w.cancel(task)
		require.NoError(t, <-running, "there is nothing left for the queue to do")
		require.Zero(t, runs.Load())
		require.Equal(t, 1.0, w.metric(w.metrics.tasksDropped.WithLabelValues("spent")))
	})
}
