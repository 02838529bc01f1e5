package repo_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

func TestInsertJobStoresAllOfIt(t *testing.T) {
	f := setup(t)
	sub := f.submission(func(s *job.Submission) {
		j := &s.Job
		j.Type, j.AutoRetry = job.EmitEvent, true
		j.Definition.Emit = &job.Emission{Name: "order.shipped", Data: json.RawMessage(`{"n": 1}`)}
		j.Params = json.RawMessage("{ \"b\": 1.50, \"a\": \"x\\u0000y\", \"a\": null }")
		j.Callback, j.CorrelationID = "https://example.org/a?b=c", `'; DROP TABLE jobs; --`
		j.TraceParent, j.Language, j.RequestID = "00-4bf9-00f0-01", "de-CH", "r-\u00e4\u4e16\U0001f600"
	})
	receipt := must(f.store.InsertJob(f.ctx(), sub))(t)
	require.Equal(t, job.Receipt{JobID: sub.Job.ID, State: job.Queued, CreatedAt: receipt.CreatedAt}, receipt)

	want := sub.Job
	want.State, want.Attempt, want.EventSeq = job.Queued, 1, 2
	want.CreatedAt, want.UpdatedAt, want.RunAt = receipt.CreatedAt, receipt.CreatedAt, receipt.CreatedAt
	require.Empty(t, cmp.Diff(&want, f.job(sub.Job.ID)))
	require.WithinDuration(t, time.Now(), receipt.CreatedAt, testkit.Patience)

	_, err := f.store.InsertJob(f.ctx(), sub)
	require.Equal(t, job.CodeConflict, job.CodeOf(err))
	require.Empty(t, cmp.Diff(&want, f.job(sub.Job.ID)))
}

// Promise: contract 5a
func TestInsertJobWritesEvents(t *testing.T) {
	f := setup(t)
	data := map[string]any{"work_kind": "SUCCESS_FAST", "duration_ms": 1000.0, "expected_outcome": "SUCCEEDED"}

	sub := f.submission()
	now := must(f.store.InsertJob(f.ctx(), sub))(t)
	require.Empty(t, cmp.Diff([]event{
		{1, job.EventCreated, "", "CREATED", 1, now.CreatedAt, data},
		{2, job.EventQueued, "CREATED", "QUEUED", 1, now.CreatedAt, data},
	}, f.log(sub.Job.ID)))

	sub = f.submission(deferred(time.Hour))
	later := must(f.store.InsertJob(f.ctx(), sub))(t)
	require.Equal(t, job.Created, later.State)
	require.Empty(t, cmp.Diff([]event{{1, job.EventCreated, "", "CREATED", 1, later.CreatedAt, data}}, f.log(sub.Job.ID)))
	stored := f.job(sub.Job.ID)
	require.Nil(t, stored.Params)
	require.Equal(t, job.Created, stored.State)
	require.Equal(t, *sub.Job.ExecutionAt, *stored.ExecutionAt)
	require.Equal(t, *sub.Job.ExecutionAt, stored.RunAt)

	id := f.submit(deferred(-time.Minute)) // the time was in the future when the request was checked
	require.Equal(t, job.Created, f.state(id))
	require.True(t, one[bool](f, `SELECT run_at = created_at AND execution_at < created_at - interval '50s'
		FROM jobs WHERE job_id = $1`, id.String()),
		"it is due from now on, and stays as it was given")
	n := len(f.queueDue(10))
	require.Equal(t, 1, n)
}

func TestEventIDsAreVersion7(t *testing.T) {
	f := setup(t)
	f.exec(`CREATE TABLE moments AS SELECT to_timestamp(i * 86400.123) AS at FROM generate_series(1, 20000, 7) i`)
	require.Equal(t, 0, one[int](f, `SELECT count(*)::int FROM (SELECT at, uuid7(at)::text AS id FROM moments) m
		WHERE substr(id, 15, 1) <> '7' OR substr(id, 20, 1) NOT IN ('8', '9', 'a', 'b')
			OR abs(('x' || substr(id, 1, 8) || substr(id, 10, 4))::bit(48)::bigint - extract(epoch FROM at) * 1000) > 0.5`))
	require.Equal(t, 1000, one[int](f, `SELECT count(DISTINCT uuid7(to_timestamp(1)))::int FROM generate_series(1, 1000)`))
}

