package worker

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func counting(t *testing.T, f func(t *testing.T, w *world, runs *atomic.Int64), change ...func(*Config)) {
	t.Helper()
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, change...)
		var runs atomic.Int64
		w.runner = func(ctx context.Context, d job.Definition, attempt int) (*job.Result, error) {
			runs.Add(1)
			return takes(time.Second)(ctx, d, attempt)
		}
		w.start()
		f(t, w, &runs)
	})
}

func (w *world) ranOnce(task job.Task, runs *atomic.Int64) {
	w.T.Helper()
	w.ended(task, job.Succeeded)
	require.EqualValues(w.T, 1, runs.Load())
	require.Equal(w.T, []job.State{job.Created, job.Queued, job.Assigned, job.Running, job.Succeeded}, w.store.row(task.JobID).history)
	require.Equal(w.T, 1.0, w.Metric(w.Metrics.Running.WithLabelValues("SUCCESS_FAST")))
	w.Logged(task, "assign", "QUEUED", "ASSIGNED")
	w.Logged(task, "run", "ASSIGNED", "RUNNING")
	w.Logged(task, "finish", "RUNNING", "SUCCEEDED")
	require.Equal(w.T, []job.Notification{apptest.Event(task), apptest.Event(task), apptest.End(task)}, w.Queue.Notifications())
	require.Zero(w.T, w.Sum("fenced_writes_total"))
	synctest.Wait()
	require.Empty(w.T, w.worker.holding)
}

func TestClaimAndStartAreRetriedWhileStorageFails(t *testing.T) {
	for operation, action := range map[string]string{"Claim": "assign", "Start": "start"} {
		for name, h := range map[string]hook{
			"refused":        {before: fails(10, errStorage)},
			"responses lost": {after: fails(4, errStorage)},
		} {
			t.Run(operation+" "+name, func(t *testing.T) {
				counting(t, func(t *testing.T, w *world, runs *atomic.Int64) {
					task := w.store.add()
					w.store.hook(operation, h)
					require.NoError(t, w.handle(task))
					w.ranOnce(task, runs)
					lines := w.Log.Lines(t, map[string]any{"level": "WARN", "action": action, "job_id": task.JobID.String(), "attempt": 1.0})
					require.Len(t, lines, w.store.count(operation)-1)
					require.Equal(t, "RFA_STORAGE_UNAVAILABLE", lines[0]["error_code"])

					require.NoError(t, w.handle(task), "the task is stale")
					require.EqualValues(t, 1, runs.Load())
					require.Equal(t, 1.0, w.Metric(w.Metrics.TasksDropped.WithLabelValues("stale")))
				}, func(c *Config) { c.Lease, c.Heartbeat = 3*time.Minute, time.Minute }) // no heartbeat during the test
			})
		}
	}
}

func TestNextTaskGetsLostClaim(t *testing.T) {
	counting(t, func(t *testing.T, w *world, runs *atomic.Int64) {
		task := w.store.add()
		w.store.hook("Claim", hook{after: fails(-1, errStorage)})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second/2)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, w.worker.Handle(ctx, task), errStorage)
		require.Equal(t, time.Second/2, time.Since(began))
		require.Equal(t, job.Assigned, w.store.row(task.JobID).State, "no worker runs it")
		require.Empty(t, w.worker.holding)

		w.store.hook("Claim", hook{})
		require.NoError(t, w.handle(task))
		w.ranOnce(task, runs)
	})
}

func TestTasksOfOneJobRunItOnce(t *testing.T) {
	for name, h := range map[string]hook{"claims one after the other": {}, "concurrent claims": {after: slow(time.Second / 2)}} {
		t.Run(name, func(t *testing.T) {
			counting(t, func(t *testing.T, w *world, runs *atomic.Int64) {
				w.store.hook("Claim", h)
				task := w.store.add()
				again := task
				again.Dispatch++
				answers := []<-chan error{w.handling(task), w.handling(again), w.handling(task)}
				apptest.Pass(time.Second * 3 / 4)
				require.Equal(t, 1.0, w.Metric(w.Metrics.SlotsUsed))
				for _, answer := range answers {
					require.NoError(t, <-answer)
				}
				w.ranOnce(task, runs)
				require.Equal(t, 1, w.store.count("Claim"))
				require.Equal(t, 2.0, w.Metric(w.Metrics.TasksDropped.WithLabelValues("stale")))
			})
		})
	}
}

