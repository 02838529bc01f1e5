package jobs

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/job"
)

func (w *worldJobs) submitBatch(s *Service, r job.BatchRequest) *job.Batch {
	w.T.Helper()
	b, replayed, err := s.SubmitBatch(context.Background(), r)
	require.NoError(w.T, err)
	require.False(w.T, replayed)
	return b
}

func TestSubmitBatch(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		r := newBatchRequest(
			newRequest(func(r *job.Request) { r.WorkKind, r.CorrelationID, r.Params = "", "own", []byte(`{"a":1}`) }),
			newRequest(deferred(time.Hour)),
			newRequest(func(r *job.Request) { r.WorkKind, r.AutoRetry = job.SuccessNormal, true }),
			newRequest(func(r *job.Request) { r.WorkKind = "" }),
		)
		b := w.submitBatch(s, r)
		require.Len(t, b.Items, 4)
		var ids []job.ID
		seeds := map[int64]bool{}
		for i, item := range b.Items {
			require.Equal(t, fmt.Sprint("item-", i), item.ItemID)
			require.Nil(t, item.Refusal)
			j := w.Store.RowOf(item.JobID).Job
			require.Equal(t, item.State, j.State)
			require.Equal(t, []any{apptest.ClientA, "request-1", "de", b.ID, 4},
				[]any{j.ClientID, j.RequestID, j.Language, j.BatchID, j.MaxAttempts})
			require.Equal(t, r.ReceivedAt.UnixMicro()+int64(i), j.Definition.Seed)
			seeds[j.Definition.Seed] = true
			ids = append(ids, item.JobID)
		}
		require.Len(t, seeds, 4, "each item draws for itself")
		require.IsIncreasing(t, []string{ids[0].String(), ids[1].String(), ids[2].String(), ids[3].String()}, "in the request's order")
		require.Equal(t, job.Created, b.Items[1].State)
		require.Equal(t, "own", w.Store.RowOf(ids[0]).CorrelationID)
		require.Equal(t, `{"a":1}`, string(w.Store.RowOf(ids[0]).Params))
		require.True(t, w.Store.RowOf(ids[2]).AutoRetry)

		require.Equal(t, []job.Task{
			{JobID: ids[0], Attempt: 1}, {JobID: ids[1], Attempt: 1, RunAt: w.Store.RowOf(ids[1]).RunAt},
			{JobID: ids[2], Attempt: 1}, {JobID: ids[3], Attempt: 1},
		}, apptest.Named(w.Queue.Sent()), "that of the future too")
		require.Equal(t, 1.0, w.Metric(w.Metrics.Submitted.WithLabelValues("SUCCESS_NORMAL")))
		require.Len(t, w.Log.Lines(t, map[string]any{"msg": "job transition", "action": "submit", "next_state": "CREATED"}), 4)
		require.Len(t, w.Log.Lines(t, map[string]any{"msg": "job transition", "action": "submit", "next_state": "QUEUED"}), 3)
		require.Equal(t, []job.Notification{{ClientID: apptest.ClientA}}, w.Queue.Notifications())
		require.Equal(t, job.Load{Active: 4, Queued: 3}, s.capacity.mine)
		require.Zero(t, w.Store.Count("CompleteBatches"))
	})
}

func TestTheRequestsCorrelationWinsOverTheItems(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		r := newBatchRequest(newRequest(func(r *job.Request) { r.CorrelationID = "own" }), newRequest())
		r.CorrelationID = "trace"
		b := w.submitBatch(w.service(10), r)
		require.Equal(t, "trace", b.CorrelationID)
		for _, item := range b.Items {
			require.Equal(t, "trace", w.Store.RowOf(item.JobID).CorrelationID)
		}
	})
}

