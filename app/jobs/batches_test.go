package jobs

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

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
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		r := newBatchRequest(
			newRequest(ofKind(""), func(r *job.Request) { r.CorrelationID, r.Params = "own", []byte(`{"a":1}`) }),
			newRequest(deferred(time.Hour)),
			newRequest(ofKind(job.SuccessNormal), func(r *job.Request) { r.AutoRetry = true }),
			newRequest(ofKind("")),
		)
		b := w.submitBatch(s, r)
		require.Len(t, b.Items, 4)
		var rows []apptest.Row
		var ids []string
		for i, item := range b.Items {
			require.Equal(t, fmt.Sprint("item-", i), item.ItemID)
			require.Nil(t, item.Refusal)
			j := w.Store.RowOf(item.JobID).Job
			require.Equal(t, []any{item.State, apptest.ClientA, "request-1", "de", b.ID, 4},
				[]any{j.State, j.ClientID, j.RequestID, j.Language, j.BatchID, j.MaxAttempts})
			require.Equal(t, r.ReceivedAt.UnixMicro()+int64(i), j.Definition.Seed, "each item draws for itself")
			rows, ids = append(rows, w.Store.RowOf(item.JobID)), append(ids, item.JobID.String())
		}
		require.IsIncreasing(t, ids, "in the request's order")
		require.Equal(t, job.Created, b.Items[1].State)
		require.Equal(t, []any{"own", `{"a":1}`}, []any{rows[0].CorrelationID, string(rows[0].Params)})
		require.True(t, rows[2].AutoRetry)

		require.Equal(t, []job.Task{
			{JobID: rows[0].ID, Attempt: 1}, {JobID: rows[1].ID, Attempt: 1, RunAt: rows[1].RunAt},
			{JobID: rows[2].ID, Attempt: 1}, {JobID: rows[3].ID, Attempt: 1},
		}, apptest.Named(w.Queue.Sent()), "that of the future too")
		require.Equal(t, []float64{4, 3}, []float64{w.Sum("jobs_submitted_total"), w.Sum("jobs_queued_total")})
		require.Len(t, w.Log.Lines(t, map[string]any{"msg": "job transition", "action": "submit", "next_state": "CREATED"}), 4)
		require.Len(t, w.Log.Lines(t, map[string]any{"msg": "job transition", "action": "submit", "next_state": "QUEUED"}), 3)
		require.Equal(t, []job.Notification{{ClientID: apptest.ClientA}}, w.Queue.Notifications())
		require.Equal(t, job.Load{Active: 4, Queued: 3}, w.held(s))
		require.Zero(t, w.Store.Count("CompleteBatches"))

		r.CorrelationID = "trace"
		b = w.submitBatch(s, r)
		require.Equal(t, "trace", b.CorrelationID)
		require.Equal(t, "trace", w.Store.RowOf(b.Items[0].JobID).CorrelationID, "the request's wins over the item's")
	})
}

// Promise: patterns Batch
func TestSubmitBatchRefusesItemByItem(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		b := w.submitBatch(s, newBatchRequest(
			newRequest(ofKind(job.PayloadInvalid)),
			newRequest(),
			newRequest(deferred(-2*time.Second), func(r *job.Request) {
				r.Violations = []job.Violation{{Pointer: "/callback", Detail: "Not a URL."}, {Detail: "The whole item."}}
			}),
			newRequest(deferred(-2*time.Second), flawed("/colour", true)),
			newRequest(deferred(-time.Second)),
			newRequest(deferred(-time.Second-time.Microsecond)),
		))
		require.Equal(t, 4, b.Refused())
		require.Len(t, w.Store.Rows, 2)
		for i, want := range []struct {
			state    job.State
			code     job.Code
			pointers []string
		}{
			{"", job.CodeValidationFailed, []string{"/jobs/0/work_kind"}},
			{state: job.Queued},
			{"", job.CodeValidationFailed, []string{"/jobs/2/callback", "/jobs/2", "/jobs/2/execution_at"}},
			{"", job.CodeMalformed, []string{"/jobs/3/colour", "/jobs/3/execution_at"}}, // form and values together
			{state: job.Created}, // a moment ago is now
			{"", job.CodeValidationFailed, []string{"/jobs/5/execution_at"}},
		} {
			item := b.Items[i]
			require.Equal(t, want.state, item.State, i)
			require.Equal(t, want.code == "", item.Refusal == nil, i)
			require.Equal(t, want.code != "", item.JobID.IsZero(), i)
			if item.Refusal != nil {
				require.Equal(t, want.code, item.Refusal.Code, i)
				require.Equal(t, want.pointers, pointers(item.Refusal.Violations), i)
			}
		}
		require.Equal(t, job.Load{Active: 2, Queued: 1}, w.held(s), "refused items take no room")
	})
}