func badRows(f *fixture) map[string]job.Submission {
	return map[string]job.Submission{
		"NUL in a text":       f.submission(func(s *job.Submission) { s.Job.Callback = "a\x00b" }),
		"invalid UTF-8":       f.submission(func(s *job.Submission) { s.Job.Language = "\xff" }),
		"NUL in an event":     f.submission(func(s *job.Submission) { s.Job.Definition.Emit = &job.Emission{Data: json.RawMessage(`"\u0000"`)} }),
		"broken params":       f.submission(func(s *job.Submission) { s.Job.Params = json.RawMessage(`{`) }),
		"unknown type":        f.submission(func(s *job.Submission) { s.Job.Type = "DREAM" }),
		"no client":           f.submission(func(s *job.Submission) { s.Job.ClientID = job.ID{} }),
		"no attempts":         f.submission(attempts(0)),
		"EXECUTE with a time": f.submission(deferred(time.Hour), func(s *job.Submission) { s.Job.Type = job.Execute }),
	}
}

// Promise: contract 14c
func TestInsertJobOneBadRowFailsAlone(t *testing.T) {
	f := setup(t, patient)
	bad := badRows(f)
	const good = 50
	names := slices.Collect(maps.Keys(bad))
	errs, refused := make([]error, good), make([]error, len(bad))
	f.inOneFlush("insert", func() { f.submit() }, good+len(bad), func(i int) {
		if i < good {
			_, errs[i] = f.store.InsertJob(f.ctx(), f.submission())
			return
		}
		sub := bad[names[i-good]]
		sub.IdempotencyKey = names[i-good]
		_, refused[i-good] = f.store.InsertJob(f.ctx(), sub)
	})
	require.NoError(t, errors.Join(errs...))
	for i, err := range refused {
		name := names[i]
		require.Equal(t, job.CodeInternal, job.CodeOf(err), "%s: %v", name, err)
		var e *job.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "The data could not be stored.", e.Detail, name)
	}
	require.Equal(t, []int{good + 2, 2 * (good + 2)}, []int{f.countJobs(), f.count("events")})
	require.Zero(t, f.count("idempotency_keys"), "a key without its job")
	require.Equal(t, 3, f.awaitFlushed("insert", good+len(bad)+2))
}

// A blocked flush does not delay the commit of the next flush. Submission.Committed is still called in the order of created_at.
func TestCommitsAreHandedOverInOrder(t *testing.T) {
	f := setup(t, patient)
	f.store.KeepOrder(testkit.Patience)
	f.submit() // the store learns Postgres' time, so that it can set created_at in later flushes
	handed := make(chan job.Receipt, 2)
	committed := func(s *job.Submission) { s.Committed = func(r job.Receipt) { handed <- r } }
	unlock := f.lock(`INSERT INTO idempotency_keys (client_id, endpoint, key, request_hash, resource_id, created_at, expires_at)
		VALUES ($1, 'jobs', 'k', $2, $3, now(), now() + interval '1 h')`, f.client, make([]byte, 32), newID().String())
	heldUp := begin(func() error { return errOf(f.store.InsertJob(f.ctx(), f.submission(keyed("k"), committed))) })
	f.awaitBlocked(1)
	second := must(f.store.InsertJob(f.ctx(), f.submission(committed)))(t)
	require.Empty(t, handed, "the second waits for the first")
	unlock()
	require.NoError(t, <-heldUp)
	first := <-handed
	require.Equal(t, second, <-handed)
	require.True(t, first.CreatedAt.Before(second.CreatedAt))
}