func TestSlowClaimIsNotReleased(t *testing.T) {
	counting(t, func(t *testing.T, w *world, runs *atomic.Int64) {
		w.store.hook("Claim", hook{after: slow(10 * time.Second)})
		task := w.store.add()
		require.NoError(t, w.handle(task))
		w.ranOnce(task, runs)
		require.Zero(t, w.store.count("GiveBack"))
	}, func(c *Config) { c.Lease, c.Heartbeat = time.Minute, time.Second })
}

func TestLostClaimEndsWithLease(t *testing.T) {
	for name, test := range map[string]struct {
		h   hook
		own bool
	}{
		"response lost": {h: hook{after: fails(3, errStorage)}},
		"refused":       {h: hook{before: fails(3, errStorage)}, own: true},
	} {
		t.Run(name, func(t *testing.T) {
			counting(t, func(t *testing.T, w *world, runs *atomic.Int64) {
				first := w.identityNow()
				task := w.store.add()
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
				require.Equal(t, first, w.store.row(task.JobID).worker, "the job is left to the rescuer")
				require.Equal(t, job.Assigned, w.store.row(task.JobID).State)
			})
		})
	}
}

func (w *world) never(context.Context, job.Definition, int) (*job.Result, error) {
	w.T.Error("a job ran that was not started")
	return nil, nil
}

func (w *world) requireUnstarted(task job.Task, fenced float64) {
	w.T.Helper()
	require.Equal(w.T, []job.Notification{apptest.Event(task)}, w.Queue.Notifications())
	require.Equal(w.T, fenced, w.Metric(w.Metrics.FencedWrites.WithLabelValues("start")))
	require.Zero(w.T, w.Metric(w.Metrics.Running.WithLabelValues("SUCCESS_FAST")))
	require.Zero(w.T, w.store.count("Finish"))
	require.Empty(w.T, w.worker.holding)
}

// Promise: contract 9b
func TestCancelBetweenClaimAndStart(t *testing.T) {
	canceled := func(w *world, task job.Task) { w.happens(task, job.Canceled) }
	for name, test := range map[string]struct {
		operation string
		before    bool
		happens   func(*world, job.Task)
	}{
		"cancel before the claim is answered":      {"Claim", false, canceled},
		"signal before the claim is answered":      {"Claim", false, (*world).cancel},
		"cancel while the start is on its way":     {"Start", true, canceled},
		"signal while the start is on its way":     {"Start", true, (*world).cancel},
		"lease ends while the start is on its way": {"Start", true, func(w *world, _ job.Task) { w.store.expire() }},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.runner = w.never
			w.start()
			task := w.store.add()
			happens := func(context.Context) error {
				test.happens(w, task)
				return nil
			}
			h := hook{after: happens}
			if test.before {
				h = hook{before: happens}
			}
			w.store.hook(test.operation, h)
			require.NoError(t, w.handle(task), "the task is done")
			w.requireUnstarted(task, 1)
		})
	}
}

func TestCancelBeforeStartIsAnswered(t *testing.T) {
	working(t, takes(time.Minute), func(t *testing.T, w *world) {
		task := w.store.add()
		w.store.hook("Start", hook{after: func(ctx context.Context) error {
			w.cancel(task)
			return ctx.Err()
		}})
		require.NoError(t, w.handle(task))
		w.Logged(task, "run", "ASSIGNED", "RUNNING")
		require.Equal(t, 1.0, w.Metric(w.Metrics.Running.WithLabelValues("SUCCESS_FAST")))
		require.Zero(t, w.store.count("Finish"))
	})
}

func TestCancelDuringStorageTrouble(t *testing.T) {
	for operation, h := range map[string]hook{
		"Claim": {after: fails(5, errStorage)}, "Start": {before: fails(-1, errStorage)},
	} {
		apptest.Run(t, operation, func(t *testing.T) {
			w := newWorld(t)
			w.runner = w.never
			w.start()
			task := w.store.add()
			w.store.hook(operation, h)
			handled := w.handling(task)
			w.cancel(task)
			require.NoError(t, <-handled, "the task is done")
			if operation == "Start" {
				w.requireUnstarted(task, 0)
				return
			}
			require.Equal(t, 1.0, w.Metric(w.Metrics.TasksDropped.WithLabelValues("stale")))
		})
	}
}
