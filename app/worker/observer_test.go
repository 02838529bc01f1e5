package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

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
	bubble(t, func(t *testing.T, w *world) {
		var late func(job.Progress)
		w.worker.runner = reporting(func(_ context.Context, report func(job.Progress)) (*job.Result, error) {
			late = report
			for _, n := range []int{0, 10, 10, 40, 20} {
				report(*apptest.Percent(n))
			}
			for i := range 50 { // and nobody waits for them
				go report(*apptest.Percent(50 + i))
			}
			return apptest.GoodResult(*apptest.DefinitionOf(job.SuccessFast)), nil
		})
		w.start()
		task := w.Add()
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)
		synctest.Wait()
		late(*apptest.Percent(100))
		report, over := w.worker.reporter(context.Background(), &job.Claim{ClaimID: job.ClaimID{Attempt: 1}})
		over()
		report(*apptest.Percent(100)) // although its context goes on
		reached := percentages(t, w.Queue.Notifications())
		require.Equal(t, []int{0, 10, 10, 40}, reached[:4], "never backwards")
		require.IsNonDecreasing(t, reached)
		require.NotContains(t, reached, 100, "nothing after the end")
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
			w.worker.runner = reporting(func(ctx context.Context, report func(job.Progress)) (*job.Result, error) {
				report(*apptest.Percent(30))
				<-ctx.Done()
				report(*apptest.Percent(50))
				return nil, ctx.Err()
			})
			w.start()
			task := w.Add()
			handled := w.handling(task)
			stop(w, task)
			require.NoError(t, <-handled)
			synctest.Wait()
			notifications := w.Queue.Notifications()
			require.Equal(t, []int{30}, percentages(t, notifications))
			require.Equal(t, apptest.End(task), notifications[len(notifications)-1], "the progress is of no more use")
		})
	}
}

// emitting is a Runner that emits events, and then does what is planned.
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

func succeed(d job.Definition) (*job.Result, error) { return apptest.GoodResult(d), nil }

func TestEventsAreRecordedOnTheWay(t *testing.T) {
	events := []job.Emission{{Name: "a"}, {Name: "b"}}
	bubble(t, func(t *testing.T, w *world) {
		w.worker.runner = emitting{events, succeed}
		w.start()
		trouble := 3
		w.Store.Hook("Emit", apptest.Hook{After: func(context.Context) error {
			if trouble--; trouble >= 0 {
				return errors.New("the answer is lost")
			}
			return nil
		}})
		task := w.Add()
		require.NoError(t, w.handle(task))
		row := w.Store.RowOf(task.JobID)
		require.Equal(t, events, row.Emitted, "as often as it takes, each once")
		require.Equal(t, job.Succeeded, row.State)
	})
}

func TestEventsEndWithTheClaim(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.worker.runner = emitting{[]job.Emission{{Name: "a"}}, func(job.Definition) (*job.Result, error) { panic("must not go on") }}
		w.start()
		w.Store.Hook("Emit", apptest.Hook{Before: func(context.Context) error { return job.ErrStale }})
		task := w.Add()
		require.NoError(t, w.handle(task))
		require.Empty(t, w.Store.RowOf(task.JobID).Ends, "nothing is written")
		require.Equal(t, 1.0, w.Metric(w.Metrics.FencedWrites.WithLabelValues("emit")))
	})
}

func TestPlannedFailureIsWritten(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
			return nil, apptest.Failure{Reason: job.CustomFailed}
		}
		w.start()
		d := job.DefineCustom(job.Execute, &job.Behavior{Failures: []job.PlannedFailure{{Attempts: []int{1},
			Problem: job.PlannedProblem{Detail: "planned", RetryAfter: 7}}}}, time.Now(), nil)
		task := w.Add(func(r *apptest.Row) { r.WorkKind, r.Definition, r.AutoRetry = job.Custom, &d, true })
		require.NoError(t, w.handle(task))
		end := w.Store.RowOf(task.JobID).Ends[0]
		require.Equal(t, "planned", end.Failure.Detail)
		require.Equal(t, 7, end.Failure.RetryAfter)
		require.Equal(t, 7*time.Second, *end.RetryWait)
	})
}

