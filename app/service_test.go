package app

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

var testCatalogue = job.Catalogue{Types: job.Types, Kinds: job.Kinds(), FailProbability: 0.2, MaxRuntime: testLimit}

// service makes the use cases of clients; limit bounds active and queued jobs.
func (w *worldJobs) service(limit int, change ...func(*ServiceConfig)) *Service {
	cfg := ServiceConfig{Catalogue: testCatalogue, MaxAttempts: 4, Backoff: testBackoff}
	for _, f := range change {
		f(&cfg)
	}
	capacity := NewCapacity(limit, limit, w.store, w.logger)
	return NewService(cfg, ServiceDeps{
		Jobs: w.store, Reader: w.store, Batches: w.store, Queue: w.queue, Progress: w.queue,
		Capacity: capacity, Hub: w.hub, Settler: w.settler, Metrics: w.metrics, Log: w.logger,
	})
}

func request(change ...func(*job.Request)) job.Request {
	r := job.Request{
		ClientID: clientA, RequestID: "request-1", ReceivedAt: time.Now(), Type: job.Execute, WorkKind: job.SuccessFast, Hash: [32]byte{1},
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func deferred(d time.Duration) func(*job.Request) {
	return func(r *job.Request) {
		at := time.Now().Add(d)
		r.Type, r.ExecutionAt = job.Deferred, &at
	}
}

func withKey(key string) func(*job.Request) {
	return func(r *job.Request) { r.IdempotencyKey = key }
}

// nothingDone asserts that a refused submission left no trace.
func (w *worldJobs) nothingDone() {
	w.t.Helper()
	require.Empty(w.t, w.store.jobs)
	require.Empty(w.t, w.queue.sent())
	for _, kind := range job.Kinds() {
		require.Zero(w.t, w.metric(w.metrics.submitted.WithLabelValues(string(kind))))
		require.Zero(w.t, w.metric(w.metrics.queued.WithLabelValues(string(kind))))
	}
	require.Empty(w.t, w.log.lines(w.t, map[string]any{"msg": "job transition"}))
}

func TestSubmit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		receipt, err := s.Submit(context.Background(), request(func(r *job.Request) {
			r.AutoRetry, r.Callback, r.CorrelationID, r.TraceParent, r.Language = true, "https://example.com", "c", "tp", "en"
			r.Params = []byte(`{"a":1}`)
		}))
		require.NoError(t, err)
		require.Equal(t, job.Queued, receipt.State)
		require.False(t, receipt.Replayed)

		j := w.store.job(receipt.JobID).Job
		require.Equal(t, definitionFor(t, time.Now()), j.Definition, "the request's moment is the seed")
		require.Equal(t, []any{clientA, job.Execute, job.SuccessFast, 4, true, "https://example.com", "c", "tp", "en", "request-1", `{"a":1}`},
			[]any{j.ClientID, j.Type, j.WorkKind, j.MaxAttempts, j.AutoRetry, j.Callback, j.CorrelationID, j.TraceParent, j.Language, j.RequestID, string(j.Params)})
		require.Equal(t, []job.Task{{JobID: receipt.JobID, Attempt: 1, TraceParent: "tp"}}, w.queue.sent())
		require.Equal(t, 1.0, w.metric(w.metrics.submitted.WithLabelValues("SUCCESS_FAST")))
		require.Equal(t, 1.0, w.metric(w.metrics.queued.WithLabelValues("SUCCESS_FAST")))
		w.logged(job.Task{JobID: receipt.JobID}, "submit", "", "CREATED")
		w.logged(job.Task{JobID: receipt.JobID}, "submit", "CREATED", "QUEUED")
	})
}

func definitionFor(t *testing.T, at time.Time) *job.Definition {
	d, err := testCatalogue.Define(job.Execute, job.SuccessFast, at, nil)
	require.NoError(t, err)
	return &d
}

func TestSubmitDrawsAKind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		receipt, err := w.service(10).Submit(context.Background(), request(func(r *job.Request) { r.WorkKind = "" }))
		require.NoError(t, err)
		j := w.store.job(receipt.JobID).Job
		require.True(t, j.WorkKind.Valid())
		require.Equal(t, j.WorkKind, j.Definition.WorkKind)
	})
}

func TestSubmitDispatchesWithinTheHorizonOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		far, err := s.Submit(context.Background(), request(deferred(directHorizon)))
		require.NoError(t, err)
		require.Equal(t, job.Created, far.State)
		require.Empty(t, w.queue.sent(), "the relay will")

		near, err := s.Submit(context.Background(), request(deferred(directHorizon-time.Second)))
		require.NoError(t, err)
		require.Equal(t, []job.Task{{JobID: near.JobID, Attempt: 1, RunAt: time.Now().Add(directHorizon - time.Second)}}, w.queue.sent())
		require.Zero(t, w.metric(w.metrics.queued.WithLabelValues("SUCCESS_FAST")), "a deferred job is not queued yet")
		require.Equal(t, 2.0, w.metric(w.metrics.submitted.WithLabelValues("SUCCESS_FAST")))
	})
}