func TestSubmitBatchRefusesItemByItem(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		r := newBatchRequest(
			newRequest(func(r *job.Request) { r.WorkKind = job.PayloadInvalid }),
			newRequest(),
			newRequest(deferred(-2*time.Second), func(r *job.Request) {
				r.Violations = []job.Violation{{Pointer: "/callback", Detail: "Not a URL."}, {Detail: "The whole item."}}
			}),
			newRequest(deferred(-2*time.Second), func(r *job.Request) {
				r.Malformed, r.Violations = true, []job.Violation{{Pointer: "/colour", Detail: "Not known."}}
			}),
		)
		b := w.submitBatch(s, r)
		require.Equal(t, 3, b.Refused())
		require.Len(t, w.Store.Rows, 1)
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

func TestSubmitBatchTakesAMomentAgoAsNow(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		b := w.submitBatch(w.service(10), newBatchRequest(
			newRequest(deferred(-time.Second)), newRequest(deferred(-time.Second-time.Microsecond)), newRequest(deferred(0))))
		require.Equal(t, []job.State{job.Created, "", job.Created}, []job.State{b.Items[0].State, b.Items[1].State, b.Items[2].State})
		require.Equal(t, "/jobs/1/execution_at", b.Items[1].Refusal.Violations[0].Pointer)
	})
}

// A batch with more violations than are listed is refused as a whole: the answer is
// not many times the request.
func TestABatchOfManyViolationsIsRefusedAsAWhole(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		wrong := newRequest(func(r *job.Request) { r.WorkKind = job.PayloadInvalid })
		requests := make([]job.Request, job.MaxBatchItems)
		for i := range requests {
			requests[i] = wrong
		}
		s := w.service(10)
		b := w.submitBatch(s, newBatchRequest(append(requests[:job.MaxViolations:job.MaxViolations], newRequest())...))
		require.Equal(t, job.MaxViolations, b.Refused(), "as many as can be listed")
		_, _, err := s.SubmitBatch(context.Background(), newBatchRequest(requests...))
		var refused *job.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, job.CodeValidationFailed, refused.Code)
		require.Len(t, refused.Violations, job.MaxViolations)
		require.Equal(t, "/jobs/99/work_kind", refused.Violations[99].Pointer)
		require.Contains(t, refused.Detail, "And 900 more")

		few := newBatchRequest(wrong, newRequest())
		few.Unlisted = 4321
		_, _, err = s.SubmitBatch(context.Background(), few)
		require.ErrorAs(t, err, &refused)
		require.Contains(t, refused.Detail, "And 4,321 more")
	})
}

func TestABatchOfRefusedItemsOnlyIsCompletedAtOnce(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(0, func(c *Config) { c.Catalogue.Kinds = []job.Kind{job.PayloadInvalid} })
		w.Background(w.completer.Run)
		b := w.submitBatch(s, newBatchRequest(newRequest(), newRequest(func(r *job.Request) { r.WorkKind = "" })))
		require.Equal(t, "/jobs/1/work_kind", b.Items[1].Refusal.Violations[0].Pointer, "nothing to draw from")
		synctest.Wait()
		b, err := s.Batch(context.Background(), apptest.ClientA, b.ID)
		require.NoError(t, err)
		require.NotNil(t, b.Outcome)
		require.Equal(t, job.StatusFailed, b.Outcome.Status)
		require.Equal(t, 2, b.Outcome.Failed)
	})
}

func TestABatchIsAcceptedAsAWholeOrNot(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(5)
		_, _, err := s.SubmitBatch(context.Background(), newBatchRequest(newRequests(6)...))
		require.Equal(t, job.CodeQueueFull, job.CodeOf(err))
		w.nothingDone()
		require.Zero(t, s.capacity.mine)
		w.submitBatch(s, newBatchRequest(newRequests(5)...))
		_, _, err = s.SubmitBatch(context.Background(), newBatchRequest(newRequest()))
		require.Equal(t, job.CodeQueueFull, job.CodeOf(err))
		w.Background(s.capacity.Run)
		apptest.Pass(capacityInterval)
		require.Zero(t, s.capacity.mine, "all are in the count")
	})
}

