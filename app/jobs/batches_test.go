package jobs

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

func (w *world) submitBatch(s *Service, r job.BatchRequest) *job.Batch {
	w.T.Helper()
	b, replayed, err := s.SubmitBatch(w.T.Context(), r)
	require.NoError(w.T, err)
	require.False(w.T, replayed)
	for _, item := range b.Items {
		if item.Refusal == nil {
			w.enqueued(item.JobID)
		}
	}
	return b
}

func TestSubmitBatch(t *testing.T) {
	w := newWorld(t)
	r := newBatchRequest(
		newRequest(ofKind(""), func(r *job.Request) { r.CorrelationID, r.Params = "own", []byte(`{"a": 1}`) }),
		newRequest(deferred(time.Hour)),
		newRequest(ofKind(job.SuccessNormal), func(r *job.Request) { r.AutoRetry = true }),
		newRequest(calling("https://receiver.example")),
	)
	b := w.submitBatch(w.Service, r)
	require.Len(t, b.Items, 4)
	var jobs []*job.Job
	var ids []string
	for i, item := range b.Items {
		require.Equal(t, fmt.Sprint("item-", i), item.ItemID)
		require.Nil(t, item.Refusal)
		j := w.stored(item.JobID)
		require.Equal(t, []any{item.State, "request-1", "de", b.ID, 4}, []any{j.State, j.RequestID, j.Language, j.BatchID, j.MaxAttempts})
		require.Equal(t, r.ReceivedAt.UnixMicro()+int64(i), j.Definition.Seed, "each item has its own seed")
		jobs, ids = append(jobs, j), append(ids, j.ID.String())
	}
	require.IsIncreasing(t, ids, "ids are in the order of the request")
	require.Equal(t, job.Created, b.Items[1].State)
	require.Equal(t, "own", jobs[0].CorrelationID)
	require.True(t, jobs[2].AutoRetry)
	var tasks []job.Task // including the task of the deferred job
	for _, j := range jobs {
		tasks = append(tasks, job.Task{JobID: j.ID, Attempt: 1, ClientID: j.ClientID, WorkKind: j.WorkKind})
	}
	tasks[1].RunAt = *jobs[1].ExecutionAt
	require.Equal(t, tasks, w.Queue.Sent())
	require.Equal(t, []float64{4, 3}, []float64{w.Sum("jobs_submitted_total"), w.Sum("jobs_queued_total")})
	require.Len(t, w.Log.Lines(t, map[string]any{"msg": "job transition", "action": "submit", "next_state": "CREATED"}), 4)
	require.Len(t, w.Log.Lines(t, map[string]any{"msg": "job transition", "action": "submit", "next_state": "QUEUED"}), 3)
	require.Equal(t, []job.Notification{{ClientID: apptest.ClientA}}, w.Queue.Notifications())
	require.Equal(t, []job.ID{jobs[3].ID}, w.Queue.Delivered())

	r.CorrelationID = "trace"
	b = w.submitBatch(w.Service, r)
	require.Equal(t, "trace", b.CorrelationID)
	require.Equal(t, "trace", w.stored(b.Items[0].JobID).CorrelationID, "the batch's correlation id takes precedence")
}