func TestSubmitTellsEverythingThatIsWrong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		_, err := w.service(10).Submit(context.Background(), request(deferred(-time.Hour), withKey("k"), func(r *job.Request) {
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
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		_, err := w.service(10).Submit(context.Background(), request(deferred(-time.Hour), withKey("k"), func(r *job.Request) {
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
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		r := request(deferred(time.Minute), withKey("k"))
		first, err := s.Submit(context.Background(), r)
		require.NoError(t, err)
		pass(time.Hour)
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
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10, func(c *ServiceConfig) { c.Catalogue.Kinds = []job.Kind{job.PayloadInvalid} })
		for _, kind := range []job.Kind{job.SuccessFast, ""} {
			_, err := s.Submit(context.Background(), request(func(r *job.Request) { r.WorkKind = kind }))
			require.Equal(t, job.CodeValidationFailed, job.CodeOf(err), "kind %q", kind)
		}
		w.nothingDone()
		require.Zero(t, s.capacity.mine, "the room was given back")
	})
}

func TestSubmitRefusesThePast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		for _, late := range []time.Duration{0, -time.Microsecond, -time.Hour} {
			_, err := s.Submit(context.Background(), request(deferred(late), withKey("k")))
			var invalid *job.Error
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, "/execution_at", invalid.Violations[0].Pointer)
		}
		w.nothingDone()
		_, err := s.Submit(context.Background(), request(deferred(time.Microsecond)))
		require.NoError(t, err)
	})
}

func TestSubmitReplays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(1)
		r := request(deferred(time.Minute), withKey("k"))
		first, err := s.Submit(context.Background(), r)
		require.NoError(t, err)
		pass(2 * time.Minute)

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
			"late":  func() { *r.ExecutionAt = time.Now() },
		} {
			change()
			_, err := s.Submit(context.Background(), r)
			require.Equal(t, job.CodeIdempotencyConflict, job.CodeOf(err), what)
		}
		require.Len(t, w.store.jobs, 1)
		require.Len(t, w.queue.sent(), 0)
		require.Equal(t, 3.0, w.metric(w.metrics.idempotencyHits))
		require.Equal(t, 1.0, w.metric(w.metrics.submitted.WithLabelValues("SUCCESS_FAST")))
	})
}

func TestSubmitReportsStorageTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(1)
		w.store.hook("InsertJob", hook{before: fails(5, errStorage)})
		for range 5 {
			_, err := s.Submit(context.Background(), request())
			require.Equal(t, job.CodeStorageUnavailable, job.CodeOf(err))
		}
		w.nothingDone()
		w.store.hook("FindReceipt", hook{before: fails(1, errStorage)})
		_, err := s.Submit(context.Background(), request(deferred(0), withKey("k")))
		require.Equal(t, job.CodeStorageUnavailable, job.CodeOf(err), "whether it was accepted before cannot be told")
		_, err = s.Submit(context.Background(), request())
		require.NoError(t, err, "failed ones take no room")
	})
}

func TestSubmitWhoseAnswerIsLostIsFoundByItsKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		w.store.hook("InsertJob", hook{after: fails(1, errStorage)})
		r := request(withKey("k"))
		_, err := s.Submit(context.Background(), r)
		require.Error(t, err)
		require.Empty(t, w.queue.sent(), "only what is known to be committed is enqueued")
		receipt, err := s.Submit(context.Background(), r)
		require.NoError(t, err)
		require.True(t, receipt.Replayed)
		require.Len(t, w.store.jobs, 1)
	})
}

func TestCancel(t *testing.T) {
	for _, state := range job.States {
		t.Run(string(state), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorldJobs(t)
				s := w.service(10)
				task := w.add(func(r *row) { r.State = state })
				change, err := s.Cancel(context.Background(), clientA, task.JobID)
				require.NoError(t, err)
				require.Equal(t, !state.Final(), change.Changed)
				if state.Held() {
					require.Equal(t, []job.ID{task.JobID}, w.queue.signaled())
				} else {
					require.Empty(t, w.queue.signaled())
				}
				if state.Final() {
					require.Equal(t, state, change.State)
					require.Empty(t, w.log.lines(t, map[string]any{"action": "cancel"}))
					require.Zero(t, w.metric(w.metrics.canceled.WithLabelValues("SUCCESS_FAST")))
					return
				}
				require.Equal(t, job.Canceled, change.State)
				w.logged(task, "cancel", string(state), "CANCELED")

				again, err := s.Cancel(context.Background(), clientA, task.JobID)
				require.NoError(t, err)
				require.Equal(t, job.Canceled, again.State)
				require.False(t, again.Changed)
				require.Equal(t, 1.0, w.metric(w.metrics.canceled.WithLabelValues("SUCCESS_FAST")))
			})
		})
	}
}

