package jobs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestSubmit(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		receipt := w.submit(s, func(r *job.Request) {
			r.AutoRetry, r.Callback, r.CorrelationID, r.TraceParent, r.Language = true, "https://example.com", "c", "tp", "en"
			r.Params = []byte(`{"a":1}`)
		})
		require.Equal(t, job.Queued, receipt.State)
		require.False(t, receipt.Replayed)

		j := w.Store.RowOf(receipt.JobID).Job
		definition := apptest.Must(testCatalogue.Define(job.Execute, job.SuccessFast, time.Now(), nil))(t)
		require.Equal(t, &definition, j.Definition, "the request's moment is the seed")
		require.Equal(t, []any{apptest.ClientA, job.Execute, job.SuccessFast, 4, true, "https://example.com", "c", "tp", "en", "request-1",
			`{"a":1}`},
			[]any{j.ClientID, j.Type, j.WorkKind, j.MaxAttempts, j.AutoRetry, j.Callback, j.CorrelationID, j.TraceParent, j.Language, j.RequestID,
				string(j.Params)})
		require.Equal(t, []job.Task{{JobID: receipt.JobID, Attempt: 1, TraceParent: "tp", ClientID: apptest.ClientA, WorkKind: job.SuccessFast}},
			w.Queue.Sent())
		require.Equal(t, []job.Notification{apptest.Event(job.Task{JobID: receipt.JobID})}, w.Queue.Notifications())
		require.Equal(t, []float64{1, 1}, []float64{w.Sum("jobs_submitted_total"), w.Sum("jobs_queued_total")})
		w.Logged(job.Task{JobID: receipt.JobID}, "submit", "", "CREATED")
		w.Logged(job.Task{JobID: receipt.JobID}, "submit", "CREATED", "QUEUED")
	})
}

// Promise: contract 6a
func TestSubmitDrawsAKind(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		j := w.Store.RowOf(w.submit(s, ofKind("")).JobID).Job
		require.True(t, j.WorkKind.Valid())
		require.Equal(t, j.WorkKind, j.Definition.WorkKind)
	})
}

// A deferred job is in the queue from its commit on, also one far ahead: the queue knows how many it has room for.
func TestSubmitDispatchesDeferredJobs(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		receipt := w.submit(s, deferred(1000*time.Hour))
		require.Equal(t, job.Created, receipt.State)
		row := w.Store.RowOf(receipt.JobID)
		require.Equal(t, []job.Task{{JobID: receipt.JobID, Attempt: 1, RunAt: row.RunAt, ClientID: row.ClientID, WorkKind: row.WorkKind}},
			w.Queue.Sent())
		require.Equal(t, []float64{1, 0}, []float64{w.Sum("jobs_submitted_total"), w.Sum("jobs_queued_total")}, "it is not queued yet")
	})
}

// What is wrong with a request is told together: its form, its values and its time.
// Promise: contract 14a
func TestSubmitTellsEverythingThatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*job.Request)
		code   job.Code
		want   []string
	}{
		"values": {func(r *job.Request) {
			flawed("/callback", false)(r)
			r.Type, r.WorkKind, r.Emit = job.Execute, job.PayloadInvalid, &job.Emission{Name: "x"}
		}, job.CodeValidationFailed, []string{"/callback", "/work_kind", "/execution_at", "/event"}},
		"form and values": {func(r *job.Request) {
			flawed("/colour", true)(r)
			r.WorkKind = job.PayloadInvalid
		}, job.CodeMalformed, []string{"/colour", "/work_kind", "/execution_at"}},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorldJobs(t)
			refusal := w.refused(w.service(10), deferred(-time.Hour), withKey("k"), c.change)
			require.Equal(t, c.code, refusal.Code)
			require.ElementsMatch(t, c.want, pointers(refusal.Violations))
			w.nothingDone()
		})
	}
}