// Promise: patterns Manual Cleanup
func TestDeleteRemovesAFinalJobWithAllThatBelongsToIt(t *testing.T) {
	f := setup(t)
	other := f.at(job.Succeeded)
	kept := f.all(other)
	for _, s := range []job.State{job.Succeeded, job.Failed, job.Canceled} {
		id := f.at(s)
		require.NoError(t, f.store.Delete(f.ctx(), f.client, id))
		for _, table := range []string{"jobs", "events", "reports", "results"} {
			require.Zero(t, one[int](f, `SELECT count(*)::int FROM `+table+` WHERE job_id = $1`, id.String()), table)
		}
		_, err := f.store.Job(f.ctx(), f.client, id)
		require.Equal(t, job.CodeJobGone, job.CodeOf(err))
		var gone *job.Error
		require.ErrorAs(t, err, &gone)
		require.WithinDuration(t, time.Now(), *gone.ExpiredAt, testkit.Patience)

		require.NoError(t, f.store.Delete(f.ctx(), f.client, id), "again")
		require.Equal(t, *gone.ExpiredAt, one[time.Time](f, `SELECT expired_at FROM tombstones WHERE job_id = $1`, id.String()))
	}
	require.Equal(t, kept, f.all(other))
	f.checkInvariants()
}

// Promise: patterns Manual Cleanup
func TestDeleteRefusesJobsThatAreNotFinal(t *testing.T) {
	f := setup(t)
	for _, s := range []job.State{job.Created, job.Queued, job.Assigned, job.Running} {
		id := f.at(s)
		before := f.all(id)
		err := f.store.Delete(f.ctx(), f.client, id)
		require.Equal(t, job.CodeConflict, job.CodeOf(err))
		require.ErrorContains(t, err, "is "+string(s)+";")
		require.Equal(t, before, f.all(id))
	}
}

// While the delete waits for the row, the job is retried and ends again. The delete must also remove the rows that were written meanwhile.
func TestDeleteOfAJobThatIsRetriedMeanwhile(t *testing.T) {
	f := setup(t, patient)
	id := f.at(job.Failed)
	tx := f.anEvent(id)
	deleted := begin(func() error { return f.store.Delete(f.ctx(), f.client, id) })
	f.awaitBlocked(1)
	require.NoError(t, tx.Commit(f.ctx()))
	require.NoError(t, <-deleted)
	require.Zero(t, f.count("jobs")+f.count("events"))
}

func (f *fixture) at(s job.State) job.ID {
	switch s {
	case job.Created:
		return f.submit(deferred(time.Hour))
	case job.Queued:
		return f.submit()
	case job.Assigned:
		return f.assigned(f.submit(), 1).JobID
	case job.Running:
		return f.run().JobID
	case job.Failed:
		return f.failed(job.FailedOnce)
	}
	id := f.submit()
	f.end(id, s, "")
	return id
}

// Promise: patterns Lifecycle States, Cancellation
func TestCancelFromEachState(t *testing.T) {
	f := setup(t)
	for _, from := range []job.State{job.Created, job.Queued, job.Assigned, job.Running} {
		id, batch := f.at(from), newID()
		f.exec(`UPDATE jobs SET batch_id = $2, correlation_id = 'c-1' WHERE job_id = $1`, id.String(), batch.String())
		started := f.job(id).StartedAt
		change, before := must2(f.store.Cancel(f.ctx(), f.client, id))(t)

		j := f.job(id)
		require.Equal(t, job.Change{JobID: id, State: job.Canceled, Attempt: 1, UpdatedAt: j.UpdatedAt, RunAt: j.RunAt, Changed: true}, change,
			from)
		require.Equal(t, &job.Job{
			ID: id, ClientID: f.client, State: from, WorkKind: job.SuccessFast, RequestID: "r-1", Definition: f.submission().Job.Definition,
			BatchID: batch, CorrelationID: "c-1", StartedAt: started,
		}, before, "what it was")
		require.Equal(t, []any{job.Canceled, job.OutcomeCanceled, started}, []any{j.State, j.Outcome, j.StartedAt})
		require.True(t, one[bool](f, `SELECT worker_id IS NULL FROM jobs WHERE job_id = $1`, id.String()))

		log := f.log(id)
		last := log[len(log)-1]
		require.Equal(t, []any{job.EventCanceled, string(from), "CANCELED", j.EventSeq}, []any{last.Name, last.Prev, last.Next, last.Seq})

		r := f.report(id, 0)
		require.Equal(t, job.Attempt{Number: 1, State: job.Canceled, Outcome: job.OutcomeCanceled, StartedAt: started,
			FinishedAt: j.FinishedAt}, r.Attempt)
		require.Len(t, r.Events, len(log))
		ran := 0.0
		if started != nil {
			ran = j.FinishedAt.Sub(*started).Seconds()
		}
		require.InDelta(t, ran, r.Duration.Seconds(), 0.0006)
	}
}

