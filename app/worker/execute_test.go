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
	working(t, apptest.Takes(3*time.Second), func(t *testing.T, w *world) {
		emission := &job.Emission{Name: "order.shipped", Data: json.RawMessage(`{"n":1}`)}
		task := w.Add(func(r *apptest.Row) {
			r.Type, r.CorrelationID, r.Definition.Emit = job.EmitEvent, "order-7", emission
		})
		require.NoError(t, w.handle(task))

		end := w.Ended(task, job.Succeeded)
		require.Equal(t, apptest.GoodResult(*w.Store.RowOf(task.JobID).Definition), end.Result)
		require.Nil(t, end.Failure)
		require.Equal(t, emission, end.Emit, "the client's event")
		require.False(t, end.Exhausted)
		require.Equal(t, int64(1), end.Fence)
		require.Equal(t, 1.0, w.Metric(w.Metrics.Running.WithLabelValues("SUCCESS_FAST")))
		require.Equal(t, 1.0, w.Metric(w.Metrics.Succeeded.WithLabelValues("SUCCESS_FAST")))
		w.Logged(task, "assign", "QUEUED", "ASSIGNED")
		w.Logged(task, "run", "ASSIGNED", "RUNNING")
		require.Equal(t, "order-7", w.Logged(task, "finish", "RUNNING", "SUCCEEDED")["correlation_id"])

		plain := w.Add()
		require.NoError(t, w.handle(plain))
		require.Nil(t, w.Ended(plain, job.Succeeded).Emit)
		require.NotContains(t, w.Logged(plain, "finish", "RUNNING", "SUCCEEDED"), "correlation_id")
	})
}