// Promise: patterns Batch
func TestSubmitBatchRefusesItemByItem(t *testing.T) {
	now := time.Now().Truncate(time.Microsecond)
	w := newWorld(t, func(c *Config) { c.Clock = func() time.Time { return now } })
	late := func(d time.Duration) func(*job.Request) {
		return func(r *job.Request) {
			at := now.Add(-d)
			r.Type, r.ExecutionAt = job.Deferred, &at
		}
	}
	b := w.submitBatch(w.Service, newBatchRequest(
		newRequest(ofKind(job.PayloadInvalid)),
		newRequest(),
		newRequest(late(2*time.Second), func(r *job.Request) {
			r.Violations = []job.Violation{{Pointer: "/callback", Detail: "Not a URL."}, {Detail: "The whole item."}}
		}),
		newRequest(late(2*time.Second), flawed("/colour", true)),
		newRequest(late(time.Second+time.Microsecond)),
	))
	require.Equal(t, 4, b.Refused())
	require.Equal(t, 1, w.active())
	for i, want := range []struct {
		state    job.State
		code     job.Code
		pointers []string
	}{
		{"", job.CodeValidationFailed, []string{"/jobs/0/work_kind"}},
		{state: job.Queued},
		{"", job.CodeValidationFailed, []string{"/jobs/2/callback", "/jobs/2", "/jobs/2/execution_at"}},
		{"", job.CodeMalformed, []string{"/jobs/3/colour", "/jobs/3/execution_at"}},
		{"", job.CodeValidationFailed, []string{"/jobs/4/execution_at"}},
	} {
		item := b.Items[i]
		require.Equal(t, want.state, item.State, i)
		require.Equal(t, want.code != "", item.JobID.IsZero(), i)
		if item.Refusal != nil {
			require.Equal(t, want.code, item.Refusal.Code, i)
			require.Equal(t, want.pointers, pointers(item.Refusal.Violations), i)
		}
	}
	require.Equal(t, job.Load{Active: 1, Queued: 1}, w.Admission.Capacity.lease.used, "refused items reserve no room")
}

// The response must not be much larger than the request.
func TestBatchWithTooManyViolationsIsRefused(t *testing.T) {
	w := newWorld(t)
	wrong := newRequest(ofKind(job.PayloadInvalid))
	requests := make([]job.Request, job.MaxBatchItems)
	for i := range requests {
		requests[i] = wrong
	}
	b := w.submitBatch(w.Service, newBatchRequest(append(requests[:job.MaxViolations:job.MaxViolations], newRequest())...))
	require.Equal(t, job.MaxViolations, b.Refused(), "all violations are listed")
	var refused *job.Error
	_, _, err := w.SubmitBatch(t.Context(), newBatchRequest(requests...))
	require.ErrorAs(t, err, &refused)
	require.Equal(t, job.CodeValidationFailed, refused.Code)
	require.Len(t, refused.Violations, job.MaxViolations)
	require.Equal(t, "/jobs/99/work_kind", refused.Violations[99].Pointer)
	require.Contains(t, refused.Detail, "And 900 more")

	few := newBatchRequest(wrong, newRequest())
	few.Unlisted = 4321
	_, _, err = w.SubmitBatch(t.Context(), few)
	require.ErrorAs(t, err, &refused)
	require.Contains(t, refused.Detail, "And 4,321 more")
}

func TestBatchIsAcceptedCompletelyOrNotAtAll(t *testing.T) {
	w := newWorld(t)
	w.limit(w.Service, oneClient(5, 5))
	_, _, err := w.SubmitBatch(t.Context(), newBatchRequest(newRequests(6)...))
	require.Equal(t, job.CodeQueueFull, job.CodeOf(err))
	w.nothingDone()
	w.limit(w.Service, oneClient(5, 5))
	w.submitBatch(w.Service, newBatchRequest(newRequests(5)...))
	_, _, err = w.SubmitBatch(t.Context(), newBatchRequest(newRequest()))
	require.Equal(t, job.CodeQueueFull, job.CodeOf(err))

	w.cfg.Catalogue.Kinds = []job.Kind{job.PayloadInvalid}
	b := w.submitBatch(w.Service, newBatchRequest(newRequest(), newRequest(ofKind(""))))
	require.Equal(t, "/jobs/1/work_kind", b.Items[1].Refusal.Violations[0].Pointer, "no kind is allowed")
	require.Equal(t, 2, b.Refused(), "there is room for a batch without jobs")
}

