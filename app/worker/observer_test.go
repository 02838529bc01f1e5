package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

type reporting func(ctx context.Context, report func(job.Progress)) (*job.Result, error)

func (f reporting) Run(ctx context.Context, _ job.Definition, _ int, on job.Observer) (*job.Result, error) {
	return f(ctx, on.Progress)
}

func (reporting) Probe(context.Context, job.Kind) error { return nil }

func percentages(t *testing.T, notifications []job.Notification) []int {
	t.Helper()
	reached, over := []int{}, false
	for _, n := range notifications {
		over = over || n.Ended
		if n.Progress != nil {
			require.False(t, over, "progress after the end")
			require.Equal(t, 1, n.Attempt)
			reached = append(reached, n.Progress.Percentage)
		}
	}
	return reached
}

func TestProgressIsPublished(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var late func(job.Progress)
		w.worker.Runner = reporting(func(_ context.Context, report func(job.Progress)) (*job.Result, error) {
			late = report
			for _, n := range []int{0, 10, 10, 40, 20} {
				report(*apptest.Percent(n))
			}
			for i := range 50 { // no other code reads the progress during this loop
				go report(*apptest.Percent(50 + i))
			}
			return goodResult(*apptest.DefinitionOf(job.SuccessFast)), nil
		})
		w.start()
		task := w.store.add()
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)
		synctest.Wait()
		late(*apptest.Percent(100))
		report, over := w.worker.reporter(context.Background(), &job.Claim{ClaimID: job.ClaimID{Attempt: 1}})
		over()
		report(*apptest.Percent(100)) // the attempt has ended, but the reporter's context is still open
		reached := percentages(t, w.Queue.Notifications())
		require.Equal(t, []int{0, 10, 10, 40}, reached[:4], "progress never decreases")
		require.IsNonDecreasing(t, reached)
		require.NotContains(t, reached, 100, "no progress after the end")
	})
}

func TestProgressOfStoppedWorkIsNotPublished(t *testing.T) {
	for name, stop := range map[string]func(*world, job.Task){
		"canceled":   func(w *world, t job.Task) { w.cancel(t) },
		"lease lost": func(w *world, _ job.Task) { w.worker.lose(w.worker.id, errLapsed) },
		"time limit": func(*world, job.Task) { time.Sleep(apptest.Limit) },
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.worker.Runner = reporting(func(ctx context.Context, report func(job.Progress)) (*job.Result, error) {
				report(*apptest.Percent(30))
				<-ctx.Done()
				report(*apptest.Percent(50))
				return nil, ctx.Err()
			})
			w.start()
			task := w.store.add()
			handled := w.handling(task)
			stop(w, task)
			require.NoError(t, <-handled)
			synctest.Wait()
			notifications := w.Queue.Notifications()
			require.Equal(t, []int{30}, percentages(t, notifications))
			require.Equal(t, apptest.End(task), notifications[len(notifications)-1], "the end of the attempt is published last")
		})
	}
}

type emitting struct {
	events  []job.Emission
	outcome func(job.Definition) (*job.Result, error)
}

func (e emitting) Run(_ context.Context, d job.Definition, _ int, on job.Observer) (*job.Result, error) {
	for i, event := range e.events {
		if err := on.Emit(i, event); err != nil {
			return nil, err
		}
	}
	return e.outcome(d)
}

func (emitting) Probe(context.Context, job.Kind) error { return nil }

func succeed(d job.Definition) (*job.Result, error) { return goodResult(d), nil }

func TestEventsAreRecordedOnTheWay(t *testing.T) {
	events := []job.Emission{{Name: "a"}, {Name: "b"}}
	bubble(t, func(t *testing.T, w *world) {
		w.worker.Runner = emitting{events, succeed}
		w.start()
		trouble := 3
		w.store.hook("Emit", hook{after: func(context.Context) error {
			if trouble--; trouble >= 0 {
				return errors.New("the answer is lost")
			}
			return nil
		}})
		task := w.store.add()
		require.NoError(t, w.handle(task))
		row := w.store.row(task.JobID)
		require.Equal(t, events, row.emitted, "each event is stored once despite retries")
		require.Equal(t, job.Succeeded, row.State)
	})
}

func TestEventsEndWithTheClaim(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.worker.Runner = emitting{[]job.Emission{{Name: "a"}}, func(job.Definition) (*job.Result, error) { panic("must not go on") }}
		w.start()
		w.store.hook("Emit", hook{before: func(context.Context) error { return job.ErrStale }})
		task := w.store.add()
		require.NoError(t, w.handle(task))
		require.Empty(t, w.store.row(task.JobID).ends, "no outcome is stored")
		require.Equal(t, 1.0, w.Metric(w.Metrics.FencedWrites.WithLabelValues("emit")))
	})
}
