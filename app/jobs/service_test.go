package jobs

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// service makes the use cases of clients; limit bounds active and queued jobs.
func (w *worldJobs) service(limit int, change ...func(*Config)) *Service {
	cfg := Config{Catalogue: testCatalogue, MaxAttempts: 4, Backoff: apptest.Backoff}
	for _, f := range change {
		f(&cfg)
	}
	capacity := NewCapacity(oneClient(limit, limit), w.Store, w.Logger)
	return New(cfg, Deps{
		Jobs: w.Store, Reader: w.Store, Batches: w.Store, Queue: w.Queue, Progress: w.Queue,
		Capacity: capacity, Hub: w.hub, Completer: w.completer, Metrics: w.Metrics, Log: w.Logger,
	})
}

// nothingDone asserts that a refused submission left no trace.
func (w *worldJobs) nothingDone() {
	w.T.Helper()
	require.Empty(w.T, w.Store.Rows)
	require.Empty(w.T, w.Queue.Sent())
	for _, kind := range job.Kinds() {
		require.Zero(w.T, w.Metric(w.Metrics.Submitted.WithLabelValues(string(kind))))
		require.Zero(w.T, w.Metric(w.Metrics.Queued.WithLabelValues(string(kind))))
	}
	require.Empty(w.T, w.Log.Lines(w.T, map[string]any{"msg": "job transition"}))
}

func TestSubmit(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		receipt, err := s.Submit(context.Background(), newRequest(func(r *job.Request) {
			r.AutoRetry, r.Callback, r.CorrelationID, r.TraceParent, r.Language = true, "https://example.com", "c", "tp", "en"
			r.Params = []byte(`{"a":1}`)
		}))
		require.NoError(t, err)
		require.Equal(t, job.Queued, receipt.State)
		require.False(t, receipt.Replayed)

		j := w.Store.RowOf(receipt.JobID).Job
		require.Equal(t, definitionFor(t, time.Now()), j.Definition, "the request's moment is the seed")
		require.Equal(t, []any{apptest.ClientA, job.Execute, job.SuccessFast, 4, true, "https://example.com", "c", "tp", "en", "request-1",
			`{"a":1}`},
			[]any{j.ClientID, j.Type, j.WorkKind, j.MaxAttempts, j.AutoRetry, j.Callback, j.CorrelationID, j.TraceParent, j.Language, j.RequestID,
				string(j.Params)})
		require.Equal(t, []job.Task{{JobID: receipt.JobID, Attempt: 1, TraceParent: "tp", ClientID: apptest.ClientA, WorkKind: job.SuccessFast}},
			w.Queue.Sent())
		require.Equal(t, 1.0, w.Metric(w.Metrics.Submitted.WithLabelValues("SUCCESS_FAST")))
		require.Equal(t, 1.0, w.Metric(w.Metrics.Queued.WithLabelValues("SUCCESS_FAST")))
		w.Logged(job.Task{JobID: receipt.JobID}, "submit", "", "CREATED")
		w.Logged(job.Task{JobID: receipt.JobID}, "submit", "CREATED", "QUEUED")
	})
}

func definitionFor(t *testing.T, at time.Time) *job.Definition {
	d, err := testCatalogue.Define(job.Execute, job.SuccessFast, at, nil)
	require.NoError(t, err)
	return &d
}

func TestSubmitDrawsAKind(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		receipt, err := w.service(10).Submit(context.Background(), newRequest(func(r *job.Request) { r.WorkKind = "" }))
		require.NoError(t, err)
		j := w.Store.RowOf(receipt.JobID).Job
		require.True(t, j.WorkKind.Valid())
		require.Equal(t, j.WorkKind, j.Definition.WorkKind)
	})
}

// A deferred job is in the queue from its commit on, also one far ahead: the queue knows how many it has room for.
func TestSubmitDispatchesDeferredJobs(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		far, err := s.Submit(context.Background(), newRequest(deferred(1000*time.Hour)))
		require.NoError(t, err)
		require.Equal(t, job.Created, far.State)
		near, err := s.Submit(context.Background(), newRequest(deferred(time.Second)))
		require.NoError(t, err)
		sent := w.Queue.Sent()
		require.Len(t, sent, 2)
		for i, id := range []job.ID{far.JobID, near.JobID} {
			row := w.Store.RowOf(id)
			require.Equal(t, job.Task{
				JobID: id, Attempt: 1, RunAt: row.RunAt, ClientID: row.ClientID, WorkKind: row.WorkKind,
			}, sent[i])
		}
		require.Zero(t, w.Metric(w.Metrics.Queued.WithLabelValues("SUCCESS_FAST")), "a deferred job is not queued yet")
		require.Equal(t, 2.0, w.Metric(w.Metrics.Submitted.WithLabelValues("SUCCESS_FAST")))
	})
}