// A batch with more violations than are listed is refused as a whole: the answer is
// not many times the request.
func TestABatchOfManyViolationsIsRefusedAsAWhole(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		wrong := newRequest(ofKind(job.PayloadInvalid))
		requests := make([]job.Request, job.MaxBatchItems)
		for i := range requests {
			requests[i] = wrong
		}
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
	bubble(t, func(t *testing.T, w *worldJobs) {
		s := w.service(0, func(c *Config) { c.Catalogue.Kinds = []job.Kind{job.PayloadInvalid} })
		w.Background(w.completer.Run)
		b := w.submitBatch(s, newBatchRequest(newRequest(), newRequest(ofKind(""))))
		require.Equal(t, "/jobs/1/work_kind", b.Items[1].Refusal.Violations[0].Pointer, "nothing to draw from")
		synctest.Wait()
		require.Equal(t, []any{job.StatusFailed, 2}, []any{w.outcome(b).Status, w.outcome(b).Failed})
	})
}

func TestABatchIsAcceptedAsAWholeOrNot(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldJobs) {
		s := w.service(5)
		_, _, err := s.SubmitBatch(context.Background(), newBatchRequest(newRequests(6)...))
		require.Equal(t, job.CodeQueueFull, job.CodeOf(err))
		w.nothingDone()
		require.Zero(t, w.held(s))
		w.submitBatch(s, newBatchRequest(newRequests(5)...))
		_, _, err = s.SubmitBatch(context.Background(), newBatchRequest(newRequest()))
		require.Equal(t, job.CodeQueueFull, job.CodeOf(err))
		w.Background(s.deps.Capacity.Run)
		apptest.Pass(capacityInterval)
		require.Equal(t, job.Load{Active: 5, Queued: 5}, w.held(s), "all are in the count")
		require.Zero(t, s.deps.Capacity.lease.used)
	})
}

func TestSubmitBatchReplays(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldJobs) {
		s := w.service(10)
		r := newBatchRequest(newRequest(), newRequest(deferred(time.Second)))
		r.IdempotencyKey = "k"
		w.Store.Hook("InsertBatch", apptest.Hook{After: apptest.Fails(1, apptest.ErrStorage)})
		_, _, err := s.SubmitBatch(context.Background(), r)
		require.ErrorIs(t, err, apptest.ErrStorage)
		w.Store.Hook("InsertBatch", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		_, _, err = s.SubmitBatch(context.Background(), r)
		require.ErrorIs(t, err, apptest.ErrStorage)
		require.Empty(t, w.Queue.Sent(), "only what is known to be committed is enqueued")
		b, replayed, err := s.SubmitBatch(context.Background(), r)
		require.NoError(t, err)
		require.True(t, replayed, "the lost answer is found by its key")
		require.Len(t, b.Items, 2)

		apptest.Pass(time.Minute)
		for what, active := range map[string]int{"although an item is late": 100, "and the server is full": 0} {
			s.limit(active)
			again, replayed, err := s.SubmitBatch(context.Background(), r)
			require.NoError(t, err, what)
			require.True(t, replayed, what)
			require.Equal(t, b.Items, again.Items, what)
		}
		require.NoError(t, s.deps.Capacity.Renew(t.Context()))
		require.Equal(t, job.Load{Active: 2, Queued: 1}, w.held(s), "neither a failure nor a replay takes room in the end")
		require.Equal(t, 3.0, w.Metric(w.Metrics.IdempotencyHits))

		w.Store.conflict = job.Errorf(job.CodeIdempotencyConflict, "This idempotency key was used for a different request.")
		for _, active := range []int{100, 0} {
			s.limit(active)
			_, _, err := s.SubmitBatch(context.Background(), r)
			require.ErrorIs(t, err, w.Store.conflict)
		}
		w.Store.Hook("FindBatch", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		_, _, err = s.SubmitBatch(context.Background(), r)
		require.ErrorIs(t, err, apptest.ErrStorage, "whether it was accepted before is unknown")
		require.Empty(t, w.Queue.Sent())
		require.Empty(t, w.Queue.Notifications())
	})
}