func (f *fixture) requireUnchanged(name string, id job.ID, ask func() job.Change) {
	all, j := f.all(id), f.job(id)
	require.Equal(f.t, job.Change{JobID: id, State: j.State, Attempt: j.Attempt, UpdatedAt: j.UpdatedAt, RunAt: j.RunAt}, ask(), name)
	require.Equal(f.t, all, f.all(id), name)
}

func TestCancelsOfOneFlush(t *testing.T) {
	f := setup(t, patient)
	ids := []job.ID{f.submit(func(s *job.Submission) { s.Job.ClientID = newID() }), f.run().JobID, f.at(job.Succeeded)}
	changes, errs := make([]job.Change, len(ids)), make([]error, len(ids))
	f.inOneFlush("cancel", func() { _, _, _ = f.store.Cancel(f.ctx(), f.client, newID()) }, len(ids), func(i int) {
		changes[i], _, errs[i] = f.store.Cancel(f.ctx(), f.client, ids[i])
	})
	require.Equal(t, job.CodeJobNotFound, job.CodeOf(errs[0]))
	require.True(t, errs[1] == nil && changes[1].Changed && changes[1].JobID == ids[1])
	require.True(t, errs[2] == nil && !changes[2].Changed && changes[2].State == job.Succeeded)
}

// Promise: contract 5c
// Promise: patterns Lifecycle States b
func TestRetryQueuesTheNextAttempt(t *testing.T) {
	f := setup(t)
	id := f.at(job.Failed)
	f.exec(`UPDATE jobs SET dispatch = 3 WHERE job_id = $1`, id.String())
	failed := f.job(id)
	change := must(f.store.Retry(f.ctx(), f.client, id, 1, time.Minute, ""))(t)
	f.requireRetried(id, time.Minute)
	j := f.job(id)
	require.Equal(t, job.Change{JobID: id, State: job.Queued, Attempt: 2, UpdatedAt: j.UpdatedAt, RunAt: j.RunAt, Changed: true}, change)

	log := f.log(id)
	last := log[len(log)-1]
	require.Equal(t, []any{job.EventRetried, "FAILED", "QUEUED", 2}, []any{last.Name, last.Prev, last.Next, last.Attempt})
	r := f.report(id, 0)
	require.Equal(t, failed.CurrentAttempt(), r.Attempt, "the failed attempt does not change")
	require.Len(t, r.Events, len(log)-1)
}

// Promise: contract 11
func TestRetryGuards(t *testing.T) {
	f := setup(t)
	type request struct {
		id      job.ID
		attempt int
	}
	tests := map[string]request{
		"used up":         {f.failed(job.FailedOnce, attempts(1)), 1},
		"not retryable":   {f.failed(job.FailedImmediately), 1},
		"earlier attempt": {f.at(job.Failed), 0},
		"later attempt":   {f.at(job.Failed), 2},
	}
	for _, s := range job.States {
		if s != job.Failed {
			tests[string(s)] = request{f.at(s), 1}
		}
	}
	for name, test := range tests {
		f.requireUnchanged(name, test.id, func() job.Change { return f.retry(test.id, test.attempt) })
		if f.state(test.id).Final() {
			f.requireUnchanged("cancel, "+name, test.id, func() job.Change {
				change, before := must2(f.store.Cancel(f.ctx(), f.client, test.id))(t)
				require.Nil(t, before)
				return change
			})
		}
	}
}
