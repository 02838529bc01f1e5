package repo_test

import (
	"crypto/sha256"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestEmitWhileItRuns(t *testing.T) {
	f := setup(t)
	l := f.run()
	first := job.Emission{Name: "order.paid", Data: json.RawMessage(`{"order": 4711}`)}
	require.NoError(t, f.store.Emit(f.ctx(), l, 0, first))
	once := f.all(l.JobID)
	require.NoError(t, f.store.Emit(f.ctx(), l, 0, first), "a repeated call after a lost answer")
	require.Equal(t, once, f.all(l.JobID), "the event exists already")
	require.NoError(t, f.store.Emit(f.ctx(), l, 1, job.Emission{Name: "order.sent"}))

	log := f.log(l.JobID)
	require.Equal(t, []string{"job.created", "job.queued", "job.assigned", "job.running", "event.emitted", "event.emitted"}, f.names(l.JobID))
	require.Equal(t, map[string]any{"order": 4711.0}, log[4].Data["data"])
	require.Equal(t, "SUCCESS_FAST", log[4].Data["work_kind"])
	require.Equal(t, "order.sent", log[5].Data["name"])
	require.Nil(t, log[5].Data["data"])
	require.Equal(t, 6, f.job(l.JobID).EventSeq)
	f.finish(success(l))
	require.Len(t, f.report(l.JobID, 1).Events, 7)

	leases := stale(f, func() job.ClaimID { return f.run() })
	leases["not started"] = f.assigned(f.submit(), 1)
	f.requireStale(leases, func(job.ClaimID) error { return f.store.Emit(f.ctx(), l, 0, job.Emission{Name: "late"}) })
}

func (f *fixture) anEvent(id job.ID) pgx.Tx {
	tx := f.begin()
	must(tx.Exec(f.ctx(), `UPDATE jobs SET event_seq = event_seq + 1 WHERE job_id = $1`, id.String()))(f.t)
	must(tx.Exec(f.ctx(), `INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data)
		SELECT job_id, client_id, event_seq, gen_random_uuid(), 'event.emitted', 1, now(), '{}' FROM jobs WHERE job_id = $1`, id.String()))(f.t)
	return tx
}

func TestEmitRetriesAfterAConcurrentChange(t *testing.T) {
	f := setup(t)
	l := f.run()
	tx := f.anEvent(l.JobID)
	done := begin(func() error { return f.store.Emit(f.ctx(), l, 0, job.Emission{Name: "again"}) })
	f.awaitBlocked(1)
	require.NoError(t, tx.Commit(f.ctx()))
	require.NoError(t, <-done)
	require.Len(t, f.log(l.JobID), 5, "the event exists and is not written again")
}

func TestFinishWithSuccess(t *testing.T) {
	f := setup(t)
	batch := newID()
	l := f.run(func(s *job.Submission) { s.Job.BatchID = batch })
	end := success(l)
	done := f.finish(end)
	j := f.job(l.JobID)
	require.InDelta(t, j.FinishedAt.Sub(*j.StartedAt).Seconds(), done.Duration.Seconds(), 0.0006)
	require.Equal(t, job.Finished{ClaimID: l, ClientID: f.client, BatchID: batch, State: job.Succeeded, WorkKind: job.SuccessFast,
		Duration: done.Duration}, done)
	require.Equal(t, []any{batch, job.Succeeded, job.OutcomeSuccess, *j.FinishedAt}, []any{j.BatchID, j.State, j.Outcome, j.UpdatedAt})
	require.Nil(t, j.Failure)
	require.Equal(t, &job.ResultInfo{
		MediaType: "text/plain", Size: len(end.Result.Body), SHA256: end.Result.SHA256, ExpiresAt: j.FinishedAt.Add(24 * time.Hour),
	}, j.Result)
	require.Equal(t, end.Result.Body, one[[]byte](f, `SELECT body FROM results WHERE job_id = $1`, l.JobID.String()))
	require.Equal(t, sha256.Sum256(end.Result.Body), j.Result.SHA256)
	require.True(t, one[bool](f, `SELECT worker_id IS NULL FROM jobs WHERE job_id = $1`, l.JobID.String()))

	r := f.report(l.JobID, 0)
	require.Equal(t, job.Attempt{Number: 1, State: job.Succeeded, Outcome: job.OutcomeSuccess, StartedAt: j.StartedAt,
		FinishedAt: j.FinishedAt}, r.Attempt)
	require.Equal(t, done.Duration, r.Duration)
	require.Equal(t, f.worker.String(), one[string](f, `SELECT worker_id::text FROM reports WHERE job_id = $1`, l.JobID.String()),
		"who ran it")
}

func TestFinishWithFailure(t *testing.T) {
	f := setup(t)
	for _, reason := range []job.Reason{job.FailedOnce, job.FailedImmediately} { // the first is retryable, the second is not
		l := f.run()
		end := failure(l, reason)
		done := f.finish(end)
		require.Equal(t, job.Failed, done.State)
		require.Nil(t, done.Next)
		j := f.job(l.JobID)
		require.Equal(t, []any{job.Failed, job.OutcomeFailed, end.Failure, end.Failure.Retryable},
			[]any{j.State, j.Outcome, j.Failure, j.CanRetry()})
		require.Nil(t, j.Result)
		data := f.log(l.JobID)[4].Data
		require.Equal(t, []any{string(end.Failure.Code), string(reason), "SUCCESS_FAST"}, []any{data["code"], data["reason"], data["work_kind"]})
		require.Equal(t, job.Attempt{
			Number: 1, State: job.Failed, Outcome: job.OutcomeFailed, StartedAt: j.StartedAt, FinishedAt: j.FinishedAt, Failure: end.Failure,
		}, f.report(l.JobID, 1).Attempt)
	}
}

func (f *fixture) requireRetried(id job.ID, wait time.Duration) {
	j := f.job(id)
	require.Equal(f.t, []any{job.Queued, 2, j.UpdatedAt.Add(wait), job.Outcome("")}, []any{j.State, j.Attempt, j.RunAt, j.Outcome})
	require.Nil(f.t, j.Failure)
	require.Nil(f.t, j.StartedAt)
	require.Nil(f.t, j.FinishedAt)
	require.True(f.t, one[bool](f, `SELECT dispatch = 0 AND worker_id IS NULL AND queued_at = updated_at
		AND num_nulls(failure_reason, failure_code, failure_retryable, failure_retry_after, failure_stage, failure_detail) = 6
		FROM jobs WHERE job_id = $1`, id.String()))
}

// Promise: contract 11
func TestFinishWithAutomaticRetry(t *testing.T) {
	f := setup(t)
	l := f.run()
	f.exec(`UPDATE jobs SET dispatch = 3 WHERE job_id = $1`, l.JobID.String())
	end := withRetry(failure(l, job.FailedOnce), 90*time.Second)
	done := f.finish(end)
	f.requireRetried(l.JobID, 90*time.Second)
	require.Equal(t, job.Queued, done.State)
	require.Equal(t, &job.Task{JobID: l.JobID, Attempt: 2, RunAt: f.job(l.JobID).RunAt, ClientID: f.client, WorkKind: job.SuccessFast,
		Reason: job.FailedOnce}, done.Next)

	r := f.report(l.JobID, 0)
	require.Equal(t, 1, r.Number)
	require.Equal(t, end.Failure, r.Failure, "the failed attempt is kept")
	require.Equal(t, job.EventFailed, r.Events[len(r.Events)-1].Name, "job.retried belongs to the next attempt")

	c, not := f.tryClaim(l.JobID, 2)
	require.Nil(t, c)
	require.True(t, not.StillWaiting, "not before its backoff is over")
	require.Empty(t, f.waitingJobs(job.QueueCursor{}, 0, 10))
	f.exec(`UPDATE jobs SET run_at = now() WHERE job_id = $1`, l.JobID.String())
	waiting := f.taskOf(l.JobID)
	waiting.Reason = job.FailedOnce
	require.Equal(t, []job.Task{waiting}, f.waitingJobs(job.QueueCursor{}, 0, 10), "the task has the reason of the previous failure")
}

// Promise: contract 5a
// Promise: contract 11
func TestFinishOrdersItsEvents(t *testing.T) {
	f := setup(t)
	emit := func(e job.Finish) job.Finish {
		e.Emit = &job.Emission{Name: "order.shipped", Data: json.RawMessage(`{"n":1}`)}
		return e
	}
	exhausted := func(e job.Finish) job.Finish { e.Exhausted = true; return e }
	fails := func(c job.ClaimID) job.Finish { return failure(c, job.FailedOnce) }
	retries := func(e job.Finish) job.Finish { return withRetry(e, 0) }
	for name, test := range map[string]struct {
		end      func(c job.ClaimID) job.Finish
		events   []string
		reported int // number of these events in the returned report
	}{
		"success":           {success, []string{job.EventSucceeded}, 1},
		"success, emitting": {func(c job.ClaimID) job.Finish { return emit(success(c)) }, []string{job.EventEmitted, job.EventSucceeded}, 2},
		"failure":           {fails, []string{job.EventFailed}, 1},
		"last failure": {func(c job.ClaimID) job.Finish { return exhausted(fails(c)) },
			[]string{job.EventFailed, job.EventRetriesExhausted}, 2},
		"failure, retried": {func(c job.ClaimID) job.Finish { return retries(fails(c)) }, []string{job.EventFailed, job.EventRetried}, 1},
		"all at once": {func(c job.ClaimID) job.Finish { return retries(exhausted(emit(fails(c)))) },
			[]string{job.EventEmitted, job.EventFailed, job.EventRetriesExhausted, job.EventRetried}, 3},
	} {
		l := f.run()
		f.finish(test.end(l))
		j, log := f.job(l.JobID), f.log(l.JobID)
		require.Equal(t, test.events, f.names(l.JobID)[4:], name)
		for _, e := range log[4:] {
			require.Equal(t, j.UpdatedAt, e.At, name)
			if e.Name == job.EventEmitted || e.Name == job.EventRetriesExhausted {
				require.Equal(t, "", e.Prev+e.Next, name)
			}
			if e.Name == job.EventEmitted {
				require.Empty(t, cmp.Diff(map[string]any{"work_kind": "SUCCESS_FAST", "duration_ms": 1000.0, "expected_outcome": "SUCCEEDED",
					"name": "order.shipped", "data": map[string]any{"n": 1.0}}, e.Data), name)
			}
		}
		r := f.report(l.JobID, 1)
		require.Len(t, r.Events, 4+test.reported, name)
		require.Equal(t, test.events[test.reported-1], r.Events[len(r.Events)-1].Name, name)
	}
	f.checkInvariants()
}

func TestFinishIsFenced(t *testing.T) {
	f := setup(t)
	leases := stale(f, func() job.ClaimID { return f.run() })
	leases["not started"] = f.assigned(f.submit(), 1)
	for _, end := range []func(c job.ClaimID) job.Finish{
		success,
		func(c job.ClaimID) job.Finish { return failure(c, job.WorkerLost) },
		func(c job.ClaimID) job.Finish { return withRetry(failure(c, job.WorkerLost), 0) },
	} {
		f.requireStale(leases, func(c job.ClaimID) error { return errOf(f.store.Finish(f.ctx(), end(c))) })
	}
}
