package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func event(t job.Task) job.Notification { return job.Notification{ClientID: clientA, JobID: t.JobID} }

func end(t job.Task) job.Notification {
	return job.Notification{ClientID: clientA, JobID: t.JobID, Attempt: t.Attempt, Ended: true}
}

func TestSubmissionsAreAnnounced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.service(10)
		r := request(withKey("k"))
		receipt, err := s.Submit(context.Background(), r)
		require.NoError(t, err)
		require.Equal(t, []job.Notification{event(job.Task{JobID: receipt.JobID})}, w.queue.news())
		_, err = s.Submit(context.Background(), r)
		require.NoError(t, err)
		require.Empty(t, w.queue.news(), "a replay")
		w.store.hook("InsertJob", hook{after: fails(1, errStorage)})
		_, err = s.Submit(context.Background(), request())
		require.Error(t, err)
		require.Empty(t, w.queue.news(), "a refusal")
	})
}

func TestCancelsAndRetriesAreAnnounced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.service(10)
		running, failed := w.add(func(r *row) { r.State = job.Running }), w.add(failedJob)
		for _, want := range [][]job.Notification{{end(running)}, nil} {
			_, err := s.Cancel(context.Background(), clientA, running.JobID)
			require.NoError(t, err)
			require.Equal(t, want, w.queue.news())
		}
		for _, want := range [][]job.Notification{{event(failed)}, nil} {
			_, err := s.Retry(context.Background(), clientA, failed.JobID)
			require.NoError(t, err)
			require.Equal(t, want, w.queue.news())
		}
	})
}

func TestAWorkersStepsAreAnnounced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.add()
		require.NoError(t, w.handle(task))
		require.Equal(t, []job.Notification{event(task), end(task)}, w.queue.news())
		require.NoError(t, w.handle(task))
		require.Empty(t, w.queue.news(), "a spent task")

		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
			return nil, failure{job.DependencyFailed}
		}
		task = w.add(func(r *row) { r.AutoRetry = true })
		require.NoError(t, w.handle(task))
		require.Equal(t, []job.Notification{event(task), end(task)}, w.queue.news(), "the retry is of the same commit")
	})
}

func TestAStaleWorkerAnnouncesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.add()
		w.store.hook("Claim", hook{after: func(context.Context) error {
			w.cancel(task)
			return nil
		}})
		require.NoError(t, w.handle(task))
		require.Equal(t, []job.Notification{event(task), end(task)}, w.queue.news(), "the claim, and that its progress ends")
	})
}

func TestMaintenanceAnnounces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		due := w.addDeferred(-time.Second)
		assigned := w.add(heldByTheDead(job.Assigned))
		running := w.add(heldByTheDead(job.Running))
		retried := w.add(heldByTheDead(job.Running, func(r *row) { r.AutoRetry = true }))
		w.lead()
		pass(2 * rescuerInterval)
		require.ElementsMatch(t, []job.Notification{event(due), event(assigned), end(running), end(retried)}, w.queue.news())
		for _, action := range []string{"requeue", "fail", "auto_retry"} {
			lines := w.log.lines(t, map[string]any{"action": action, "request_id": "request-1", "client_id": clientA.String()})
			require.NotEmpty(t, lines, action)
		}
	})
}

func TestTransitionsTellTheCorrelationID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task, none := w.add(func(r *row) { r.CorrelationID = "order-7" }), w.add()
		require.NoError(t, w.handle(task))
		require.NoError(t, w.handle(none))
		require.Equal(t, "order-7", w.logged(task, "finish", "RUNNING", "SUCCEEDED")["correlation_id"])
		require.NotContains(t, w.logged(none, "finish", "RUNNING", "SUCCEEDED"), "correlation_id")
	})
}

// reporting is a Runner that reports progress.
type reporting func(ctx context.Context, report func(job.Progress)) (*job.Result, error)

func (f reporting) Run(ctx context.Context, _ job.Definition, _ int, report func(job.Progress)) (*job.Result, error) {
	return f(ctx, report)
}

// percentages gives the progress of what was announced, in its order.
func percentages(t *testing.T, news []job.Notification) []int {
	t.Helper()
	reached, over := []int{}, false
	for _, n := range news {
		over = over || n.Ended
		if n.Progress != nil {
			require.False(t, over, "after the end")
			require.Equal(t, 1, n.Attempt)
			reached = append(reached, n.Progress.Percentage)
		}
	}
	return reached
}

func TestProgressIsAnnounced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		var late func(job.Progress)
		w.worker.runner = reporting(func(_ context.Context, report func(job.Progress)) (*job.Result, error) {
			late = report
			for _, n := range []int{0, 10, 10, 40, 20, 100} {
				report(job.Progress{Percentage: n})
			}
			return goodResult(*definitionOf(job.SuccessFast)), nil
		})
		w.start()
		task := w.add()
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)
		late(job.Progress{Percentage: 100})
		require.Equal(t, []int{0, 10, 10, 40, 100}, percentages(t, w.queue.news()), "never backwards, nothing after the end")
	})
}

func TestProgressOfStoppedWorkIsNotAnnounced(t *testing.T) {
	for name, stop := range map[string]func(*world, job.Task){
		"canceled":   func(w *world, t job.Task) { w.cancel(t) },
		"lease lost": func(w *world, _ job.Task) { w.worker.lose(w.worker.id, errLapsed) },
		"time limit": func(*world, job.Task) { time.Sleep(testLimit) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.worker.runner = reporting(func(ctx context.Context, report func(job.Progress)) (*job.Result, error) {
					report(job.Progress{Percentage: 30})
					<-ctx.Done()
					report(job.Progress{Percentage: 50})
					return nil, ctx.Err()
				})
				w.start()
				task := w.add()
				running := w.handling(task)
				stop(w, task)
				require.NoError(t, <-running)
				synctest.Wait()
				news := w.queue.news()
				require.Equal(t, []int{30}, percentages(t, news))
				require.Equal(t, end(task), news[len(news)-1], "the progress is of no more use")
			})
		})
	}
}

// The end does not depend on the work's context: that may outlive the work.
func TestProgressAfterTheEndIsNotAnnounced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		report, end := w.worker.reporter(context.Background(), &job.Claim{Lease: job.Lease{Attempt: 1}})
		report(job.Progress{Percentage: 10})
		end()
		report(job.Progress{Percentage: 20})
		require.Equal(t, []int{10}, percentages(t, w.queue.news()))
	})
}

func TestProgressAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.worker.runner = reporting(func(_ context.Context, report func(job.Progress)) (*job.Result, error) {
			for i := range 50 { // and nobody waits for them
				go report(job.Progress{Percentage: i})
			}
			return goodResult(*definitionOf(job.SuccessFast)), nil
		})
		w.start()
		require.NoError(t, w.handle(w.add()))
		synctest.Wait()
		reached := percentages(t, w.queue.news())
		require.IsNonDecreasing(t, append([]int{-1, -1}, reached...))
	})
}