func TestEndsOfAttemptsAreCounted(t *testing.T) {
	fails := apptest.Fixed(nil, apptest.Failure{Reason: job.DependencyFailed})
	for name, test := range map[string]struct {
		runner  apptest.RunnerFunc
		attempt int
		want    map[string]float64
	}{
		"success": {apptest.Takes(2 * time.Second), 1, map[string]float64{"jobs_succeeded_total": 1}},
		"failure": {fails, 1, map[string]float64{"jobs_failed_total": 1, "job_retries_total": 1, "jobs_queued_total": 1}},
		"success of a retry": {apptest.Takes(2 * time.Second), 2,
			map[string]float64{"jobs_succeeded_total": 1, "job_retry_outcomes_total": 1}},
		"failure of the last retry": {fails, 4, map[string]float64{"jobs_failed_total": 1, "job_retry_outcomes_total": 1}},
	} {
		run(t, name, test.runner, func(t *testing.T, w *world) {
			task := w.Add(func(r *apptest.Row) { r.AutoRetry, r.Attempt = true, test.attempt })
			require.NoError(t, w.handle(task))
			for _, metric := range []string{
				"jobs_succeeded_total", "jobs_failed_total", "jobs_canceled_total", "jobs_queued_total", "job_retries_total",
				"job_retry_outcomes_total",
			} {
				require.Equal(t, test.want[metric], w.Sum(metric), metric)
			}
			outcome := w.Store.RowOf(task.JobID).Ends[0].State
			n, _ := w.Executions(outcome)
			require.Equal(t, uint64(1), n)
			if test.attempt > 1 {
				require.Equal(t, 1.0, w.Metric(w.Metrics.RetryOutcomes.WithLabelValues(string(outcome))))
			}
		})
	}
}

// A job's times in each of its steps, with the trace that they are of.
func TestTimesOfAJobAreCounted(t *testing.T) {
	working(t, apptest.Takes(4*time.Second), func(t *testing.T, w *world) {
		w.Store.Hook("Start", apptest.Hook{Before: apptest.Slow(2 * time.Second)})
		from := w.Traceparent()
		task := w.Add(func(r *apptest.Row) { r.TraceParent = from })
		apptest.Pass(3 * time.Second)
		require.NoError(t, w.process(task))
		for name, want := range map[string]float64{
			"job_queued_seconds": 3, "job_assigned_seconds": 2, "job_queue_wait_seconds": 3, "job_execution_seconds": 4,
		} {
			require.Equal(t, want, w.Sum(name), name)
		}
		trace := []string{w.Span("request").SpanContext.TraceID().String()}
		require.Equal(t, [][]string{trace, trace}, [][]string{w.Exemplars("job_queue_wait_seconds"), w.Exemplars("job_execution_seconds")})
		require.Equal(t, 4.0, w.Sum("worker_slots"))
	})
}

func TestLatenessIsMeasured(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		early := w.AddDeferred(time.Second)
		w.Add() // which is not scheduled
		apptest.Pass(time.Second)
		w.start()
		apptest.Pass(250 * time.Millisecond)
		require.NoError(t, w.handle(early), "before the scheduler")
		require.Equal(t, []job.State{job.Created, job.Queued, job.Assigned, job.Running, job.Succeeded}, w.Store.RowOf(early.JobID).History)
		require.InDelta(t, 0.25, w.Sum("job_schedule_lateness_seconds"), 1e-6)
		require.Equal(t, 1.0, w.Sum("jobs_queued_total"), "a claim that comes before the scheduler passes QUEUED, and that counts")
	})
}

// process hands a task to the worker as the queue does: in a span that goes on
// from where the task says.
func (w *world) process(t job.Task) error {
	ctx, span := telemetry.Continue(context.Background(), w.Tracer(), t.TraceParent, telemetry.SpanProcess)
	defer span.End()
	return apptest.Trouble(w.worker.Handle(ctx, t))
}
