package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/maintenance"
	"github.com/forgerun/forgerun/job"
)

func event(t job.Task) job.Notification {
	return job.Notification{ClientID: apptest.ClientA, JobID: t.JobID}
}

func end(t job.Task) job.Notification {
	return job.Notification{ClientID: apptest.ClientA, JobID: t.JobID, Attempt: t.Attempt, Ended: true}
}

func TestAWorkersStepsArePublished(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.Add()
		require.NoError(t, w.handle(task))
		require.Equal(t, []job.Notification{event(task), event(task), end(task)}, w.Queue.Notifications())
		require.NoError(t, w.handle(task))
		require.Empty(t, w.Queue.Notifications(), "a used task")

		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
			return nil, apptest.Failure{Reason: job.DependencyFailed}
		}
		task = w.Add(func(r *apptest.Row) { r.AutoRetry = true })
		require.NoError(t, w.handle(task))
		require.Equal(t, []job.Notification{event(task), event(task), end(task)}, w.Queue.Notifications(), "the retry is of the same commit")
	})
}

func TestAStaleWorkerPublishesNothing(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.Add()
		w.Store.Hook("Claim", apptest.Hook{After: func(context.Context) error {
			w.cancel(task)
			return nil
		}})
		require.NoError(t, w.handle(task))
		require.Equal(t, []job.Notification{event(task)}, w.Queue.Notifications(), "the claim")
	})
}

func TestMaintenancePublishes(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		due := w.AddDeferred(-time.Second)
		assigned := w.Add(apptest.HeldByTheDead(job.Assigned))
		running := w.Add(apptest.HeldByTheDead(job.Running))
		retried := w.Add(apptest.HeldByTheDead(job.Running, func(r *apptest.Row) { r.AutoRetry = true }))
		w.lead()
		apptest.Pass(2 * maintenance.RescuerInterval)
		require.ElementsMatch(t, []job.Notification{event(due), event(assigned), end(running), end(retried)}, w.Queue.Notifications())
		for _, action := range []string{"requeue", "fail", "auto_retry"} {
			lines := w.Log.Lines(t, map[string]any{"action": action, "request_id": "request-1", "client_id": apptest.ClientA.String()})
			require.NotEmpty(t, lines, action)
		}
	})
}

func TestTransitionsLogTheCorrelationID(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task, none := w.Add(func(r *apptest.Row) { r.CorrelationID = "order-7" }), w.Add()
		require.NoError(t, w.handle(task))
		require.NoError(t, w.handle(none))
		require.Equal(t, "order-7", w.Logged(task, "finish", "RUNNING", "SUCCEEDED")["correlation_id"])
		require.NotContains(t, w.Logged(none, "finish", "RUNNING", "SUCCEEDED"), "correlation_id")
	})
}

// reporting is a Runner that reports progress.
type reporting func(ctx context.Context, report func(job.Progress)) (*job.Result, error)

func (f reporting) Run(ctx context.Context, _ job.Definition, _ int, on job.Observer) (*job.Result, error) {
	return f(ctx, on.Progress)
}

func (reporting) Probe(context.Context, job.Kind) error { return nil }

// percentages gives the progress that was published, in its order.
func percentages(t *testing.T, notifications []job.Notification) []int {
	t.Helper()
	reached, over := []int{}, false
	for _, n := range notifications {
		over = over || n.Ended
		if n.Progress != nil {
			require.False(t, over, "after the end")
			require.Equal(t, 1, n.Attempt)
			reached = append(reached, n.Progress.Percentage)
		}
	}
	return reached
}

func TestProgressIsPublished(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		var late func(job.Progress)
		w.worker.runner = reporting(func(_ context.Context, report func(job.Progress)) (*job.Result, error) {
			late = report
			for _, n := range []int{0, 10, 10, 40, 20, 100} {
				report(job.Progress{Percentage: n})
			}
			return apptest.GoodResult(*apptest.DefinitionOf(job.SuccessFast)), nil
		})
		w.start()
		task := w.Add()
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)
		late(job.Progress{Percentage: 100})
		require.Equal(t, []int{0, 10, 10, 40, 100}, percentages(t, w.Queue.Notifications()), "never backwards, nothing after the end")
	})
}

func TestProgressOfStoppedWorkIsNotPublished(t *testing.T) {
	for name, stop := range map[string]func(*world, job.Task){
		"canceled":   func(w *world, t job.Task) { w.cancel(t) },
		"lease lost": func(w *world, _ job.Task) { w.worker.lose(w.worker.id, errLapsed) },
		"time limit": func(*world, job.Task) { time.Sleep(apptest.Limit) },
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.worker.runner = reporting(func(ctx context.Context, report func(job.Progress)) (*job.Result, error) {
					report(job.Progress{Percentage: 30})
					<-ctx.Done()
					report(job.Progress{Percentage: 50})
					return nil, ctx.Err()
				})
				w.start()
				task := w.Add()
				running := w.handling(task)
				stop(w, task)
				require.NoError(t, <-running)
				synctest.Wait()
				notifications := w.Queue.Notifications()
				require.Equal(t, []int{30}, percentages(t, notifications))
				require.Equal(t, end(task), notifications[len(notifications)-1], "the progress is of no more use")
			})
		})
	}
}

// The end does not depend on the work's context: that may outlive the work.
func TestProgressAfterTheEndIsNotPublished(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		report, end := w.worker.reporter(context.Background(), &job.Claim{Lease: job.Lease{Attempt: 1}})
		report(job.Progress{Percentage: 10})
		end()
		report(job.Progress{Percentage: 20})
		require.Equal(t, []int{10}, percentages(t, w.Queue.Notifications()))
	})
}

func TestProgressAtOnce(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.worker.runner = reporting(func(_ context.Context, report func(job.Progress)) (*job.Result, error) {
			for i := range 50 { // and nobody waits for them
				go report(job.Progress{Percentage: i})
			}
			return apptest.GoodResult(*apptest.DefinitionOf(job.SuccessFast)), nil
		})
		w.start()
		require.NoError(t, w.handle(w.Add()))
		synctest.Wait()
		reached := percentages(t, w.Queue.Notifications())
		require.IsNonDecreasing(t, append([]int{-1, -1}, reached...))
	})
}