func TestRetry(t *testing.T) {
	want := map[job.State]job.Code{job.Succeeded: job.CodeConflict, job.Canceled: job.CodeConflict}
	for _, state := range job.States {
		t.Run(string(state), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorldJobs(t)
				task := w.add(func(r *row) { r.State = state })
				change, err := w.service(10).Retry(context.Background(), clientA, task.JobID)
				if code := want[state]; code != "" {
					require.Equal(t, code, job.CodeOf(err))
				} else {
					require.NoError(t, err)
				}
				if state != job.Failed {
					require.False(t, change.Changed)
					require.Zero(t, w.store.count("Retry"))
					require.Empty(t, w.queue.sent())
					require.Empty(t, w.log.lines(t, map[string]any{"action": "retry"}))
					return
				}
				require.Equal(t, job.Queued, change.State)
				require.Equal(t, 2, change.Attempt)
				require.LessOrEqual(t, time.Until(change.RunAt), testBackoff.Ceiling(1))
				require.Equal(t, []job.Task{{JobID: task.JobID, Attempt: 2, RunAt: change.RunAt}}, w.queue.sent())
				require.Equal(t, 1.0, w.metric(w.metrics.retried.WithLabelValues("client")))
				require.Equal(t, 1.0, w.metric(w.metrics.queued.WithLabelValues("SUCCESS_FAST")))
				w.logged(task, "retry", "FAILED", "QUEUED")
			})
		})
	}
}

func failedJob(r *row) { r.State = job.Failed }

func TestRetryOfTheLastAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		task := w.add(failedJob, func(r *row) { r.Attempt = r.MaxAttempts })
		_, err := w.service(10).Retry(context.Background(), clientA, task.JobID)
		require.Equal(t, job.CodeConflict, job.CodeOf(err))
		require.Equal(t, job.Failed, w.store.job(task.JobID).State)
	})
}

func TestRetryTenAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(100)
		task := w.add(failedJob)
		w.store.hook("Retry", hook{before: func(context.Context) error { time.Sleep(time.Second); return nil }}) // all have looked
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				change, err := s.Retry(context.Background(), clientA, task.JobID)
				if err != nil || change.State != job.Queued || change.Attempt != 2 {
					t.Errorf("got %+v, %v", change, err)
				}
			})
		}
		all.Wait()
		require.Len(t, w.queue.sent(), 1)
		require.Equal(t, 1.0, w.metric(w.metrics.retried.WithLabelValues("client")))
		require.Equal(t, job.Load{Active: 1, Queued: 1}, s.capacity.mine)
	})
}

func TestRetryIsSubjectToTheLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(1)
		a, b := w.add(failedJob), w.add(failedJob)
		_, err := s.Retry(context.Background(), clientA, a.JobID)
		require.NoError(t, err)
		_, err = s.Retry(context.Background(), clientA, b.JobID)
		require.Equal(t, job.CodeQueueFull, job.CodeOf(err))
		require.Equal(t, job.Failed, w.store.job(b.JobID).State)
		change, err := s.Retry(context.Background(), clientA, a.JobID)
		require.NoError(t, err, "what is queued already needs no room")
		require.False(t, change.Changed)
	})
}

func TestRetryReportsStorageTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(1)
		task := w.add(failedJob)
		for _, operation := range []string{"Job", "Retry"} {
			w.store.hook(operation, hook{before: fails(1, errStorage)})
			_, err := s.Retry(context.Background(), clientA, task.JobID)
			require.ErrorIs(t, err, errStorage)
		}
		require.Empty(t, w.queue.sent())
		_, err := s.Retry(context.Background(), clientA, task.JobID)
		require.NoError(t, err, "the failed one took no room")
	})
}

func TestOtherClientsJobsDoNotExist(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		task := w.add(failedJob)
		ctx := context.Background()
		for what, err := range map[string]error{
			"cancel": second(s.Cancel(ctx, clientB, task.JobID)),
			"retry":  second(s.Retry(ctx, clientB, task.JobID)),
			"job":    second(s.Job(ctx, clientB, task.JobID)),
			"report": second(s.Report(ctx, clientB, task.JobID, 0)),
		} {
			require.Equal(t, job.CodeJobNotFound, job.CodeOf(err), what)
		}
		require.Equal(t, job.Failed, w.store.job(task.JobID).State)
		j, err := s.Job(ctx, clientA, task.JobID)
		require.NoError(t, err)
		require.Equal(t, task.JobID, j.ID)
		report, err := s.Report(ctx, clientA, task.JobID, 3)
		require.NoError(t, err)
		require.Equal(t, 3, report.Number)
	})
}

func second[T any](_ T, err error) error { return err }

// Beside their time, ids must tell nothing about each other (draft section 9.3).
func TestIDsCannotBeGuessed(t *testing.T) {
	t.Parallel()
	const ids = 10_000
	random, ones := map[[8]byte]bool{}, [64]int{}
	for range ids {
		id := newID()
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