// Promise: contract 10
func TestSubmitRefusesThePast(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		for _, late := range []time.Duration{-time.Second - time.Microsecond, -time.Hour} {
			require.Equal(t, []string{"/execution_at"}, pointers(w.refused(s, deferred(late), withKey("k")).Violations))
		}
		w.nothingDone()
		for _, given := range []time.Duration{-time.Second, 0} {
			at := time.Now().Add(given)
			receipt := w.submit(s, deferred(given))
			require.Equal(t, at, *w.Store.RowOf(receipt.JobID).ExecutionAt, "as the client gave it")
			require.NotEmpty(t, w.Queue.Sent(), "it is dispatched at once")
		}
	})
}

func TestExecutionTimeHasAHorizon(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldJobs) {
		s := w.service(10, func(c *Config) { c.MaxAhead = 24 * time.Hour })
		w.submit(s, deferred(24*time.Hour))
		wrong := w.refused(s, deferred(24*time.Hour+time.Second))
		require.Equal(t, job.CodeValidationFailed, wrong.Code)
		require.Equal(t, []string{"/execution_at"}, pointers(wrong.Violations))
		require.Contains(t, wrong.Violations[0].Detail, "too far in the future")
	})
}

// That one key makes one job is the storage's promise. Here: whom it is asked for, and what its answer leads to.
func TestSubmitReplays(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldJobs) {
		s := w.service(1)
		r := newRequest(deferred(time.Minute), withKey("k"))
		first := apptest.Must(s.Submit(context.Background(), r))(t)
		apptest.Pass(2 * time.Minute)
		w.Queue.Notifications()
		for _, step := range []struct {
			what   string
			change func()
		}{
			{"although it is late", func() {}},
			{"although the server is full", deferAgain(&r)},
			{"in the usual case", func() { s.limit(100) }},
		} {
			step.change()
			receipt := apptest.Must(s.Submit(context.Background(), r))(t)
			require.Equal(t, job.Receipt{JobID: first.JobID, State: first.State, CreatedAt: first.CreatedAt, Replayed: true}, receipt, step.what)
		}
		require.Equal(t, 1, w.held(s).Active, "a replay takes no room")

		w.Store.conflict = job.Errorf(job.CodeIdempotencyConflict, "This idempotency key was used for a different request.")
		for _, active := range []int{100, 0} {
			s.limit(active)
			require.ErrorIs(t, second(s.Submit(context.Background(), r)), w.Store.conflict)
		}
		w.Store.conflict = nil
		*r.ExecutionAt = time.Now().Add(-time.Hour)
		for malformed, code := range map[bool]job.Code{true: job.CodeMalformed, false: job.CodeValidationFailed} {
			flawed("/colour", malformed)(&r)
			var refusal *job.Error
			require.ErrorAs(t, second(s.Submit(context.Background(), r)), &refusal, "only lateness is forgiven to a repetition")
			require.Equal(t, code, refusal.Code)
			require.Len(t, refusal.Violations, 2, "the time as well")
		}
		require.Len(t, w.Queue.Sent(), 1)
		require.Empty(t, w.Queue.Notifications())
		require.Equal(t, 3.0, w.Metric(w.Metrics.IdempotencyHits))
		require.Equal(t, 1.0, w.Sum("jobs_submitted_total"))
	})
}

// deferAgain gives a request a time that is to come.
func deferAgain(r *job.Request) func() { return func() { deferred(time.Hour)(r) } }

func TestSubmitReportsStorageTrouble(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldJobs) {
		s := w.service(10)
		w.Store.Hook("InsertJob", apptest.Hook{Before: apptest.Fails(2, apptest.ErrStorage)})
		for range 2 {
			require.Equal(t, job.CodeStorageUnavailable, w.refused(s).Code)
		}
		w.Store.Hook("FindReceipt", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		require.Equal(t, job.CodeStorageUnavailable, w.refused(s, deferred(-time.Hour), withKey("k")).Code, "whether it was accepted is unknown")
		w.nothingDone()
		w.Store.Hook("InsertJob", apptest.Hook{After: apptest.Fails(1, apptest.ErrStorage)})
		require.Equal(t, job.CodeStorageUnavailable, w.refused(s, withKey("k")).Code)
		require.Empty(t, w.Queue.Sent(), "only what is known to be committed is enqueued")
		require.Empty(t, w.Queue.Notifications())
		require.True(t, w.submit(s, withKey("k")).Replayed, "the lost answer is found by its key")
		w.submit(s)
		require.Len(t, w.Store.Rows, 2, "what failed took no room")
	})
}

