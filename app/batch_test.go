package app

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// batchRequest is a request for jobs, one for each item.
func batchRequest(items ...job.Request) job.BatchRequest {
	r := job.BatchRequest{ClientID: clientA, RequestID: "request-1", ReceivedAt: time.Now(), Hash: [32]byte{1}, Language: "de"}
	for i, item := range items {
		r.Items = append(r.Items, job.ItemRequest{ItemID: fmt.Sprint("item-", i), Request: item})
	}
	return r
}

func requests(n int) []job.Request {
	items := make([]job.Request, n)
	for i := range items {
		items[i] = request()
	}
	return items
}

func (w *worldJobs) submitBatch(s *Service, r job.BatchRequest) *job.Batch {
	w.t.Helper()
	b, replayed, err := s.SubmitBatch(context.Background(), r)
	require.NoError(w.t, err)
	require.False(w.t, replayed)
	return b
}

func TestSubmitBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		r := batchRequest(
			request(func(r *job.Request) { r.WorkKind, r.CorrelationID, r.Params = "", "own", []byte(`{"a":1}`) }),
			request(deferred(time.Hour)),
			request(func(r *job.Request) { r.WorkKind, r.AutoRetry = job.SuccessNormal, true }),
			request(func(r *job.Request) { r.WorkKind = "" }),
		)
		b := w.submitBatch(s, r)
		require.Len(t, b.Items, 4)
		var ids []job.ID
		seeds := map[int64]bool{}
		for i, item := range b.Items {
			require.Equal(t, fmt.Sprint("item-", i), item.ItemID)
			require.Nil(t, item.Refusal)
			j := w.store.job(item.JobID).Job
			require.Equal(t, item.State, j.State)
			require.Equal(t, []any{clientA, "request-1", "de", b.ID, 4}, []any{j.ClientID, j.RequestID, j.Language, j.BatchID, j.MaxAttempts})
			require.Equal(t, r.ReceivedAt.UnixMicro()+int64(i), j.Definition.Seed)
			seeds[j.Definition.Seed] = true
			ids = append(ids, item.JobID)
		}
		require.Len(t, seeds, 4, "each item draws for itself")
		require.IsIncreasing(t, []string{ids[0].String(), ids[1].String(), ids[2].String(), ids[3].String()}, "in the request's order")
		require.Equal(t, job.Created, b.Items[1].State)
		require.Equal(t, "own", w.store.job(ids[0]).CorrelationID)
		require.Equal(t, `{"a":1}`, string(w.store.job(ids[0]).Params))
		require.True(t, w.store.job(ids[2]).AutoRetry)

		require.Equal(t, []job.Task{{JobID: ids[0], Attempt: 1}, {JobID: ids[2], Attempt: 1}, {JobID: ids[3], Attempt: 1}}, w.queue.sent(),
			"what is due beyond the horizon is the relay's")
		require.Equal(t, 1.0, w.metric(w.metrics.submitted.WithLabelValues("SUCCESS_NORMAL")))
		require.Len(t, w.log.lines(t, map[string]any{"msg": "job transition", "action": "submit", "next_state": "CREATED"}), 4)
		require.Len(t, w.log.lines(t, map[string]any{"msg": "job transition", "action": "submit", "next_state": "QUEUED"}), 3)
		require.Equal(t, []job.Notification{{ClientID: clientA}}, w.queue.news())
		require.Equal(t, job.Load{Active: 4, Queued: 3}, s.capacity.mine)
		require.Zero(t, w.store.count("CompleteBatches"))
	})
}

func TestTheRequestsCorrelationWinsOverTheItems(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		r := batchRequest(request(func(r *job.Request) { r.CorrelationID = "own" }), request())
		r.CorrelationID = "trace"
		b := w.submitBatch(w.service(10), r)
		require.Equal(t, "trace", b.CorrelationID)
		for _, item := range b.Items {
			require.Equal(t, "trace", w.store.job(item.JobID).CorrelationID)
		}
	})
}