func TestSubmitBatchReplays(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(2)
		r := newBatchRequest(newRequest(), newRequest(deferred(time.Second)))
		r.IdempotencyKey = "k"
		first := w.submitBatch(s, r)
		w.Queue.Notifications()
		tasks := len(w.Queue.Sent())
		apptest.Pass(time.Minute)

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
		require.Equal(t, 2.0, w.Metric(w.Metrics.IdempotencyHits))

		r.Hash[0]++
		for _, limit := range []int{100, 2} {
			s.capacity.maxActive = limit
			_, _, err := s.SubmitBatch(context.Background(), r)
			require.Equal(t, job.CodeIdempotencyConflict, job.CodeOf(err))
		}
		require.Len(t, w.Store.Rows, 2)
		require.Len(t, w.Queue.Sent(), tasks)
		require.Empty(t, w.Queue.Notifications())
	})
}

func TestSubmitBatchThroughTrouble(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(2)
		r := newBatchRequest(newRequests(2)...)
		r.IdempotencyKey = "k"
		w.Store.Hook("InsertBatch", apptest.Hook{Before: apptest.Fails(3, apptest.ErrStorage)})
		for range 3 {
			_, _, err := s.SubmitBatch(context.Background(), r)
			require.ErrorIs(t, err, apptest.ErrStorage)
		}
		w.nothingDone()
		w.Store.Hook("InsertBatch", apptest.Hook{After: apptest.Fails(1, apptest.ErrStorage)})
		_, _, err := s.SubmitBatch(context.Background(), r)
		require.ErrorIs(t, err, apptest.ErrStorage)
		require.Empty(t, w.Queue.Sent(), "only what is known to be committed is enqueued")
		b, replayed, err := s.SubmitBatch(context.Background(), r)
		require.NoError(t, err)
		require.True(t, replayed, "the lost answer is found by its key")
		require.Len(t, b.Items, 2)
		require.Len(t, w.Store.Rows, 2)

		s.capacity.maxActive = 0
		w.Store.Hook("FindBatch", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		_, _, err = s.SubmitBatch(context.Background(), r)
		require.ErrorIs(t, err, apptest.ErrStorage, "whether it was accepted before is unknown")
	})
}

func TestCancelBatch(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(1000)
		items := newRequests(100)
		for i := range 10 {
			items[i] = newRequest(deferred(time.Hour))
		}
		b := w.submitBatch(s, newBatchRequest(items...))
		for i, state := range []job.State{job.Succeeded, job.Failed, job.Running, job.Assigned} {
			w.Store.Change(b.Items[50+i].JobID, func(r *apptest.Row) { r.State = state })
		}
		w.Queue.Notifications()
		for range 2 { // a repetition finds nothing to do
			canceled, err := s.CancelBatch(context.Background(), apptest.ClientA, b.ID)
			require.NoError(t, err)
			require.Equal(t, map[job.State]int{job.Canceled: 98, job.Succeeded: 1, job.Failed: 1}, canceled.Counts)
			require.NotNil(t, canceled.Outcome, "completed at once")
			require.Equal(t, job.StatusCompletedWithErrors, canceled.Outcome.Status)
			require.Equal(t, 98.0, w.Metric(w.Metrics.Canceled.WithLabelValues("SUCCESS_FAST")))
			require.Len(t, w.Queue.Signaled(), 2)
		}
		require.Equal(t, 1.0, w.Metric(w.Metrics.BatchesCompleted.WithLabelValues("COMPLETED_WITH_ERRORS")))
		require.Len(t, w.Queue.Notifications(), 98+1, "each job, and the batch once")
	})
}