// Promise: contract 14e
func TestExecuteFails(t *testing.T) {
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
		"by the catalogue": {runner: apptest.Fixed(nil, errors.Join(errors.New("x"), apptest.Failure{Reason: job.FailedAgain})),
			want: job.FailedAgain},
		"panic": {runner: func(context.Context, job.Definition, int) (*job.Result, error) { panic("boom") },
			want: job.WorkPanicked},
		"unexpected error":          {runner: apptest.Fixed(nil, errors.New("no space left on device")), want: job.WorkPanicked},
		"refused by the runner":     {runner: apptest.Fixed(nil, job.ErrBadDefinition), want: job.DefinitionInvalid},
		"no definition":             {runner: never, change: func(r *apptest.Row) { r.Definition = nil }, want: job.DefinitionInvalid},
		"damaged definition":        {runner: never, change: func(r *apptest.Row) { r.Definition.PayloadSize = 0 }, want: job.DefinitionInvalid},
		"nothing to emit":           {runner: never, change: func(r *apptest.Row) { r.Type = job.EmitEvent }, want: job.DefinitionInvalid},
		"no result":                 {runner: apptest.Fixed(nil, nil), want: job.OutputInvalid},
		"result without media type": {runner: apptest.Fixed(altered(func(r *job.Result) { r.MediaType = "" }), nil), want: job.OutputInvalid},
		"short result": {runner: apptest.Fixed(altered(func(r *job.Result) { r.Body = r.Body[1:]; r.SHA256 = sha256.Sum256(r.Body) }),
			nil), want: job.OutputInvalid},
		"result with a wrong digest": {runner: apptest.Fixed(altered(func(r *job.Result) { r.SHA256[0]++ }), nil), want: job.OutputInvalid},
		"time limit":                 {runner: apptest.Takes(apptest.Limit + time.Second), want: job.TimedOut},
		"result after the time limit": {runner: func(ctx context.Context, _ job.Definition, _ int) (*job.Result, error) {
			<-ctx.Done()
			return good, nil
		}, want: job.TimedOut},
	}
	for name, test := range tests {
		run(t, name, test.runner, func(t *testing.T, w *world) {
			task := w.Add()
			if test.change != nil {
				w.Store.Change(task.JobID, test.change)
			}
			began := time.Now()
			require.NoError(t, w.handle(task))
			require.Equal(t, test.want == job.TimedOut, time.Since(began) == apptest.Limit, "the limit is kept")

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
	}
}

// Promise: patterns Retry API
func TestAutomaticRetry(t *testing.T) {
	for name, test := range map[string]struct {
		reason           job.Reason
		change           func(*apptest.Row)
		retry, exhausted bool
	}{
		"after its backoff":                         {job.DependencyFailed, func(*apptest.Row) {}, true, false},
		"not after the last attempt":                {job.FailedAgain, func(r *apptest.Row) { r.Attempt = r.MaxAttempts }, false, true},
		"not after a failure that would come again": {job.FailedImmediately, func(*apptest.Row) {}, false, false},
	} {
		run(t, name, apptest.Fixed(nil, apptest.Failure{Reason: test.reason}), func(t *testing.T, w *world) {
			task := w.Add(func(r *apptest.Row) { r.AutoRetry = true }, test.change)
			require.NoError(t, w.handle(task))
			last := w.Ended(task, job.Failed)
			require.Equal(t, []bool{test.retry, test.exhausted}, []bool{last.RetryWait != nil, last.Exhausted})
			require.Equal(t, []job.Notification{apptest.Event(task), apptest.Event(task), apptest.End(task)}, w.Queue.Notifications(),
				"the retry is of the same commit")
			if !test.retry {
				require.Empty(t, w.Queue.Sent())
				return
			}
			require.LessOrEqual(t, *last.RetryWait, apptest.Backoff.Ceiling(1))
			next := w.Store.RowOf(task.JobID)
			require.Equal(t, job.Queued, next.State)
			require.Equal(t, []job.Task{{JobID: task.JobID, Attempt: 2, RunAt: next.RunAt}}, apptest.Named(w.Queue.Sent()))
			require.Equal(t, 1.0, w.Metric(w.Metrics.Retried.WithLabelValues("auto")))
			require.Equal(t, 2.0, w.Logged(task, "auto_retry", "FAILED", "QUEUED")["attempt"])
		})
	}
}

// cancel is what the API does: the state first, then the signal.
func (w *world) cancel(task job.Task) {
	w.Happens(task, job.Canceled)
	w.worker.Canceled(task.JobID)
}

// Promise: patterns Lifecycle States, Cancellation
func TestCancelDuringRun(t *testing.T) {
	for name, test := range map[string]struct {
		cancel func(*world, job.Task)
		within time.Duration
	}{
		"at once": {(*world).cancel, 0},
		"without a signal, with the next heartbeat": {func(w *world, task job.Task) { w.Happens(task, job.Canceled) }, apptest.Heartbeat},
	} {
		run(t, name, apptest.Takes(time.Minute), func(t *testing.T, w *world) {
			task, other := w.Add(), w.Add()
			handled, unharmed := w.handling(task), w.handling(other)
			began := time.Now()
			test.cancel(w, task)
			require.NoError(t, <-handled)
			require.LessOrEqual(t, time.Since(began), test.within)
			require.Zero(t, w.Store.Count("Finish"), "it says nothing")
			require.NoError(t, <-unharmed)
			w.Ended(other, job.Succeeded)
		})
	}
}

// Promise: patterns Lifecycle States, Cancellation
func TestCancelThatComesTooLate(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
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
	working(t, nil, func(t *testing.T, w *world) {
		task := w.Add()
		w.Store.Hook("Finish", apptest.Hook{Before: apptest.Fails(20, apptest.ErrStorage)})
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)
		require.Equal(t, 21, w.Store.Count("Finish"))

		task = w.Add()
		w.Store.Hook("Finish", apptest.Hook{After: apptest.Fails(1, apptest.ErrStorage)})
		require.NoError(t, w.handle(task))
		w.Ended(task, job.Succeeded)
		require.Equal(t, 1.0, w.Metric(w.Metrics.FencedWrites.WithLabelValues("finish")), "an answer that is lost is written once")
	})
}

func TestFinishAfterTheJobWasTakenAwaySaysNothing(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
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

// Promise: contract 14e
func TestAnOutcomeThatCannotBeStoredIsAFailure(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
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
	working(t, apptest.Takes(time.Second), func(t *testing.T, w *world) {
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