func TestSubmitTellsEverythingThatIsWrong(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		_, err := w.service(10).Submit(context.Background(), newRequest(deferred(-time.Hour), withKey("k"), func(r *job.Request) {
			r.Type, r.WorkKind, r.Emit = job.Execute, job.PayloadInvalid, &job.Emission{Name: "x"}
			r.Violations = []job.Violation{{Pointer: "/callback", Detail: "Not a URL."}}
		}))
		var invalid *job.Error
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, job.CodeValidationFailed, invalid.Code)
		var pointers []string
		for _, v := range invalid.Violations {
			pointers = append(pointers, v.Pointer)
		}
		require.ElementsMatch(t, []string{"/callback", "/work_kind", "/execution_at", "/event"}, pointers)
		w.nothingDone()
	})
}

// A request of the wrong form is refused with its form, its values and its
// time, all together.
func TestSubmitTellsFormAndValuesTogether(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		_, err := w.service(10).Submit(context.Background(), newRequest(deferred(-time.Hour), withKey("k"), func(r *job.Request) {
			r.WorkKind, r.Malformed = job.PayloadInvalid, true
			r.Violations = []job.Violation{{Pointer: "/colour", Detail: "Not known."}}
		}))
		var refusal *job.Error
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, job.CodeMalformed, refusal.Code)
		var pointers []string
		for _, v := range refusal.Violations {
			pointers = append(pointers, v.Pointer)
		}
		require.Equal(t, []string{"/colour", "/work_kind", "/execution_at"}, pointers)
		w.nothingDone()
	})
}

// TestOnlyLatenessIsForgivenToARepetition: with another fault it is refused,
// although its key is known.
func TestOnlyLatenessIsForgivenToARepetition(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		r := newRequest(deferred(time.Minute), withKey("k"))
		first, err := s.Submit(context.Background(), r)
		require.NoError(t, err)
		apptest.Pass(time.Hour)
		again, err := s.Submit(context.Background(), r)
		require.NoError(t, err)
		require.Equal(t, first.JobID, again.JobID)
		r.Violations = []job.Violation{{Pointer: "/colour", Detail: "Not known."}}
		for malformed, code := range map[bool]job.Code{true: job.CodeMalformed, false: job.CodeValidationFailed} {
			r.Malformed = malformed
			_, err := s.Submit(context.Background(), r)
			var refusal *job.Error
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, code, refusal.Code)
			require.Len(t, refusal.Violations, 2, "the time as well")
		}
	})
}

func TestSubmitRefusesWhatTheCatalogueDoesNotHave(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10, func(c *Config) { c.Catalogue.Kinds = []job.Kind{job.PayloadInvalid} })
		for _, kind := range []job.Kind{job.SuccessFast, ""} {
			_, err := s.Submit(context.Background(), newRequest(func(r *job.Request) { r.WorkKind = kind }))
			require.Equal(t, job.CodeValidationFailed, job.CodeOf(err), "kind %q", kind)
		}
		w.nothingDone()
		require.Zero(t, s.capacity.mine, "the room was given back")
	})
}

func TestSubmitRefusesThePast(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		for _, late := range []time.Duration{-time.Second - time.Microsecond, -time.Hour} {
			_, err := s.Submit(context.Background(), newRequest(deferred(late), withKey("k")))
			var invalid *job.Error
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, "/execution_at", invalid.Violations[0].Pointer)
		}
		w.nothingDone()
		for _, given := range []time.Duration{-time.Second, -time.Microsecond, 0, time.Microsecond} {
			r := newRequest(deferred(given))
			receipt, err := s.Submit(context.Background(), r)
			require.NoError(t, err)
			require.Equal(t, *r.ExecutionAt, *w.Store.RowOf(receipt.JobID).ExecutionAt, "as the client gave it")
			require.NotEmpty(t, w.Queue.Sent(), "it is dispatched at once")
		}
	})
}

