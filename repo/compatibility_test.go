package repo_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// submitBefore stores a job and its events as programs did that know no more
// than the second schema.
const submitBefore = `
WITH new AS (
  INSERT INTO jobs (job_id, client_id, type, work_kind, definition, state, max_attempts, auto_retry, event_seq,
    created_at, updated_at, run_at, queued_at, callback, language, request_id)
  SELECT $1, $2, 'EXECUTE', 'SUCCESS_FAST', '{"work_kind": "SUCCESS_FAST",
			"duration_ms": 1000, "payload_size": 4096, "expected_outcome": "SUCCEEDED", "seed": 42}',
    'QUEUED', 4, false, 2, at, at, at, at, nullif($3, ''), 'en', 'r-1' FROM clock_timestamp() AS v(at)
  RETURNING job_id, client_id, event_tx, created_at, work_kind, definition
)
INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data)
SELECT job_id, client_id, e.seq, uuid7(created_at), e.name, e.prev, e.next, 1, created_at, event_tx, event_data(work_kind, definition)
FROM new CROSS JOIN (VALUES (1, 'job.created', NULL, 'CREATED'), (2, 'job.queued', 'CREATED', 'QUEUED')) AS e(seq, name, prev, next)`

func (f *fixture) submitBefore(callback string) job.ID {
	f.t.Helper()
	id := newID()
	f.exec(submitBefore, id.String(), f.client.String(), callback)
	return id
}

// claimBefore is how programs claimed and started a job, in one statement.
func (f *fixture) claimBefore(id job.ID) job.Lease {
	f.t.Helper()
	f.exec(`WITH started AS (
			UPDATE jobs SET state = 'RUNNING', fence = fence + 1, worker_id = $2, assigned_at = clock_timestamp(), started_at = clock_timestamp(),
				updated_at = clock_timestamp(), event_seq = event_seq + 2, event_tx = greatest(pg_current_xact_id(), event_tx)
			WHERE job_id = $1 AND state = 'QUEUED' RETURNING *
		)
		INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data)
		SELECT job_id, client_id, event_seq - 2 + e.step, uuid7(updated_at), e.name, e.prev, e.next, attempt, updated_at, event_tx,
			event_data(work_kind, definition)
		FROM started CROSS JOIN (VALUES (1, 'job.assigned', 'QUEUED', 'ASSIGNED'), (2, 'job.running', 'ASSIGNED', 'RUNNING'))
			AS e(step, name, prev, next)`, id.String(), f.worker.String())
	return job.Lease{JobID: id, Attempt: 1, Fence: one[int64](f, `SELECT fence FROM jobs WHERE job_id = $1`, id.String())}
}

// Programs of before and of now work on the same jobs while one replaces the
// other: nothing that either of them writes goes undelivered.
func TestProgramsOfBeforeBesideThoseOfNow(t *testing.T) {
	t.Parallel()
	f := setup(t)
	hook := f.subscribe("*")
	ended := []string{job.EventCreated, job.EventQueued, job.EventAssigned, job.EventRunning, job.EventSucceeded}
	const callback = "http://cb.test/x"
	called := func(s *job.Submission) { s.Job.Callback = callback }
	check := func(id job.ID, names ...string) {
		t.Helper()
		require.Equal(t, names, f.names(id))
		sent := one[[]string](f, `SELECT array_agg(coalesce(url, 'hook') || ' ' || event_name ORDER BY url NULLS FIRST, seq) FROM deliveries
			WHERE job_id = $1`, id.String())
		var want []string
		for _, target := range []string{"hook", callback} {
			for _, name := range names {
				want = append(want, target+" "+name)
			}
		}
		require.Equal(t, want, sent)
	}
	submitted := f.submitBefore(callback)
	check(submitted, ended[:2]...)
	f.finish(success(f.claim(submitted, 1)))
	check(submitted, ended...)

	started := f.claimBefore(f.submit(called))
	check(started.JobID, ended[:4]...)
	f.start(started) // it is of no use, and does no harm
	check(started.JobID, ended[:4]...)
	f.finish(success(started))
	check(started.JobID, ended...)

	now := f.assigned(f.submit(called), 1)
	check(now.JobID, ended[:3]...)
	f.claimBefore(now.JobID)
	check(now.JobID, ended[:3]...)
	f.start(now)
	check(now.JobID, ended[:4]...)
	require.NotEmpty(t, f.claimAll(hook, 1))
	f.checkInvariants()
}

// What events told of their callbacks is gone with the column, and is looked up
// when it is back.
func TestMigrateCheaperEventsDownAndUp(t *testing.T) {
	t.Parallel()
	f := setup(t)
	newest := schema(t, f)
	called, plain := f.submit(func(s *job.Submission) { s.Job.Callback = "http://cb.test/x" }), f.submit()
	require.NoError(t, repo.Migrate(f.ctx(), f.url, 4))
	require.Zero(t, one[int](f, `SELECT count(*)::int FROM information_schema.columns WHERE table_name = 'events'
		AND column_name = 'called_back'`))
	before := schema(t, f)
	f.exec(submitBefore, newID().String(), f.client.String(), "http://cb.test/y")
	require.Equal(t, 4, f.count("deliveries"))

	stop := make(chan struct{})
	var writers sync.WaitGroup
	for _, callback := range []string{"http://cb.test/z", ""} {
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := f.db.Exec(f.ctx(), submitBefore, newID().String(), f.client.String(), callback); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 4 {
		require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
		require.Equal(t, newest, schema(t, f))
		require.NoError(t, repo.Migrate(f.ctx(), f.url, 4))
		require.Equal(t, before, schema(t, f))
	}
	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
	close(stop)
	writers.Wait()
	require.Zero(t, one[int](f, `SELECT count(*)::int FROM events e JOIN jobs j USING (job_id) LEFT JOIN deliveries d USING (event_id)
		WHERE (j.callback IS NULL) <> (d.event_id IS NULL)`), "whatever the schema was at the time")
	f.claim(called, 1)
	f.claim(plain, 1)
	require.Len(t, f.sentTo(`job_id = $1`, called.String()), 4)
	require.Empty(t, f.sentTo(`job_id = $1`, plain.String()))
	f.checkInvariants()
}