func TestSubmitBatchRefusesItemByItem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		r := batchRequest(
			request(func(r *job.Request) { r.WorkKind = job.PayloadInvalid }),
			request(),
			request(deferred(-time.Second), func(r *job.Request) {
				r.Violations = []job.Violation{{Pointer: "/callback", Detail: "Not a URL."}, {Detail: "The whole item."}}
			}),
			request(deferred(-time.Second), func(r *job.Request) {
				r.Malformed, r.Violations = true, []job.Violation{{Pointer: "/colour", Detail: "Not known."}}
			}),
		)
		b := w.submitBatch(s, r)
		require.Equal(t, 3, b.Refused())
		require.Len(t, w.store.jobs, 1)
		require.Equal(t, job.Queued, b.Items[1].State)
		pointers := func(i int) (all []string) {
			require.True(t, b.Items[i].JobID.IsZero())
			require.Empty(t, b.Items[i].State)
			for _, v := range b.Items[i].Refusal.Violations {
				all = append(all, v.Pointer)
			}
			return all
		}
		require.Equal(t, []string{"/jobs/0/work_kind"}, pointers(0))
		require.Equal(t, []string{"/jobs/2/callback", "/jobs/2", "/jobs/2/execution_at"}, pointers(2))
		require.Equal(t, job.CodeValidationFailed, b.Items[2].Refusal.Code)
		require.Equal(t, []string{"/jobs/3/colour", "/jobs/3/execution_at"}, pointers(3), "form and values together")
		require.Equal(t, job.CodeMalformed, b.Items[3].Refusal.Code)
		require.Equal(t, job.Load{Active: 1, Queued: 1}, s.capacity.mine, "refused items take no room")
	})
}

func TestSubmitBatchBoundsItsComplaints(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		wrong := request(deferred(-time.Second), func(r *job.Request) {
			r.WorkKind, r.Violations = job.PayloadInvalid, make([]job.Violation, job.MaxViolations)
		})
		requests := make([]job.Request, job.MaxBatchItems)
		for i := range requests {
			requests[i] = wrong
		}
		b := w.submitBatch(w.service(10), batchRequest(requests...))
		require.Len(t, b.Items[0].Refusal.Violations, job.MaxViolations)
		require.Len(t, b.Items[len(b.Items)-1].Refusal.Violations, 1)
		told := 0
		for _, item := range b.Items {
			told += len(item.Refusal.Violations)
		}
		require.LessOrEqual(t, told, job.MaxBatchViolations+job.MaxViolations+job.MaxBatchItems)
	})
}

func TestABatchOfRefusedItemsOnlyIsSettledAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(0, func(c *ServiceConfig) { c.Catalogue.Kinds = []job.Kind{job.PayloadInvalid} })
		w.background(w.settler.Run)
		b := w.submitBatch(s, batchRequest(request(), request(func(r *job.Request) { r.WorkKind = "" })))
		require.Equal(t, "/jobs/1/work_kind", b.Items[1].Refusal.Violations[0].Pointer, "nothing to draw from")
		synctest.Wait()
		b, err := s.Batch(context.Background(), clientA, b.ID)
		require.NoError(t, err)
		require.NotNil(t, b.Outcome)
		require.Equal(t, job.StatusFailed, b.Outcome.Status)
		require.Equal(t, 2, b.Outcome.Failed)
	})
}

func TestABatchIsAcceptedAsAWholeOrNot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(5)
		_, _, err := s.SubmitBatch(context.Background(), batchRequest(requests(6)...))
		require.Equal(t, job.CodeQueueFull, job.CodeOf(err))
		w.nothingDone()
		require.Zero(t, s.capacity.mine)
		w.submitBatch(s, batchRequest(requests(5)...))
		_, _, err = s.SubmitBatch(context.Background(), batchRequest(request()))
		require.Equal(t, job.CodeQueueFull, job.CodeOf(err))
		w.background(s.capacity.Run)
		pass(capacityInterval)
		require.Zero(t, s.capacity.mine, "all are in the count")
	})
}

