package worker

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestExecuteSucceeds(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(3 * time.Second)
		w.start()
		task := w.Add()
		apptest.Pass(2 * time.Second)
		require.NoError(t, w.handle(task))

		end := w.Ended(task, job.Succeeded)
		require.Equal(t, apptest.GoodResult(*apptest.DefinitionOf(job.SuccessFast)), end.Result)
		require.Nil(t, end.Failure)
		require.Nil(t, end.Emit)
		require.False(t, end.Exhausted)
		require.Equal(t, int64(1), end.Fence)
		require.Equal(t, 1.0, w.Metric(w.Metrics.Running.WithLabelValues("SUCCESS_FAST")))
		require.Equal(t, 1.0, w.Metric(w.Metrics.Succeeded.WithLabelValues("SUCCESS_FAST")))
		require.Equal(t, 2.0, w.Sum("job_queue_wait_seconds"))
		require.Equal(t, 3.0, w.Sum("job_execution_seconds"))
		w.Logged(task, "assign", "QUEUED", "ASSIGNED")
		w.Logged(task, "run", "ASSIGNED", "RUNNING")
		w.Logged(task, "finish", "RUNNING", "SUCCEEDED")
	})
}

func TestExecuteEmitsTheClientsEvent(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		emission := &job.Emission{Name: "order.shipped", Data: json.RawMessage(`{"n":1}`)}
		task := w.Add(func(r *apptest.Row) {
			r.Type = job.EmitEvent
			r.Definition.Emit = emission
		})
		require.NoError(t, w.handle(task))
		require.Equal(t, emission, w.Ended(task, job.Succeeded).Emit)
	})
}

func TestExecuteFails(t *testing.T) {
	work := func(result *job.Result, err error) apptest.RunnerFunc {
		return func(context.Context, job.Definition, int) (*job.Result, error) { return result, err }
	}
	good := apptest.GoodResult(*apptest.DefinitionOf(job.SuccessFast))
	altered := func(f func(*job.Result)) *job.Result {
		r := *good
		f(&r)
		return &r
	}
	never := func(context.Context, job.Definition, int) (*job.Result, error) { panic("must not run") }
	tests := map[string]struct {
		runner apptest.RunnerFunc
		change func(*apptest.Row)
		want   job.Reason
	}{
		"by the catalogue": {runner: work(nil, apptest.Failure{Reason: job.DependencyFailed}), want: job.DependencyFailed},
		"by the catalogue, wrapped": {runner: work(nil, errors.Join(errors.New("x"), apptest.Failure{Reason: job.FailedAgain})),
			want: job.FailedAgain},
		"panic": {runner: func(context.Context, job.Definition, int) (*job.Result, error) { panic("boom") },
			want: job.WorkPanicked},
		"nil pointer": {runner: func(context.Context, job.Definition, int) (*job.Result, error) {
			var d *job.Result
			return nil, errors.New(d.MediaType)
		}, want: job.WorkPanicked},
		"unexpected error":          {runner: work(nil, errors.New("no space left on device")), want: job.WorkPanicked},
		"refused by the runner":     {runner: work(nil, job.ErrBadDefinition), want: job.DefinitionInvalid},
		"no definition":             {runner: never, change: func(r *apptest.Row) { r.Definition = nil }, want: job.DefinitionInvalid},
		"damaged definition":        {runner: never, change: func(r *apptest.Row) { r.Definition.PayloadSize = 0 }, want: job.DefinitionInvalid},
		"nothing to emit":           {runner: never, change: func(r *apptest.Row) { r.Type = job.EmitEvent }, want: job.DefinitionInvalid},
		"no result":                 {runner: work(nil, nil), want: job.OutputInvalid},
		"result without media type": {runner: work(altered(func(r *job.Result) { r.MediaType = "" }), nil), want: job.OutputInvalid},
		"short result": {runner: work(altered(func(r *job.Result) { r.Body = r.Body[1:]; r.SHA256 = sha256.Sum256(r.Body) }),
			nil), want: job.OutputInvalid},
		"result with a wrong digest": {runner: work(altered(func(r *job.Result) { r.SHA256[0]++ }), nil), want: job.OutputInvalid},
		"time limit":                 {runner: apptest.Takes(apptest.Limit + time.Second), want: job.TimedOut},
		"result after the time limit": {runner: func(ctx context.Context, _ job.Definition, _ int) (*job.Result, error) {
			<-ctx.Done()
			return good, nil
		}, want: job.TimedOut},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.runner = test.runner
				w.start()
				task := w.Add(func(r *apptest.Row) {
					if test.change != nil {
						test.change(r)
					}
				})
				require.NoError(t, w.handle(task))

				end := w.Ended(task, job.Failed)
				require.Equal(t, job.NewFailure(test.want, 1, apptest.Backoff), end.Failure)
				require.Nil(t, end.Result)
				require.Nil(t, end.RetryWait)
				require.False(t, end.Exhausted)
				require.Equal(t, 1.0, w.Metric(w.Metrics.Failed.WithLabelValues("SUCCESS_FAST", string(test.want.Spec().Code))))
				require.Zero(t, w.Metric(w.Metrics.Succeeded.WithLabelValues("SUCCESS_FAST")))
				lines := w.Log.Lines(t, map[string]any{"action": "finish", "next_state": "FAILED"})
				require.Len(t, lines, 1)
				require.Equal(t, string(test.want.Spec().Code), lines[0]["error_code"])
				require.Equal(t, test.want.Spec().Detail, lines[0]["error_message"])
			})
		})
	}
}