func TestCancel(t *testing.T) {
	for _, state := range job.States {
		run(t, string(state), func(t *testing.T, w *worldJobs, s *Service) {
			began := time.Now()
			task := w.Add(inState(state), func(r *apptest.Row) { r.Attempt, r.StartedAt = 2, &began })
			apptest.Pass(3 * time.Second)
			want := state
			if !state.Final() {
				want = job.Canceled
			}
			for _, changed := range []bool{!state.Final(), false} { // a repetition finds nothing to do
				change := apptest.Must(s.Cancel(context.Background(), apptest.ClientA, task.JobID))(t)
				require.Equal(t, []any{changed, want}, []any{change.Changed, change.State})
			}
			require.Equal(t, state.Held(), len(w.Queue.Signaled()) == 1)
			if state.Final() {
				require.Empty(t, w.Log.Lines(t, map[string]any{"action": "cancel"}))
				require.Empty(t, w.Queue.Notifications())
				require.Zero(t, w.Sum("jobs_canceled_total"))
				return
			}
			require.Equal(t, []job.Notification{apptest.End(task)}, w.Queue.Notifications())
			w.Logged(task, "cancel", string(state), "CANCELED")
			require.Equal(t, 1.0, w.Metric(w.Metrics.Canceled.WithLabelValues("SUCCESS_FAST")))
			require.Equal(t, 1.0, w.Metric(w.Metrics.RetryOutcomes.WithLabelValues("CANCELED")))
			n, sum := w.Executions(job.Canceled)
			require.Equal(t, state == job.Running, n == 1 && sum == 3, "only what ran took time")
		})
	}
}

func TestRetry(t *testing.T) {
	for _, state := range job.States {
		apptest.Run(t, string(state), func(t *testing.T) {
			w := newWorldJobs(t)
			old := w.Traceparent()
			task := w.Add(apptest.FailedJob, inState(state), func(r *apptest.Row) { r.TraceParent = old })
			change, err := w.service(10).Retry(context.Background(), apptest.ClientA, task.JobID)
			require.NoError(t, err)
			if state != job.Failed {
				require.False(t, change.Changed)
				w.notRetried()
				require.Zero(t, w.Store.Count("Retry"))
				return
			}
			require.Equal(t, []any{job.Queued, 2}, []any{change.State, change.Attempt})
			require.LessOrEqual(t, time.Until(change.RunAt), apptest.Backoff.Ceiling(1))
			require.Equal(t, []job.Task{{JobID: task.JobID, Attempt: 2, RunAt: change.RunAt, TraceParent: old}}, apptest.Named(w.Queue.Sent()),
				"what nobody traces stays with the first trace")
			require.Equal(t, []job.Notification{apptest.Event(task)}, w.Queue.Notifications())
			require.Equal(t, 1.0, w.Metric(w.Metrics.Retried.WithLabelValues("client")))
			require.Equal(t, 1.0, w.Sum("jobs_queued_total"))
			w.Logged(task, "retry", "FAILED", "QUEUED")
		})
	}
}

// notRetried asserts that a retry had no effect.
func (w *worldJobs) notRetried() {
	w.T.Helper()
	require.Empty(w.T, w.Queue.Sent())
	require.Empty(w.T, w.Queue.Notifications())
	require.Zero(w.T, w.Sum("job_retries_total"))
	require.Empty(w.T, w.Log.Lines(w.T, map[string]any{"action": "retry"}))
}

// Promise: contract 11
func TestRetryThatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*apptest.Row)
		says   string
		reason string
	}{
		"the last attempt": {func(r *apptest.Row) { r.Attempt = r.MaxAttempts }, "attempt", "ATTEMPTS_EXHAUSTED"},
		"not retryable":    {func(r *apptest.Row) { r.Failure.Retryable = false }, "not retryable", "NOT_RETRYABLE"},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorldJobs(t)
			_, err := w.service(10).Retry(context.Background(), apptest.ClientA, w.Add(apptest.FailedJob, c.change).JobID)
			refusal, _ := errors.AsType[*job.Error](err)
			require.NotNil(t, refusal)
			require.Equal(t, []any{job.CodeConflict, job.Failed, c.reason}, []any{refusal.Code, refusal.State, refusal.Reason})
			require.ErrorContains(t, err, c.says)
			require.Zero(t, w.Store.Count("Retry"))
			w.notRetried()
		})
	}
}

