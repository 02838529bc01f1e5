package app

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestExecuteSucceeds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = takes(3 * time.Second)
		w.start()
		task := w.add()
		pass(2 * time.Second)
		require.NoError(t, w.handle(task))

		end := w.ended(task, job.Succeeded)
		require.Equal(t, goodResult(*definitionOf(job.SuccessFast)), end.Result)
		require.Nil(t, end.Failure)
		require.Nil(t, end.Emit)
		require.False(t, end.Exhausted)
		require.Equal(t, int64(1), end.Fence)
		require.Equal(t, 1.0, w.metric(w.metrics.running.WithLabelValues("SUCCESS_FAST")))
		require.Equal(t, 1.0, w.metric(w.metrics.succeeded.WithLabelValues("SUCCESS_FAST")))
		require.Equal(t, 2.0, w.sum("job_queue_wait_seconds"))
		require.Equal(t, 3.0, w.sum("job_execution_seconds"))
		w.logged(task, "assign", "QUEUED", "ASSIGNED")
		w.logged(task, "run", "ASSIGNED", "RUNNING")
		w.logged(task, "finish", "RUNNING", "SUCCEEDED")
	})
}

// logged asserts that a transition was logged once, with the fields of section
// 16 and of the scenario.
func (w *testWorld) logged(task job.Task, action, from, to string) map[string]any {
	w.t.Helper()
	lines := w.log.lines(w.t, map[string]any{
		"msg": "job transition", "action": action, "job_id": task.JobID.String(), "current_state": from, "next_state": to,
	})
	require.Len(w.t, lines, 1)
	require.Equal(w.t, "request-1", lines[0]["request_id"])
	require.Equal(w.t, clientA.String(), lines[0]["client_id"])
	for _, field := range []string{"work_kind", "duration_ms", "expected_outcome"} {
		require.Contains(w.t, lines[0], field)
	}
	return lines[0]
}

func TestExecuteEmitsTheClientsEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		emission := &job.Emission{Name: "order.shipped", Data: json.RawMessage(`{"n":1}`)}
		task := w.add(func(r *row) {
			r.Type = job.EmitEvent
			r.Definition.Emit = emission
		})
		require.NoError(t, w.handle(task))
		require.Equal(t, emission, w.ended(task, job.Succeeded).Emit)
	})
}

func TestExecuteFails(t *testing.T) {
	work := func(result *job.Result, err error) runnerFunc {
		return func(context.Context, job.Definition, int) (*job.Result, error) { return result, err }
	}
	good := goodResult(*definitionOf(job.SuccessFast))
	altered := func(f func(*job.Result)) *job.Result {
		r := *good
		f(&r)
		return &r
	}
	never := func(context.Context, job.Definition, int) (*job.Result, error) { panic("must not run") }
	tests := map[string]struct {
		runner runnerFunc
		change func(*row)
		want   job.Reason
	}{
		"by the catalogue":          {runner: work(nil, failure{job.DependencyFailed}), want: job.DependencyFailed},
		"by the catalogue, wrapped": {runner: work(nil, errors.Join(errors.New("x"), failure{job.FailedAgain})), want: job.FailedAgain},
		"panic":                     {runner: func(context.Context, job.Definition, int) (*job.Result, error) { panic("boom") }, want: job.WorkPanicked},
		"nil pointer": {runner: func(context.Context, job.Definition, int) (*job.Result, error) {
			var d *job.Result
			return nil, errors.New(d.MediaType)
		}, want: job.WorkPanicked},
		"unexpected error":           {runner: work(nil, errors.New("no space left on device")), want: job.WorkPanicked},
		"refused by the runner":      {runner: work(nil, job.ErrBadDefinition), want: job.DefinitionInvalid},
		"no definition":              {runner: never, change: func(r *row) { r.Definition = nil }, want: job.DefinitionInvalid},
		"damaged definition":         {runner: never, change: func(r *row) { r.Definition.PayloadSize = 0 }, want: job.DefinitionInvalid},
		"nothing to emit":            {runner: never, change: func(r *row) { r.Type = job.EmitEvent }, want: job.DefinitionInvalid},
		"no result":                  {runner: work(nil, nil), want: job.OutputInvalid},
		"result without media type":  {runner: work(altered(func(r *job.Result) { r.MediaType = "" }), nil), want: job.OutputInvalid},
		"short result":               {runner: work(altered(func(r *job.Result) { r.Body = r.Body[1:]; r.SHA256 = sha256.Sum256(r.Body) }), nil), want: job.OutputInvalid},
		"result with a wrong digest": {runner: work(altered(func(r *job.Result) { r.SHA256[0]++ }), nil), want: job.OutputInvalid},
		"time limit":                 {runner: takes(testLimit + time.Second), want: job.TimedOut},
		"result after the time limit": {runner: func(ctx context.Context, _ job.Definition, _ int) (*job.Result, error) {
			<-ctx.Done()
			return good, nil
		}, want: job.TimedOut},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.runner = test.runner
				w.start()
				task := w.add(func(r *row) {
					if test.change != nil {
						test.change(r)
					}
				})
				require.NoError(t, w.handle(task))

				end := w.ended(task, job.Failed)
				require.Equal(t, job.NewFailure(test.want, 1, testBackoff), end.Failure)
				require.Nil(t, end.Result)
				require.Nil(t, end.RetryWait)
				require.False(t, end.Exhausted)
				require.Equal(t, 1.0, w.metric(w.metrics.failed.WithLabelValues("SUCCESS_FAST", string(test.want.Spec().Code))))
				require.Zero(t, w.metric(w.metrics.succeeded.WithLabelValues("SUCCESS_FAST")))
				lines := w.log.lines(t, map[string]any{"action": "finish", "next_state": "FAILED"})
				require.Len(t, lines, 1)
				require.Equal(t, string(test.want.Spec().Code), lines[0]["error_code"])
				require.Equal(t, test.want.Spec().Detail, lines[0]["error_message"])
			})
		})
	}
}

func TestTheTimeLimitIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = takes(time.Hour)
		w.start()
		began := time.Now()
		require.NoError(t, w.handle(w.add()))
		require.Equal(t, testLimit, time.Since(began))
	})
}

func TestOneCrashLeavesOtherJobsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = takes(10 * time.Second)
		w.start()
		task := w.add()
		running := w.handling(task)
		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) { panic("boom") }
		crashed := w.add()
		require.NoError(t, w.handle(crashed))
		w.ended(crashed, job.Failed)
		require.NoError(t, <-running)
		w.ended(task, job.Succeeded)
	})
}

func TestAutomaticRetry(t *testing.T) {
	fail := func(r job.Reason) runnerFunc {
		return func(context.Context, job.Definition, int) (*job.Result, error) { return nil, failure{r} }
	}
	t.Run("queues the next attempt after its backoff", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w := newWorld(t)
			w.runner = fail(job.DependencyFailed)
			w.start()
			task := w.add(func(r *row) { r.AutoRetry = true })
			require.NoError(t, w.handle(task))

			end := w.ended(task, job.Failed)
			require.NotNil(t, end.RetryWait)
			require.LessOrEqual(t, *end.RetryWait, testBackoff.Ceiling(1))
			next := w.store.job(task.JobID)
			require.Equal(t, job.Queued, next.State)
			require.Equal(t, []job.Task{{JobID: task.JobID, Attempt: 2, RunAt: next.RunAt}}, w.queue.sent())
			require.Equal(t, 1.0, w.metric(w.metrics.retried.WithLabelValues("auto")))
			require.Equal(t, 1.0, w.metric(w.metrics.queued.WithLabelValues("SUCCESS_FAST")))
			require.Equal(t, 2.0, w.logged(task, "auto_retry", "FAILED", "QUEUED")["attempt"])
		})
	})
	t.Run("ends with the last attempt", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w := newWorld(t)
			w.runner = fail(job.FailedAgain)
			w.start()
			task := w.add(func(r *row) { r.AutoRetry, r.Attempt = true, r.MaxAttempts })
			require.NoError(t, w.handle(task))
			end := w.ended(task, job.Failed)
			require.True(t, end.Exhausted)
			require.Nil(t, end.RetryWait)
			require.Empty(t, w.queue.sent())
		})
	})
	t.Run("not after a failure that would come again", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w := newWorld(t)
			w.runner = fail(job.FailedImmediately)
			w.start()
			task := w.add(func(r *row) { r.AutoRetry = true })
			require.NoError(t, w.handle(task))
			require.Nil(t, w.ended(task, job.Failed).RetryWait)
			require.Empty(t, w.queue.sent())
		})
	})
}

// cancel is what the API does: the state first, then the signal.
func (w *world) cancel(task job.Task) {
	w.store.change(task.JobID, func(r *row) { w.store.move(r, job.Canceled) })
	w.worker.Canceled(task.JobID)
}

func TestCancelDuringRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = takes(time.Minute)
		w.start()
		task, other := w.add(), w.add()
		running, unharmed := w.handling(task), w.handling(other)
		began := time.Now()
		w.cancel(task)
		require.NoError(t, <-running)
		require.Zero(t, time.Since(began), "stops at once")
		require.Empty(t, w.store.job(task.JobID).ends, "and says nothing")
		require.Zero(t, w.store.count("Finish"))
		require.NoError(t, <-unharmed)
		w.ended(other, job.Succeeded)
	})
}

func TestCancelWithoutASignalStopsTheWorkWithTheNextHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = takes(time.Minute)
		w.start()
		task := w.add()
		running := w.handling(task)
		w.store.change(task.JobID, func(r *row) { w.store.move(r, job.Canceled) })
		began := time.Now()
		require.NoError(t, <-running)
		require.LessOrEqual(t, time.Since(began), testHeartbeat)
		require.Zero(t, w.store.count("Finish"))
	})
}

func TestCancelBeforeTheClaimIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = takes(time.Hour)
		w.start()
		task := w.add()
		// The signal comes before the worker knows that it holds the job.
		w.store.hook("Claim", hook{after: func(context.Context) error {
			w.cancel(task)
			return nil
		}})
		began := time.Now()
		require.NoError(t, w.handle(task))
		require.LessOrEqual(t, time.Since(began), testHeartbeat, "the next heartbeat tells of it")
		require.Equal(t, job.Canceled, w.store.job(task.JobID).State)
		require.Zero(t, w.store.count("Finish"))
		require.Empty(t, w.worker.holding)
	})
}

func TestCancelThatComesTooLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.add()
		w.store.hook("Finish", hook{after: func(ctx context.Context) error {
			w.worker.Canceled(task.JobID) // of an attempt whose end stands
			return ctx.Err()
		}})
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)
		require.Equal(t, 1.0, w.metric(w.metrics.succeeded.WithLabelValues("SUCCESS_FAST")))
		w.worker.Canceled(task.JobID)
		w.worker.Canceled(newID())
	})
}

func TestFinishIsRepeatedThroughStorageTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.add()
		w.store.hook("Finish", hook{before: fails(20, errStorage)})
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)
		require.Equal(t, 21, w.store.count("Finish"))
	})
}

func TestFinishWhoseAnswerIsLostIsWrittenOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.add()
		w.store.hook("Finish", hook{after: fails(1, errStorage)})
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)
		require.Equal(t, 1.0, w.metric(w.metrics.fencedWrites.WithLabelValues("finish")))
	})
}

func TestFinishAfterTheJobWasTakenAwaySaysNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.add(func(r *row) { r.AutoRetry = true })
		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
			w.store.change(task.JobID, func(r *row) { // as the rescuer does
				w.store.move(r, job.Failed)
				w.store.requeue(r, 0)
			})
			return nil, failure{job.DependencyFailed}
		}
		require.NoError(t, w.handle(task))
		r := w.store.job(task.JobID)
		require.Equal(t, job.Queued, r.State)
		require.Equal(t, 2, r.Attempt)
		require.Empty(t, r.ends)
		require.Empty(t, w.queue.sent())
		require.Equal(t, 1.0, w.metric(w.metrics.fencedWrites.WithLabelValues("finish")))
		require.Zero(t, w.sum("jobs_failed_total"))
	})
}

func TestAnOutcomeThatCannotBeStoredIsAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		task := w.add()
		w.store.hook("Finish", hook{before: fails(1, &job.Error{Code: job.CodeInternal, Detail: "The data could not be stored."})})
		began := time.Now()
		require.NoError(t, w.handle(task))
		require.Zero(t, time.Since(began))
		require.Equal(t, job.OutputInvalid, w.ended(task, job.Failed).Failure.Reason)
		require.Equal(t, 1.0, w.sum("jobs_failed_total"))
	})
}

// A heartbeat that was asked for after an outcome was committed, and answered
// before the outcome's writer was, misses the job for a good reason.
func TestAHeartbeatInTheMiddleOfAFinishDoesNoHarm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.runner = takes(time.Second)
		w.start()
		task := w.add(func(r *row) { r.AutoRetry = true })
		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
			time.Sleep(time.Second)
			return nil, failure{job.DependencyFailed}
		}
		w.store.hook("Finish", hook{after: func(ctx context.Context) error {
			sleep(ctx, 2*testHeartbeat)
			return ctx.Err()
		}})
		require.NoError(t, w.handle(task))
		require.Equal(t, 1.0, w.sum("jobs_failed_total"))
		require.Len(t, w.queue.sent(), 1)
		synctest.Wait()
	})
}