func TestTheTimeLimitIsKept(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(time.Hour)
		w.start()
		began := time.Now()
		require.NoError(t, w.handle(w.Add()))
		require.Equal(t, apptest.Limit, time.Since(began))
	})
}

func TestOneCrashLeavesOtherJobsAlone(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(10 * time.Second)
		w.start()
		task := w.Add()
		running := w.handling(task)
		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) { panic("boom") }
		crashed := w.Add()
		require.NoError(t, w.handle(crashed))
		w.Ended(crashed, job.Failed)
		require.NoError(t, <-running)
		w.Ended(task, job.Succeeded)
	})
}

func TestAutomaticRetry(t *testing.T) {
	fail := func(r job.Reason) apptest.RunnerFunc {
		return func(context.Context, job.Definition, int) (*job.Result, error) {
			return nil, apptest.Failure{Reason: r}
		}
	}
	t.Run("queues the next attempt after its backoff", func(t *testing.T) {
		apptest.Bubble(t, func(t *testing.T) {
			w := newWorld(t)
			w.runner = fail(job.DependencyFailed)
			w.start()
			task := w.Add(func(r *apptest.Row) { r.AutoRetry = true })
			require.NoError(t, w.handle(task))

			end := w.Ended(task, job.Failed)
			require.NotNil(t, end.RetryWait)
			require.LessOrEqual(t, *end.RetryWait, apptest.Backoff.Ceiling(1))
			next := w.Store.RowOf(task.JobID)
			require.Equal(t, job.Queued, next.State)
			require.Equal(t, []job.Task{{JobID: task.JobID, Attempt: 2, RunAt: next.RunAt}}, apptest.Named(w.Queue.Sent()))
			require.Equal(t, 1.0, w.Metric(w.Metrics.Retried.WithLabelValues("auto")))
			require.Equal(t, 1.0, w.Metric(w.Metrics.Queued.WithLabelValues("SUCCESS_FAST")))
			require.Equal(t, 2.0, w.Logged(task, "auto_retry", "FAILED", "QUEUED")["attempt"])
		})
	})
	t.Run("ends with the last attempt", func(t *testing.T) {
		apptest.Bubble(t, func(t *testing.T) {
			w := newWorld(t)
			w.runner = fail(job.FailedAgain)
			w.start()
			task := w.Add(func(r *apptest.Row) { r.AutoRetry, r.Attempt = true, r.MaxAttempts })
			require.NoError(t, w.handle(task))
			end := w.Ended(task, job.Failed)
			require.True(t, end.Exhausted)
			require.Nil(t, end.RetryWait)
			require.Empty(t, w.Queue.Sent())
		})
	})
	t.Run("not after a failure that would come again", func(t *testing.T) {
		apptest.Bubble(t, func(t *testing.T) {
			w := newWorld(t)
			w.runner = fail(job.FailedImmediately)
			w.start()
			task := w.Add(func(r *apptest.Row) { r.AutoRetry = true })
			require.NoError(t, w.handle(task))
			require.Nil(t, w.Ended(task, job.Failed).RetryWait)
			require.Empty(t, w.Queue.Sent())
		})
	})
}

// cancel is what the API does: the state first, then the signal.
func (w *world) cancel(task job.Task) {
	w.Store.Change(task.JobID, func(r *apptest.Row) { w.Store.Move(r, job.Canceled) })
	w.worker.Canceled(task.JobID)
}

func TestCancelDuringRun(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(time.Minute)
		w.start()
		task, other := w.Add(), w.Add()
		running, unharmed := w.handling(task), w.handling(other)
		began := time.Now()
		w.cancel(task)
		require.NoError(t, <-running)
		require.Zero(t, time.Since(began), "stops at once")
		require.Empty(t, w.Store.RowOf(task.JobID).Ends, "and says nothing")
		require.Zero(t, w.Store.Count("Finish"))
		require.NoError(t, <-unharmed)
		w.Ended(other, job.Succeeded)
	})
}