func TestSubmitReplays(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(1)
		r := newRequest(deferred(time.Minute), withKey("k"))
		first, err := s.Submit(context.Background(), r)
		require.NoError(t, err)
		apptest.Pass(2 * time.Minute)

		again := func(what string) {
			t.Helper()
			receipt, err := s.Submit(context.Background(), r)
			require.NoError(t, err, what)
			want := first
			want.Replayed = true
			require.Equal(t, want, receipt, what)
		}
		again("although it is late")
		r.ExecutionAt = new(time.Time)
		*r.ExecutionAt = time.Now().Add(time.Hour)
		again("although the server is full")
		s.capacity.maxActive, s.capacity.maxQueued = 100, 100
		again("and in the usual case")
		require.Equal(t, 1, s.capacity.mine.Active, "a replay takes no room")

		r.Hash[0]++
		for what, change := range map[string]func(){
			"usual": func() {},
			"full":  func() { s.capacity.maxActive = 0 },
			"late":  func() { *r.ExecutionAt = time.Now().Add(-time.Hour) },
		} {
			change()
			_, err := s.Submit(context.Background(), r)
			require.Equal(t, job.CodeIdempotencyConflict, job.CodeOf(err), what)
		}
		require.Len(t, w.Store.Rows, 1)
		require.Len(t, w.Queue.Sent(), 1)
		require.Equal(t, 3.0, w.Metric(w.Metrics.IdempotencyHits))
		require.Equal(t, 1.0, w.Metric(w.Metrics.Submitted.WithLabelValues("SUCCESS_FAST")))
	})
}

func TestSubmitReportsStorageTrouble(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(1)
		w.Store.Hook("InsertJob", apptest.Hook{Before: apptest.Fails(5, apptest.ErrStorage)})
		for range 5 {
			_, err := s.Submit(context.Background(), newRequest())
			require.Equal(t, job.CodeStorageUnavailable, job.CodeOf(err))
		}
		w.nothingDone()
		w.Store.Hook("FindReceipt", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		_, err := s.Submit(context.Background(), newRequest(deferred(-time.Hour), withKey("k")))
		require.Equal(t, job.CodeStorageUnavailable, job.CodeOf(err), "whether it was accepted before cannot be told")
		_, err = s.Submit(context.Background(), newRequest())
		require.NoError(t, err, "failed ones take no room")
	})
}

func TestSubmitWhoseAnswerIsLostIsFoundByItsKey(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		w.Store.Hook("InsertJob", apptest.Hook{After: apptest.Fails(1, apptest.ErrStorage)})
		r := newRequest(withKey("k"))
		_, err := s.Submit(context.Background(), r)
		require.Error(t, err)
		require.Empty(t, w.Queue.Sent(), "only what is known to be committed is enqueued")
		receipt, err := s.Submit(context.Background(), r)
		require.NoError(t, err)
		require.True(t, receipt.Replayed)
		require.Len(t, w.Store.Rows, 1)
	})
}

func TestCancel(t *testing.T) {
	for _, state := range job.States {
		t.Run(string(state), func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorldJobs(t)
				s := w.service(10)
				task := w.Add(func(r *apptest.Row) { r.State = state })
				change, err := s.Cancel(context.Background(), apptest.ClientA, task.JobID)
				require.NoError(t, err)
				require.Equal(t, !state.Final(), change.Changed)
				if state.Held() {
					require.Equal(t, []job.ID{task.JobID}, w.Queue.Signaled())
				} else {
					require.Empty(t, w.Queue.Signaled())
				}
				if state.Final() {
					require.Equal(t, state, change.State)
					require.Empty(t, w.Log.Lines(t, map[string]any{"action": "cancel"}))
					require.Zero(t, w.Metric(w.Metrics.Canceled.WithLabelValues("SUCCESS_FAST")))
					return
				}
				require.Equal(t, job.Canceled, change.State)
				w.Logged(task, "cancel", string(state), "CANCELED")

				again, err := s.Cancel(context.Background(), apptest.ClientA, task.JobID)
				require.NoError(t, err)
				require.Equal(t, job.Canceled, again.State)
				require.False(t, again.Changed)
				require.Equal(t, 1.0, w.Metric(w.Metrics.Canceled.WithLabelValues("SUCCESS_FAST")))
			})
		})
	}
}

func TestRetry(t *testing.T) {
	want := map[job.State]job.Code{job.Succeeded: job.CodeConflict, job.Canceled: job.CodeConflict}
	for _, state := range job.States {
		t.Run(string(state), func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorldJobs(t)
				task := w.Add(func(r *apptest.Row) { apptest.FailedJob(r); r.State = state })
				change, err := w.service(10).Retry(context.Background(), apptest.ClientA, task.JobID)
				if code := want[state]; code != "" {
					require.Equal(t, code, job.CodeOf(err))
				} else {
					require.NoError(t, err)
				}
				if state != job.Failed {
					require.False(t, change.Changed)
					require.Zero(t, w.Store.Count("Retry"))
					require.Empty(t, w.Queue.Sent())
					require.Empty(t, w.Log.Lines(t, map[string]any{"action": "retry"}))
					return
				}
				require.Equal(t, job.Queued, change.State)
				require.Equal(t, 2, change.Attempt)
				require.LessOrEqual(t, time.Until(change.RunAt), apptest.Backoff.Ceiling(1))
				require.Equal(t, []job.Task{{JobID: task.JobID, Attempt: 2, RunAt: change.RunAt}}, apptest.Named(w.Queue.Sent()))
				require.Equal(t, 1.0, w.Metric(w.Metrics.Retried.WithLabelValues("client")))
				require.Equal(t, 1.0, w.Metric(w.Metrics.Queued.WithLabelValues("SUCCESS_FAST")))
				w.Logged(task, "retry", "FAILED", "QUEUED")
			})
		})
	}
}