func TestCancelBatchWhileItsJobsEnd(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		b := w.submitBatch(s, newBatchRequest(newRequests(3)...))
		w.Store.Hook("OpenJobs", apptest.Hook{After: func(context.Context) error {
			w.Store.Change(b.Items[0].JobID, func(r *apptest.Row) { r.State = job.Succeeded })
			w.Store.Mu.Lock()
			defer w.Store.Mu.Unlock()
			delete(w.Store.Rows, b.Items[1].JobID)
			return nil
		}})
		b, err := s.CancelBatch(context.Background(), apptest.ClientA, b.ID)
		require.NoError(t, err)
		require.Equal(t, map[job.State]int{job.Canceled: 1, job.Succeeded: 1}, b.Counts)
	})
}

// Whoever else completes the batch, the answer tells how it ended.
func TestCancelBatchWhileOthersCompleteIt(t *testing.T) {
	for name, late := range map[string]time.Duration{"before it tries": 0, "while it tries": 5 * outcomePause} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorldJobs(t)
				s := w.service(10)
				b := w.submitBatch(s, newBatchRequest(newRequests(3)...))
				s.completer = batches.NewCompleter(skipping{w.Store}, w.Queue, w.Metrics, w.Logger)
				began := time.Now()
				w.Store.Hook("CompleteBatches", apptest.Hook{Before: func(context.Context) error {
					w.Store.Mu.Lock()
					defer w.Store.Mu.Unlock()
					if time.Since(began) >= late {
						w.Store.Batches[b.ID].Outcome = &job.BatchOutcome{Status: job.StatusCancelled}
					}
					return nil
				}})
				answer, err := s.CancelBatch(context.Background(), apptest.ClientA, b.ID)
				require.NoError(t, err)
				require.NotNil(t, answer.Outcome)
			})
		})
	}
}

// skipping is a store in which somebody else has locked all batches.
type skipping struct{ *fakeStore }

func (s skipping) CompleteBatches(ctx context.Context, _ []job.ID) ([]job.Batch, error) {
	return nil, second(s.Store.CompleteBatches(ctx, nil))
}

func TestCancelBatchDoesNotWaitForever(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		b := w.submitBatch(s, newBatchRequest(newRequests(3)...))
		s.completer = batches.NewCompleter(skipping{w.Store}, w.Queue, w.Metrics, w.Logger)
		began := time.Now()
		answer, err := s.CancelBatch(context.Background(), apptest.ClientA, b.ID)
		require.NoError(t, err)
		require.Nil(t, answer.Outcome)
		require.LessOrEqual(t, time.Since(began), outcomeTries*outcomePause)
	})
}

func TestCancelBatchThroughTrouble(t *testing.T) {
	for operation, want := range map[string]bool{"OpenJobs": false, "Cancel": false, "Batch": false, "CompleteBatches": true} {
		t.Run(operation, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorldJobs(t)
				s := w.service(10)
				b := w.submitBatch(s, newBatchRequest(newRequests(3)...))
				w.Store.Hook(operation, apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
				answer, err := s.CancelBatch(context.Background(), apptest.ClientA, b.ID)
				if want {
					require.NoError(t, err, "its jobs are canceled all the same")
					require.Equal(t, 3, answer.Counts[job.Canceled])
					w.Background(w.completer.Run)
				} else {
					require.ErrorIs(t, err, apptest.ErrStorage)
				}
				answer, err = s.CancelBatch(context.Background(), apptest.ClientA, b.ID)
				require.NoError(t, err)
				require.NotNil(t, answer.Outcome)
				require.Equal(t, job.StatusCancelled, answer.Outcome.Status)
			})
		})
	}
}

func TestOtherClientsBatchesDoNotExist(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		b := w.submitBatch(s, newBatchRequest(newRequests(2)...))
		for _, id := range []job.ID{b.ID, app.NewID()} {
			_, err := s.Batch(context.Background(), apptest.ClientB, id)
			require.Equal(t, job.CodeBatchNotFound, job.CodeOf(err))
			_, err = s.CancelBatch(context.Background(), apptest.ClientB, id)
			require.Equal(t, job.CodeBatchNotFound, job.CodeOf(err))
		}
		require.Zero(t, w.Store.Count("Cancel"))
		require.Zero(t, w.Store.Count("CompleteBatches"))
	})
}