func TestSubmitBatchReplays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(2)
		r := batchRequest(request(), request(deferred(time.Second)))
		r.IdempotencyKey = "k"
		first := w.submitBatch(s, r)
		w.queue.news()
		tasks := len(w.queue.sent())
		pass(time.Minute)

		again := func(what string) {
			t.Helper()
			b, replayed, err := s.SubmitBatch(context.Background(), r)
			require.NoError(t, err, what)
			require.True(t, replayed, what)
			require.Equal(t, first.ID, b.ID, what)
			require.Equal(t, first.Items, b.Items, what)
		}
		again("although an item is late and the server is full")
		s.capacity.maxActive, s.capacity.maxQueued = 100, 100
		again("and in the usual case")
		require.Equal(t, job.Load{Active: 2, Queued: 1}, s.capacity.mine, "a replay takes no room")
		require.Equal(t, 2.0, w.metric(w.metrics.idempotencyHits))

		r.Hash[0]++
		for _, limit := range []int{100, 2} {
			s.capacity.maxActive = limit
			_, _, err := s.SubmitBatch(context.Background(), r)
			require.Equal(t, job.CodeIdempotencyConflict, job.CodeOf(err))
		}
		require.Len(t, w.store.jobs, 2)
		require.Len(t, w.queue.sent(), tasks)
		require.Empty(t, w.queue.news())
	})
}

func TestSubmitBatchThroughTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(2)
		r := batchRequest(requests(2)...)
		r.IdempotencyKey = "k"
		w.store.hook("InsertBatch", hook{before: fails(3, errStorage)})
		for range 3 {
			_, _, err := s.SubmitBatch(context.Background(), r)
			require.ErrorIs(t, err, errStorage)
		}
		w.nothingDone()
		w.store.hook("InsertBatch", hook{after: fails(1, errStorage)})
		_, _, err := s.SubmitBatch(context.Background(), r)
		require.ErrorIs(t, err, errStorage)
		require.Empty(t, w.queue.sent(), "only what is known to be committed is enqueued")
		b, replayed, err := s.SubmitBatch(context.Background(), r)
		require.NoError(t, err)
		require.True(t, replayed, "the lost answer is found by its key")
		require.Len(t, b.Items, 2)
		require.Len(t, w.store.jobs, 2)

		s.capacity.maxActive = 0
		w.store.hook("FindBatch", hook{before: fails(1, errStorage)})
		_, _, err = s.SubmitBatch(context.Background(), r)
		require.ErrorIs(t, err, errStorage, "whether it was accepted before cannot be told")
	})
}

func TestCancelBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(1000)
		items := requests(100)
		for i := range 10 {
			items[i] = request(deferred(time.Hour))
		}
		b := w.submitBatch(s, batchRequest(items...))
		for i, state := range []job.State{job.Succeeded, job.Failed, job.Running, job.Assigned} {
			w.store.change(b.Items[50+i].JobID, func(r *row) { r.State = state })
		}
		w.queue.news()
		for range 2 { // a repetition finds nothing to do
			canceled, err := s.CancelBatch(context.Background(), clientA, b.ID)
			require.NoError(t, err)
			require.Equal(t, map[job.State]int{job.Canceled: 98, job.Succeeded: 1, job.Failed: 1}, canceled.Counts)
			require.NotNil(t, canceled.Outcome, "settled at once")
			require.Equal(t, job.StatusCompletedWithErrors, canceled.Outcome.Status)
			require.Equal(t, 98.0, w.metric(w.metrics.canceled.WithLabelValues("SUCCESS_FAST")))
			require.Len(t, w.queue.signaled(), 2)
		}
		require.Equal(t, 1.0, w.metric(w.metrics.batchesCompleted.WithLabelValues("COMPLETED_WITH_ERRORS")))
		require.Len(t, w.queue.news(), 98+1, "each job, and the batch once")
	})
}