// A retry that finds the job changed by another says nothing, and gives the room back. An unknown outcome keeps its room for a while.
func TestRetryWithoutEffect(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldJobs) {
		s := w.service(3)
		task := w.Add(apptest.FailedJob)
		for _, operation := range []string{"Job", "Retry"} {
			w.Store.Hook(operation, apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
			require.ErrorIs(t, second(s.Retry(context.Background(), apptest.ClientA, task.JobID)), apptest.ErrStorage)
		}
		w.Store.Hook("Retry", apptest.Hook{Before: func(context.Context) error {
			w.Store.Change(task.JobID, func(r *apptest.Row) { w.Store.Requeue(r, 0) })
			return nil
		}})
		change := apptest.Must(s.Retry(context.Background(), apptest.ClientA, task.JobID))(t)
		require.Equal(t, []any{false, job.Queued, 2}, []any{change.Changed, change.State, change.Attempt})
		w.notRetried()

		w.Store.Hook("Retry", apptest.Hook{})
		failed := w.Add(apptest.FailedJob)
		require.NoError(t, second(s.Retry(context.Background(), apptest.ClientA, failed.JobID)), "there is room")
		require.Equal(t, job.CodeQueueFull, job.CodeOf(second(s.Retry(context.Background(), apptest.ClientA, w.Add(apptest.FailedJob).JobID))))
		require.NoError(t, second(s.Retry(context.Background(), apptest.ClientA, failed.JobID)), "what is queued already needs none")
	})
}

// Beside their time, ids must tell nothing about each other (draft section 9.3).
// Promise: contract 5, 3.2
// Promise: draft 9.3
func TestIDsCannotBeGuessed(t *testing.T) {
	t.Parallel()
	const ids = 10_000
	random, ones := map[[8]byte]bool{}, [64]int{}
	for range ids {
		id := app.NewID()
		require.Equal(t, byte(7), id[6]>>4, "the version")
		tail := [8]byte(id[8:])
		require.False(t, random[tail], "the random part repeats")
		random[tail] = true
		for bit := range ones {
			ones[bit] += int(tail[bit/8]>>(7-bit%8)) & 1
		}
	}
	for bit, n := range ones[2:] { // the first two are the variant
		require.InDelta(t, ids/2, n, ids/10, "bit %d is not random", bit+2)
	}
}

// Promise: contract 11
func TestMaxAttemptsHasALimit(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		asks := func(n int) func(*job.Request) {
			return func(r *job.Request) { r.Retry = &job.RetryPolicy{MaxAttempts: n} }
		}
		for _, n := range []int{5, 9, 100} {
			wrong := w.refused(s, asks(n))
			require.Equal(t, job.CodeValidationFailed, wrong.Code)
			require.Equal(t, []string{"/retry/max_attempts"}, pointers(wrong.Violations))
			require.Contains(t, wrong.Violations[0].Detail, "at most 4 attempts")
		}
		w.nothingDone()
		require.Equal(t, 4, w.Store.RowOf(w.submit(s, asks(4)).JobID).MaxAttempts)
		require.Equal(t, 1, w.Store.RowOf(w.submit(s, asks(1)).JobID).MaxAttempts)

		r := job.Request{ClientID: apptest.ClientA, Type: job.Execute, WorkKind: job.SuccessFast, Retry: &job.RetryPolicy{MaxAttempts: 9}}
		scheduled := NewScheduled(s, nil)
		violations, err := scheduled.Check(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, []string{"/retry/max_attempts"}, pointers(violations))
		j, done, err := scheduled.Prepare(t.Context(), app.NewID(), r)
		require.NoError(t, err, "the limit was lowered after the schedule was stored")
		done(false, nil)
		require.Equal(t, 4, j.MaxAttempts)
		require.Equal(t, 9, r.Retry.MaxAttempts, "the schedule keeps what was asked for")
	})
}