func TestCancelBatch(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldJobs) {
		s := w.service(1000)
		items := newRequests(100)
		for i := range 10 {
			items[i] = newRequest(deferred(time.Hour))
		}
		b := w.submitBatch(s, newBatchRequest(items...))
		for i, state := range []job.State{job.Succeeded, job.Failed, job.Running, job.Assigned} {
			w.Store.Change(b.Items[50+i].JobID, inState(state))
		}
		w.Store.Hook("OpenJobs", apptest.Hook{After: func(context.Context) error { // one ends meanwhile, and one is deleted
			w.Store.Hook("OpenJobs", apptest.Hook{})
			w.Store.Change(b.Items[60].JobID, inState(job.Succeeded))
			w.Store.Update(func() { delete(w.Store.Rows, b.Items[61].JobID) })
			return nil
		}})
		w.Queue.Notifications()
		for range 2 { // a repetition finds nothing to do
			canceled := apptest.Must(s.CancelBatch(context.Background(), apptest.ClientA, b.ID))(t)
			require.Equal(t, map[job.State]int{job.Canceled: 96, job.Succeeded: 2, job.Failed: 1}, canceled.Counts)
			require.NotNil(t, canceled.Outcome, "completed at once")
			require.Equal(t, job.StatusCompletedWithErrors, canceled.Outcome.Status)
			require.Equal(t, 96.0, w.Metric(w.Metrics.Canceled.WithLabelValues("SUCCESS_FAST")))
			require.Len(t, w.Queue.Signaled(), 2)
		}
		require.Equal(t, 1.0, w.Metric(w.Metrics.BatchesCompleted.WithLabelValues("COMPLETED_WITH_ERRORS")))
		require.Len(t, w.Queue.Notifications(), 96+1, "each job, and the batch once")
	})
}

// skipping is a store in which somebody else has locked all batches.
type skipping struct{ *fakeStore }

func (s skipping) CompleteBatches(ctx context.Context, _ []job.ID) ([]job.Batch, error) {
	return nil, second(s.Store.CompleteBatches(ctx, nil))
}

// Whoever else completes the batch, the answer tells how it ended, if that does not take for ever.
func TestCancelBatchWhileOthersCompleteIt(t *testing.T) {
	for name, late := range map[string]time.Duration{"before it tries": 0, "while it tries": 5 * outcomePause, "never": time.Hour} {
		run(t, name, func(t *testing.T, w *worldJobs, s *Service) {
			b := w.submitBatch(s, newBatchRequest(newRequests(3)...))
			s.deps.Completer = batches.NewCompleter(skipping{w.Store}, w.Queue, w.Metrics, w.Logger)
			began := time.Now()
			w.Store.Hook("CompleteBatches", apptest.Hook{Before: func(context.Context) error {
				if time.Since(began) >= late {
					w.Store.Update(func() { w.Store.Batches[b.ID].Outcome = &job.BatchOutcome{Status: job.StatusCancelled} })
				}
				return nil
			}})
			answer := apptest.Must(s.CancelBatch(context.Background(), apptest.ClientA, b.ID))(t)
			require.Equal(t, late < time.Hour, answer.Outcome != nil)
			require.LessOrEqual(t, time.Since(began), outcomeTries*outcomePause)
		})
	}
}

func TestCancelBatchThroughTrouble(t *testing.T) {
	for operation, want := range map[string]bool{"OpenJobs": false, "Cancel": false, "Batch": false, "CompleteBatches": true} {
		run(t, operation, func(t *testing.T, w *worldJobs, s *Service) {
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
			answer = apptest.Must(s.CancelBatch(context.Background(), apptest.ClientA, b.ID))(t)
			require.Equal(t, job.StatusCancelled, answer.Outcome.Status)
		})
	}
}

// outcome gives how a batch ended, nil while it has not.
func (w *worldJobs) outcome(b *job.Batch) (o *job.BatchOutcome) {
	w.Store.Update(func() { o = w.Store.Batches[b.ID].Outcome })
	return o
}