func TestRetryOfTheLastAttempt(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		task := w.Add(apptest.FailedJob, func(r *apptest.Row) { r.Attempt = r.MaxAttempts })
		_, err := w.service(10).Retry(context.Background(), apptest.ClientA, task.JobID)
		require.Equal(t, job.CodeConflict, job.CodeOf(err))
		require.Equal(t, job.Failed, w.Store.RowOf(task.JobID).State)
	})
}

func TestRetryOfAFailureThatIsNotRetryable(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		task := w.Add(apptest.FailedJob, func(r *apptest.Row) { r.Failure.Retryable = false })
		_, err := w.service(10).Retry(context.Background(), apptest.ClientA, task.JobID)
		require.Equal(t, job.CodeConflict, job.CodeOf(err))
		require.ErrorContains(t, err, "not retryable")
		require.Equal(t, job.Failed, w.Store.RowOf(task.JobID).State)
		require.Zero(t, w.Store.Count("Retry"))
	})
}

func TestRetryTenAtOnce(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(100)
		task := w.Add(apptest.FailedJob)
		w.Store.Hook("Retry", apptest.Hook{Before: func(context.Context) error { time.Sleep(time.Second); return nil }}) // all have looked
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				change, err := s.Retry(context.Background(), apptest.ClientA, task.JobID)
				if err != nil || change.State != job.Queued || change.Attempt != 2 {
					t.Errorf("got %+v, %v", change, err)
				}
			})
		}
		all.Wait()
		require.Len(t, w.Queue.Sent(), 1)
		require.Equal(t, 1.0, w.Metric(w.Metrics.Retried.WithLabelValues("client")))
		require.Equal(t, job.Load{Active: 1, Queued: 1}, s.capacity.mine)
	})
}

func TestRetryIsSubjectToTheLimits(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(1)
		a, b := w.Add(apptest.FailedJob), w.Add(apptest.FailedJob)
		_, err := s.Retry(context.Background(), apptest.ClientA, a.JobID)
		require.NoError(t, err)
		_, err = s.Retry(context.Background(), apptest.ClientA, b.JobID)
		require.Equal(t, job.CodeQueueFull, job.CodeOf(err))
		require.Equal(t, job.Failed, w.Store.RowOf(b.JobID).State)
		change, err := s.Retry(context.Background(), apptest.ClientA, a.JobID)
		require.NoError(t, err, "what is queued already needs no room")
		require.False(t, change.Changed)
	})
}

func TestRetryReportsStorageTrouble(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(1)
		task := w.Add(apptest.FailedJob)
		for _, operation := range []string{"Job", "Retry"} {
			w.Store.Hook(operation, apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
			_, err := s.Retry(context.Background(), apptest.ClientA, task.JobID)
			require.ErrorIs(t, err, apptest.ErrStorage)
		}
		require.Empty(t, w.Queue.Sent())
		_, err := s.Retry(context.Background(), apptest.ClientA, task.JobID)
		require.NoError(t, err, "the failed one took no room")
	})
}

func TestOtherClientsJobsDoNotExist(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		task := w.Add(apptest.FailedJob)
		ctx := context.Background()
		for what, err := range map[string]error{
			"cancel": second(s.Cancel(ctx, apptest.ClientB, task.JobID)),
			"retry":  second(s.Retry(ctx, apptest.ClientB, task.JobID)),
			"job":    second(s.Job(ctx, apptest.ClientB, task.JobID)),
			"report": second(s.Report(ctx, apptest.ClientB, task.JobID, 0)),
		} {
			require.Equal(t, job.CodeJobNotFound, job.CodeOf(err), what)
		}
		require.Equal(t, job.Failed, w.Store.RowOf(task.JobID).State)
		j, err := s.Job(ctx, apptest.ClientA, task.JobID)
		require.NoError(t, err)
		require.Equal(t, task.JobID, j.ID)
		report, err := s.Report(ctx, apptest.ClientA, task.JobID, 3)
		require.NoError(t, err)
		require.Equal(t, 3, report.Number)
	})
}

// Beside their time, ids must tell nothing about each other (draft section 9.3).
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
