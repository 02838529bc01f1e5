package repo_test

import (
	"crypto/sha256"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

func TestEmitWhileItRuns(t *testing.T) {
	f := setup(t)
	l := f.run()
	first := job.Emission{Name: "order.paid", Data: json.RawMessage(`{"order": 4711}`)}
	require.NoError(t, f.store.Emit(f.ctx(), l, 0, first))
	once := f.all(l.JobID)
	require.NoError(t, f.store.Emit(f.ctx(), l, 0, first), "its answer was lost")
	require.Equal(t, once, f.all(l.JobID), "it is there already")
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

	e := job.Emission{Name: "late"}
	assigned, ended := f.assigned(f.submit(), 1), f.run()
	f.finish(success(ended))
	other := f.run()
	before := f.all(other.JobID)
	for name, l := range map[string]job.Lease{
		"not started": assigned, "ended": ended,
		"older fence":     {JobID: other.JobID, Attempt: other.Attempt, Fence: other.Fence - 1},
		"other attempt":   {JobID: other.JobID, Attempt: other.Attempt + 1, Fence: other.Fence},
		"job of no table": {JobID: newID(), Attempt: 1, Fence: 1},
	} {
		require.ErrorIs(t, f.store.Emit(f.ctx(), l, 0, e), job.ErrStale, name)
	}
	require.Equal(t, before, f.all(other.JobID))
}

// A change of the row that is committed after the statement began makes it look again.
func TestEmitLooksAgain(t *testing.T) {
	f := setup(t)
	l := f.run()
	tx := must(f.db.Begin(f.ctx()))(t)
	must(tx.Exec(f.ctx(), `UPDATE jobs SET event_seq = event_seq + 1 WHERE job_id = $1`, l.JobID.String()))(t)
	_, err := tx.Exec(f.ctx(), `INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data)
		SELECT job_id, client_id, event_seq, gen_random_uuid(), 'event.emitted', 1, now(), '{}' FROM jobs WHERE job_id = $1`, l.JobID.String())
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- f.store.Emit(f.ctx(), l, 0, job.Emission{Name: "again"}) }()
	testkit.Eventually(t, "it comes about", func() bool {
		return one[int](f, `SELECT count(*)::int FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`) > 0
	})
	require.NoError(t, tx.Commit(f.ctx()))
	require.NoError(t, <-done)
	require.Len(t, f.log(l.JobID), 5, "the event is there: it is not written again")
}

// What a request plans for failures is with the attempt, wherever it is read.
func TestPlannedFailuresAreReadWithTheJob(t *testing.T) {
	f := setup(t)
	planned := []job.PlannedFailure{{Attempts: []int{1}, Problem: job.PlannedProblem{Title: "Out of stock",
		Extensions: json.RawMessage(`{"item": 17}`)}}}
	l := f.run(func(s *job.Submission) {
		d := job.DefineCustom(job.Execute, &job.Behavior{Failures: planned, Duration: time.Second}, time.Now(), nil)
		s.Job.WorkKind, s.Job.Definition = job.Custom, &d
	})
	f.finish(failure(l, job.CustomFailed))
	require.Equal(t, planned, f.job(l.JobID).Origin().Failures)
	require.Equal(t, planned, f.report(l.JobID, 1).Origin.Failures)
	origin, _ := must2(f.store.Attempts(f.ctx(), f.client, l.JobID))(t)
	require.Equal(t, planned, origin.Failures)
	log := must(f.store.Events(f.ctx(), f.client, l.JobID, 0, 100))(t)
	require.Equal(t, planned, log.Events[len(log.Events)-1].Origin.Failures)
}

func TestFinishWithSuccess(t *testing.T) {
	f := setup(t)
	batch := newID()
	l := f.run(func(s *job.Submission) { s.Job.BatchID = batch })
	end := success(l)
	done := f.finish(end)
	j := f.job(l.JobID)
	ran := j.FinishedAt.Sub(*j.StartedAt)
	require.InDelta(t, ran.Seconds(), done.Duration.Seconds(), 0.0006)
	require.Equal(t, job.Finished{Lease: l, ClientID: f.client, BatchID: batch, State: job.Succeeded, WorkKind: job.SuccessFast,
		Duration: done.Duration}, done)
	require.Equal(t, batch, j.BatchID)

	require.Equal(t, job.Succeeded, j.State)
	require.Equal(t, job.OutcomeSuccess, j.Outcome)
	require.Nil(t, j.Failure)
	require.Equal(t, *j.FinishedAt, j.UpdatedAt)
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
	for _, reason := range []job.Reason{job.FailedOnce, job.FailedImmediately} { // retryable or not
		l := f.run()
		end := failure(l, reason)
		done := f.finish(end)
		require.Equal(t, job.Failed, done.State)
		require.Nil(t, done.Next)
		j := f.job(l.JobID)
		require.Equal(t, job.Failed, j.State)
		require.Equal(t, job.OutcomeFailed, j.Outcome)
		require.Equal(t, end.Failure, j.Failure)
		require.Nil(t, j.Result)
		require.Equal(t, end.Failure.Retryable, j.CanRetry())
		log := f.log(l.JobID)
		require.Equal(t, string(end.Failure.Code), log[4].Data["code"])
		require.Equal(t, string(reason), log[4].Data["reason"])
		require.Equal(t, "SUCCESS_FAST", log[4].Data["work_kind"])

		r := f.report(l.JobID, 1)
		require.Equal(t, job.Attempt{
			Number: 1, State: job.Failed, Outcome: job.OutcomeFailed, StartedAt: j.StartedAt, FinishedAt: j.FinishedAt, Failure: end.Failure,
		}, r.Attempt)
	}
}