func TestCancelWithoutASignalStopsTheWorkWithTheNextHeartbeat(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(time.Minute)
		w.start()
		task := w.Add()
		running := w.handling(task)
		w.Store.Change(task.JobID, func(r *apptest.Row) { w.Store.Move(r, job.Canceled) })
		began := time.Now()
		require.NoError(t, <-running)
		require.LessOrEqual(t, time.Since(began), apptest.Heartbeat)
		require.Zero(t, w.Store.Count("Finish"))
	})
}

func TestCancelBeforeTheClaimIsAnswered(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(time.Hour)
		w.start()
		task := w.Add()
		// The signal comes before the worker knows that it holds the job.
		w.Store.Hook("Claim", apptest.Hook{After: func(context.Context) error {
			w.cancel(task)
			return nil
		}})
		began := time.Now()
		require.NoError(t, w.handle(task))
		require.LessOrEqual(t, time.Since(began), apptest.Heartbeat, "the next heartbeat tells of it")
		require.Equal(t, job.Canceled, w.Store.RowOf(task.JobID).State)
		require.Zero(t, w.Store.Count("Finish"))
		require.Empty(t, w.worker.holding)
	})
}

func TestCancelThatComesTooLate(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.Add()
		w.Store.Hook("Finish", apptest.Hook{After: func(ctx context.Context) error {
			w.worker.Canceled(task.JobID) // of an attempt whose end stands
			return ctx.Err()
		}})
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)
		require.Equal(t, 1.0, w.Metric(w.Metrics.Succeeded.WithLabelValues("SUCCESS_FAST")))
		w.worker.Canceled(task.JobID)
		w.worker.Canceled(app.NewID())
	})
}

func TestFinishIsRepeatedThroughStorageTrouble(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.Add()
		w.Store.Hook("Finish", apptest.Hook{Before: apptest.Fails(20, apptest.ErrStorage)})
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)
		require.Equal(t, 21, w.Store.Count("Finish"))
	})
}

func TestFinishWhoseAnswerIsLostIsWrittenOnce(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.Add()
		w.Store.Hook("Finish", apptest.Hook{After: apptest.Fails(1, apptest.ErrStorage)})
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)
		require.Equal(t, 1.0, w.Metric(w.Metrics.FencedWrites.WithLabelValues("finish")))
	})
}

func TestFinishAfterTheJobWasTakenAwaySaysNothing(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.Add(func(r *apptest.Row) { r.AutoRetry = true })
		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
			w.Store.Change(task.JobID, func(r *apptest.Row) { // as the rescuer does
				w.Store.Move(r, job.Failed)
				w.Store.Requeue(r, 0)
			})
			return nil, apptest.Failure{Reason: job.DependencyFailed}
		}
		require.NoError(t, w.handle(task))
		r := w.Store.RowOf(task.JobID)
		require.Equal(t, job.Queued, r.State)
		require.Equal(t, 2, r.Attempt)
		require.Empty(t, r.Ends)
		require.Empty(t, w.Queue.Sent())
		require.Equal(t, 1.0, w.Metric(w.Metrics.FencedWrites.WithLabelValues("finish")))
		require.Zero(t, w.Sum("jobs_failed_total"))
	})
}

func TestAnOutcomeThatCannotBeStoredIsAFailure(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.Add()
		w.Store.Hook("Finish", apptest.Hook{Before: apptest.Fails(1, &job.Error{Code: job.CodeInternal,
			Detail: "The data could not be stored."})})
		began := time.Now()
		require.NoError(t, w.handle(task))
		require.Zero(t, time.Since(began))
		require.Equal(t, job.OutputInvalid, w.Ended(task, job.Failed).Failure.Reason)
		require.Equal(t, 1.0, w.Sum("jobs_failed_total"))
	})
}

// A heartbeat that was asked for after an outcome was committed, and answered
// before the outcome's writer was, misses the job for a good reason.
func TestAHeartbeatInTheMiddleOfAFinishDoesNoHarm(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = apptest.Takes(time.Second)
		w.start()
		task := w.Add(func(r *apptest.Row) { r.AutoRetry = true })
		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
			time.Sleep(time.Second)
			return nil, apptest.Failure{Reason: job.DependencyFailed}
		}
		w.Store.Hook("Finish", apptest.Hook{After: func(ctx context.Context) error {
			app.Sleep(ctx, 2*apptest.Heartbeat)
			return ctx.Err()
		}})
		require.NoError(t, w.handle(task))
		require.Equal(t, 1.0, w.Sum("jobs_failed_total"))
		require.Len(t, w.Queue.Sent(), 1)
		synctest.Wait()
	})
}