func TestCancelBatchSharesStatements(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(1000)
		b := w.submitBatch(s, batchRequest(requests(3*cancelConcurrency)...))
		w.store.hook("Cancel", hook{before: func(context.Context) error { time.Sleep(time.Second); return nil }})
		began := time.Now()
		_, err := s.CancelBatch(context.Background(), clientA, b.ID)
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestCancelBatchWhileItsJobsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		b := w.submitBatch(s, batchRequest(requests(3)...))
		w.store.hook("OpenJobs", hook{after: func(context.Context) error {
			w.store.change(b.Items[0].JobID, func(r *row) { r.State = job.Succeeded })
			w.store.mu.Lock()
			defer w.store.mu.Unlock()
			delete(w.store.jobs, b.Items[1].JobID)
			return nil
		}})
		b, err := s.CancelBatch(context.Background(), clientA, b.ID)
		require.NoError(t, err)
		require.Equal(t, map[job.State]int{job.Canceled: 1, job.Succeeded: 1}, b.Counts)
	})
}

// Whoever else settles the batch, the answer tells how it ended.
func TestCancelBatchWhileOthersSettle(t *testing.T) {
	for name, late := range map[string]time.Duration{"before it tries": 0, "while it tries": 5 * outcomePause} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorldJobs(t)
				s := w.service(10)
				b := w.submitBatch(s, batchRequest(requests(3)...))
				s.settler = NewBatchCompleter(skipping{w.store}, w.queue, w.metrics, w.logger)
				began := time.Now()
				w.store.hook("CompleteBatches", hook{before: func(context.Context) error {
					w.store.mu.Lock()
					defer w.store.mu.Unlock()
					if time.Since(began) >= late {
						w.store.batches[b.ID].Outcome = &job.BatchOutcome{Status: job.StatusCancelled}
					}
					return nil
				}})
				answer, err := s.CancelBatch(context.Background(), clientA, b.ID)
				require.NoError(t, err)
				require.NotNil(t, answer.Outcome)
			})
		})
	}
}

// skipping is a store in which somebody else has locked all batches.
type skipping struct{ *fakeStore }

func (s skipping) CompleteBatches(ctx context.Context, _ []job.ID) ([]job.Batch, error) {
	return nil, second(s.fakeStore.CompleteBatches(ctx, nil))
}

func TestCancelBatchDoesNotWaitForever(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		b := w.submitBatch(s, batchRequest(requests(3)...))
		s.settler = NewBatchCompleter(skipping{w.store}, w.queue, w.metrics, w.logger)
		began := time.Now()
		answer, err := s.CancelBatch(context.Background(), clientA, b.ID)
		require.NoError(t, err)
		require.Nil(t, answer.Outcome)
		require.LessOrEqual(t, time.Since(began), outcomeTries*outcomePause)
	})
}

func TestCancelBatchThroughTrouble(t *testing.T) {
	for operation, want := range map[string]bool{"OpenJobs": false, "Cancel": false, "Batch": false, "CompleteBatches": true} {
		t.Run(operation, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorldJobs(t)
				s := w.service(10)
				b := w.submitBatch(s, batchRequest(requests(3)...))
				w.store.hook(operation, hook{before: fails(1, errStorage)})
				answer, err := s.CancelBatch(context.Background(), clientA, b.ID)
				if want {
					require.NoError(t, err, "its jobs are canceled all the same")
					require.Equal(t, 3, answer.Counts[job.Canceled])
					w.background(w.settler.Run)
				} else {
					require.ErrorIs(t, err, errStorage)
				}
				answer, err = s.CancelBatch(context.Background(), clientA, b.ID)
				require.NoError(t, err)
				require.NotNil(t, answer.Outcome)
				require.Equal(t, job.StatusCancelled, answer.Outcome.Status)
			})
		})
	}
}

func TestOtherClientsBatchesDoNotExist(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		b := w.submitBatch(s, batchRequest(requests(2)...))
		for _, id := range []job.ID{b.ID, newID()} {
			_, err := s.Batch(context.Background(), clientB, id)
			require.Equal(t, job.CodeBatchNotFound, job.CodeOf(err))
			_, err = s.CancelBatch(context.Background(), clientB, id)
			require.Equal(t, job.CodeBatchNotFound, job.CodeOf(err))
		}
		require.Zero(t, w.store.count("Cancel"))
		require.Zero(t, w.store.count("CompleteBatches"))
	})
}