func TestFinishWithAutomaticRetry(t *testing.T) {
	f := setup(t)
	l := f.run()
	f.exec(`UPDATE jobs SET dispatch = 3, dispatch_epoch = 1 WHERE job_id = $1`, l.JobID.String())
	end := withRetry(failure(l, job.FailedOnce), 90*time.Second)
	done := f.finish(end)

	j := f.job(l.JobID)
	require.Equal(t, job.Queued, done.State)
	require.Equal(t, &job.Task{JobID: l.JobID, Attempt: 2, RunAt: j.RunAt}, done.Next)
	require.Equal(t, job.Queued, j.State)
	require.Equal(t, 2, j.Attempt)
	require.Equal(t, j.UpdatedAt.Add(90*time.Second), j.RunAt)
	require.Empty(t, j.Outcome)
	require.Nil(t, j.Failure)
	require.Nil(t, j.StartedAt)
	require.Nil(t, j.FinishedAt)
	require.True(t, one[bool](f, `SELECT dispatch = 0 AND dispatch_epoch IS NULL AND worker_id IS NULL AND queued_at = updated_at
		AND num_nulls(failure_reason, failure_code, failure_retryable, failure_retry_after, failure_stage, failure_detail) = 6
		FROM jobs WHERE job_id = $1`, l.JobID.String()))

	r := f.report(l.JobID, 0)
	require.Equal(t, 1, r.Number)
	require.Equal(t, end.Failure, r.Failure, "the failed attempt is kept")
	require.Equal(t, job.EventFailed, r.Events[len(r.Events)-1].Name, "the retry belongs to the next attempt")

	c, not := f.tryClaim(l.JobID, 2)
	require.Nil(t, c)
	require.True(t, not.StillWaiting, "not before its backoff is over")
}

func TestFinishOrdersItsEvents(t *testing.T) {
	f := setup(t)
	emit := func(e job.Finish) job.Finish {
		e.Emit = &job.Emission{Name: "order.shipped", Data: json.RawMessage(`{"n":1}`)}
		return e
	}
	exhausted := func(e job.Finish) job.Finish { e.Exhausted = true; return e }
	fails := func(l job.Lease) job.Finish { return failure(l, job.FailedOnce) }
	retries := func(e job.Finish) job.Finish { return withRetry(e, 0) }
	tests := map[string]struct {
		end      func(l job.Lease) job.Finish
		events   []string
		reported int // of these in the report
	}{
		"success":           {success, []string{job.EventSucceeded}, 1},
		"success, emitting": {func(l job.Lease) job.Finish { return emit(success(l)) }, []string{job.EventEmitted, job.EventSucceeded}, 2},
		"failure":           {fails, []string{job.EventFailed}, 1},
		"last failure": {func(l job.Lease) job.Finish { return exhausted(fails(l)) },
			[]string{job.EventFailed, job.EventRetriesExhausted}, 2},
		"failure, retried": {func(l job.Lease) job.Finish { return retries(fails(l)) }, []string{job.EventFailed, job.EventRetried}, 1},
		"all at once": {func(l job.Lease) job.Finish { return retries(exhausted(emit(fails(l)))) },
			[]string{job.EventEmitted, job.EventFailed, job.EventRetriesExhausted, job.EventRetried}, 3},
	}
	for name, test := range tests {
		l := f.run()
		f.finish(test.end(l))
		j, log := f.job(l.JobID), f.log(l.JobID)
		require.Equal(t, test.events, f.names(l.JobID)[4:], name)
		require.Equal(t, len(log), j.EventSeq, name)
		for i, e := range log[4:] {
			require.Equal(t, 5+i, e.Seq, name)
			require.Equal(t, j.UpdatedAt, e.At, name)
			if e.Name == job.EventRetried {
				require.Equal(t, 2, e.Attempt, name)
			} else {
				require.Equal(t, 1, e.Attempt, name)
			}
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
}

func TestFinishIsFenced(t *testing.T) {
	f := setup(t)
	leases := stale(f, func() job.Lease { return f.run() })
	leases["not started"] = f.assigned(f.submit(), 1)
	ended := f.run()
	f.finish(success(ended))
	leases["ended"] = ended
	next := f.run()
	f.finish(withRetry(failure(next, job.FailedOnce), 0))
	f.claim(next.JobID, 2)
	leases["its next attempt runs"] = next

	for name, l := range leases {
		for _, end := range []job.Finish{success(l), failure(l, job.WorkerLost), withRetry(failure(l, job.WorkerLost), 0)} {
			before := f.all(l.JobID)
			_, err := f.store.Finish(f.ctx(), end)
			require.ErrorIs(t, err, job.ErrStale, name)
			require.Equal(t, before, f.all(l.JobID), name)
		}
	}
	require.Zero(t, f.storageErrors())
}

// The schema refuses what the callers must not ask for, and nothing of the statement stays.
func TestFinishRefusesNonsense(t *testing.T) {
	f := setup(t)
	last := f.run(attempts(1))
	ends := map[string]job.Finish{
		"retry after the last attempt": withRetry(failure(last, job.FailedOnce), 0),
		"failed without a failure":     {Lease: f.run(), State: job.Failed},
		"no end":                       {Lease: f.run(), State: job.Running},
		"canceled":                     {Lease: f.run(), State: job.Canceled},
		"unknown state":                {Lease: f.run(), State: "DREAMING"},
	}
	withFailure := success(f.run())
	withFailure.Failure = job.NewFailure(job.FailedOnce, 1, backoff)
	ends["succeeded with a failure"] = withFailure
	for name, end := range ends {
		before := f.all(end.JobID)
		_, err := f.store.Finish(f.ctx(), end)
		require.Equal(t, job.CodeInternal, job.CodeOf(err), name)
		require.Equal(t, before, f.all(end.JobID), name)
	}
}