func TestCancelBatch(t *testing.T) {
	w := newWorld(t)
	w.limit(w.Service, oneClient(1000, 1000))
	items := newRequests(100)
	for i := range 10 {
		items[i] = newRequest(deferred(time.Hour))
	}
	b := w.submitBatch(w.Service, newBatchRequest(items...))
	w.fail(b.Items[50].JobID, 1, job.DependencyFailed)
	w.run(b.Items[51].JobID, 1)
	w.Queue.Notifications()
	for range 2 { // a repetition changes nothing
		canceled := apptest.Must(w.CancelBatch(t.Context(), apptest.ClientA, b.ID))(t)
		require.Equal(t, map[job.State]int{job.Canceled: 99, job.Failed: 1}, canceled.Counts)
		require.NotNil(t, canceled.Outcome, "the batch is completed")
		require.Equal(t, job.StatusCompletedWithErrors, canceled.Outcome.Status)
		require.Equal(t, 99.0, w.Metric(w.World.Metrics.Canceled.WithLabelValues("SUCCESS_FAST")))
		require.Equal(t, []job.ID{b.Items[51].JobID}, w.Queue.Signals)
	}
	require.Len(t, w.Queue.Notifications(), 99+1, "one for each job and one for the batch")

	// If another process has completed the batch, CancelBatch returns the outcome.
	other := w.submitBatch(w.Service, newBatchRequest(newRequests(3)...))
	for _, item := range other.Items {
		apptest.Must(w.Cancel(t.Context(), apptest.ClientA, item.JobID))(t)
	}
	_, err := w.store.CompleteBatches(t.Context(), []job.ID{other.ID})
	require.NoError(t, err)
	answer := apptest.Must(w.CancelBatch(t.Context(), apptest.ClientA, other.ID))(t)
	require.Equal(t, job.StatusCancelled, answer.Outcome.Status)
}

func TestCancelBatchThroughTrouble(t *testing.T) {
	w := newWorld(t)
	b := w.submitBatch(w.Service, newBatchRequest(newRequests(3)...))
	cancel := func() (*job.Batch, error) { return w.CancelBatch(t.Context(), apptest.ClientA, b.ID) }
	accept := repotest.Refuse(t, w.url, "UPDATE ON jobs")
	require.Error(t, second(cancel()))
	accept()
	accept = repotest.Refuse(t, w.url, "UPDATE ON batches")
	answer := apptest.Must(cancel())(t)
	require.Equal(t, 3, answer.Counts[job.Canceled], "the jobs are canceled")
	require.Nil(t, answer.Outcome)

	var completing sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	completing.Go(func() { w.Completer.Run(ctx) })
	testkit.Eventually(t, "it is tried", func() bool {
		return len(w.Log.Lines(t, map[string]any{"level": "WARN", "msg": "cannot complete batches"})) > 0
	})
	accept()
	completed := map[string]any{"msg": "batch completed", "batch_id": b.ID.String(), "status": "CANCELLED"}
	testkit.Eventually(t, "it is tried again", func() bool { return len(w.Log.Lines(t, completed)) == 1 })
	stop()
	completing.Wait()
	require.Equal(t, job.StatusCancelled, apptest.Must(cancel())(t).Outcome.Status)
	w.Service.Store.Close()
	require.Error(t, second(cancel()))
}

func TestCancelBatchWhileAnotherProcessCompletesIt(t *testing.T) {
	w := newWorld(t)
	b := w.submitBatch(w.Service, newBatchRequest(newRequest()))
	apptest.Must(w.Cancel(t.Context(), apptest.ClientA, b.Items[0].JobID))(t)
	key := job.RequestKey{ClientID: apptest.ClientA, Key: "k"}
	_, _, err := w.store.Once(t.Context(), key, func(ctx context.Context) (job.Answer, error) {
		completed := apptest.Must(w.store.CompleteBatches(ctx, []job.ID{b.ID}))(t)
		require.Len(t, completed, 1)
		answer := apptest.Must(w.CancelBatch(t.Context(), apptest.ClientA, b.ID))(t) // the other process has not committed yet
		require.Nil(t, answer.Outcome)
		return job.Answer{Status: 200, Body: []byte("{}")}, nil
	})
	require.NoError(t, err)
	require.Equal(t, job.StatusCancelled, apptest.Must(w.CancelBatch(t.Context(), apptest.ClientA, b.ID))(t).Outcome.Status)
	require.Zero(t, w.Sum("batches_completed_total"), "the other process counts it")
}
