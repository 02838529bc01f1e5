package repo_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/invariants"
	"github.com/forgerun/forgerun/job"
)

// validRows stores jobs of each sort, all ended and delivered. It returns their ids by name.
func (f *fixture) validRows() pgx.NamedArgs {
	hook := f.subscribe("*")
	plain := f.run(keyed("plain"), func(s *job.Submission) { s.Job.Callback = "https://x.test/callback" })
	end := success(plain)
	end.Emit = &job.Emission{Name: "x", Data: json.RawMessage(`1`)}
	f.finish(end)
	due := f.submit(deferred(time.Hour))
	f.makeDue(due)
	f.queueDue(10)
	f.finish(success(f.claim(due, 1)))
	failed := f.run(attempts(2))
	f.finish(failure(failed, job.FailedOnce))
	f.retry(failed.JobID, 1)
	last := failure(f.claim(failed.JobID, 2), job.FailedOnce)
	last.Exhausted = true
	f.finish(last)
	retried := f.retrying(0)
	f.finish(success(f.claim(retried.JobID, 2)))
	lost := f.submit()
	f.release(f.assigned(lost, 1))
	f.finish(success(f.claim(lost, 1)))
	batch, _ := must2(f.store.InsertBatch(f.ctx(), f.batch(2)))(f.t)
	for _, id := range jobsOf(batch) {
		f.finish(success(f.claim(id, 1)))
	}
	f.completeBatches()
	f.deliverAll()
	return pgx.NamedArgs{"hook": hook.String(), "plain": plain.JobID.String(), "due": due.String(), "failed": failed.JobID.String(),
		"retried": retried.JobID.String(), "lost": lost.String(), "batch": batch.ID.String()}
}

// damages are statements that change valid rows, by the invariant that each violates.
var damages = map[string][]string{
	"something has no job": {
		`DELETE FROM jobs WHERE job_id = @plain`,
		`INSERT INTO outcome_outbox VALUES (gen_random_uuid(), 1, now())`,
	},
	"an event is out of order": {
		`DELETE FROM events WHERE job_id = @plain AND seq = 3`,
		`UPDATE events SET seq = 77 WHERE job_id = @plain AND seq = 5`,
		`UPDATE events SET occurred_at = occurred_at - interval '1 h' WHERE job_id = @plain AND seq = 3`,
		`UPDATE events SET attempt = 1 WHERE job_id = @retried AND event_name = 'job.succeeded'`,
	},
	"a change of state is not allowed": {
		`UPDATE events SET prev_state = 'ASSIGNED', next_state = 'RUNNING' WHERE job_id = @plain AND seq = 3`,
		`UPDATE events SET event_name = 'job.failed' WHERE job_id = @lost AND event_name = 'job.succeeded'`,
		`UPDATE events SET prev_state = 'RUNNING', next_state = 'FAILED' WHERE job_id = @failed AND event_name =
			'job.retries_exhausted'`,
		`UPDATE events SET event_name = 'event.emitted', prev_state = NULL, next_state = NULL WHERE job_id = @plain AND seq = 3`,
	},
	"a job contradicts its log": {
		`DELETE FROM events WHERE job_id = @plain`,
		`UPDATE jobs SET state = 'CANCELED', outcome = 'CANCELED' WHERE job_id = @plain`,
		`UPDATE jobs SET attempt = 2 WHERE job_id = @plain`,
		`UPDATE jobs SET event_seq = 9 WHERE job_id = @plain`,
		`UPDATE jobs SET updated_at = updated_at + interval '1 ms' WHERE job_id = @plain`,
	},
	"the times of a job contradict its events": {
		`UPDATE jobs SET assigned_at = assigned_at - interval '1 ms' WHERE job_id = @plain`,
		`UPDATE jobs SET queued_at = queued_at - interval '1 ms' WHERE job_id = @plain`,
		`UPDATE jobs SET finished_at = finished_at + interval '1 ms' WHERE job_id = @plain`,
	},
	"two events have one id": {
		`UPDATE events e SET event_id = f.event_id FROM events f WHERE e.job_id = @plain AND f.job_id = @due AND f.seq = 1 AND
			e.seq = 1`,
	},
	"the end of an attempt contradicts its report": {
		`DELETE FROM reports WHERE job_id = @plain`,
		`DELETE FROM reports WHERE job_id = @retried AND attempt = 1`,
		`UPDATE reports SET attempt = 3 WHERE job_id = @retried AND attempt = 2`,
		`UPDATE reports SET outcome = 'CANCELED' WHERE job_id = @plain`,
		`UPDATE reports SET event_seq = 4 WHERE job_id = @plain`,
		`UPDATE events SET event_name = 'job.canceled', next_state = 'CANCELED' WHERE job_id = @retried AND event_name = 'job.failed'`,
		`INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, data)
			SELECT job_id, client_id, seq + 1, gen_random_uuid(), event_name, prev_state, next_state, attempt, occurred_at, data
			FROM events WHERE job_id = @lost AND event_name = 'job.succeeded'`,
	},
	"a job that succeeded has no result of its last attempt, or another job has a result": {
		`DELETE FROM results WHERE job_id = @plain`,
		`UPDATE results SET job_id = @failed WHERE job_id = @plain`,
		`UPDATE results SET attempt = 1 WHERE job_id = @retried`,
	},
	"the failure of a job contradicts its report": {
		`UPDATE jobs SET failure_reason = 'x' WHERE job_id = @plain`,
		`UPDATE reports SET failure_code = 'x' WHERE job_id = @failed`,
	},
	"a complete batch has its one event, an open one none": {
		`DELETE FROM client_events WHERE batch_id = @batch`,
		`UPDATE batches SET status = NULL, completed_at = NULL, succeeded = NULL, failed = NULL, canceled = NULL, failures = NULL`,
	},
	"a batch stays open after its last job": {
		`UPDATE batches SET status = NULL, completed_at = NULL, succeeded = NULL, failed = NULL, canceled = NULL, failures = NULL`,
	},
	"counts, event and items of a batch disagree": {
		`UPDATE batches SET failed = failed + 1`,
		`UPDATE client_events SET data = data - 'status'`,
	},
	"an outcome to publish has no report": {
		`INSERT INTO outcome_outbox VALUES (@plain, 7, now())`,
	},
	"something began before its time": {
		`UPDATE jobs SET execution_at = execution_at + interval '1 h', run_at = run_at + interval '1 h', started_at = started_at
			+ interval '1 h' WHERE job_id = @due`,
		`UPDATE jobs SET run_at = started_at + interval '1 ms' WHERE job_id = @plain`,
	},
	"a job counts more or fewer claims than its log": {
		`UPDATE jobs SET fence = 7 WHERE job_id = @plain`,
		`UPDATE jobs SET lease_expiries = 0 WHERE job_id = @lost`,
	},
	"the times of an attempt contradict its last claim": {
		`UPDATE reports SET started_at = started_at - interval '1 ms' WHERE job_id = @plain`,
		`UPDATE reports SET finished_at = finished_at + interval '1 s' WHERE job_id = @plain`,
		`UPDATE jobs SET started_at = started_at + interval '1 ms' WHERE job_id = @plain`,
	},
	"the duration of a report contradicts its times": {
		`UPDATE reports SET duration_ms = duration_ms + 7 WHERE job_id = @plain`,
		`UPDATE reports SET finished_at = started_at - interval '1 s' WHERE job_id = @plain`,
	},
	"a result has another hash than its body": {
		`UPDATE results SET sha256 = sha256('y') WHERE job_id = @plain`,
	},
	"an idempotency key has no resource": {
		`UPDATE idempotency_keys SET resource_id = gen_random_uuid()`,
	},
	"two idempotency keys have the same resource": {
		`INSERT INTO idempotency_keys SELECT client_id, endpoint, 'other', request_hash, resource_id, state, NULL, NULL, NULL,
			created_at, expires_at FROM idempotency_keys`,
	},
	"an idempotency key has another client or a later time than its resource": {
		`UPDATE idempotency_keys SET client_id = gen_random_uuid()`,
		`UPDATE idempotency_keys SET created_at = created_at + interval '1 h'`,
		`UPDATE idempotency_keys SET expires_at = created_at`,
	},
	"an event has another client than its job, or a label out of order": {
		`UPDATE jobs SET event_tx = '1' WHERE job_id = @plain`,
		`UPDATE events SET tx = '1' WHERE job_id = @plain AND seq = 3`,
		`UPDATE jobs SET client_id = @hook WHERE job_id = @plain`,
	},
	"an event has other data than its job": {
		`UPDATE events SET data = '{}' WHERE job_id = @plain AND seq = 2`,
		`UPDATE events SET data = data || '{"duration_ms": 7}' WHERE job_id = @plain AND seq = 2`,
	},
	"a change of state did not go to the callback": {
		`DELETE FROM deliveries WHERE job_id = @plain AND webhook_id IS NULL AND seq = 3`,
		`UPDATE deliveries SET url = 'http://x' WHERE url IS NOT NULL AND seq = 3`,
	},
	"an event did not go to a webhook that had subscribed": {
		`DELETE FROM deliveries WHERE job_id = @due AND seq = 3`,
	},
	"a delivery contradicts its event": {
		`UPDATE deliveries SET event_id = gen_random_uuid() WHERE job_id = @due AND seq = 3`,
		`UPDATE deliveries SET seq = 1 WHERE job_id = @due AND seq = 3`,
		`UPDATE deliveries SET event_name = 'x' WHERE job_id = @due AND seq = 3`,
	},
	"a delivery has another target than its webhook or job": {
		`UPDATE deliveries SET url = 'http://x' WHERE url IS NOT NULL AND seq = 3`,
		`UPDATE deliveries SET endpoint_id = @plain WHERE webhook_id = @hook`,
		`UPDATE deliveries SET webhook_id = @plain, endpoint_id = @plain WHERE job_id = @due`,
		`UPDATE deliveries SET settled_at = created_at - interval '2 s'`,
	},
	"a delivery has another client than its event or webhook": {
		`UPDATE deliveries SET client_id = gen_random_uuid() WHERE job_id = @due`,
		`UPDATE webhooks SET client_id = gen_random_uuid()`,
	},
	"a delivery counts more or fewer attempts than are recorded": {
		`DELETE FROM delivery_attempts`,
		`UPDATE delivery_attempts SET number = 7`,
		`DELETE FROM deliveries`,
	},
	"a delivery contradicts its last attempt": {
		`UPDATE deliveries SET last_status = 299`,
		`UPDATE deliveries SET state = 'FAILED', last_error = 'HTTP_5XX'`,
		`UPDATE deliveries SET tried_at = tried_at - interval '1 h'`,
		`UPDATE delivery_attempts SET status = 500`,
	},
}

// Each invariant finds the damage that violates it.
func TestInvariantsSeeDamage(t *testing.T) {
	f := setup(t)
	ids := f.validRows()
	findings := func(r invariants.Rule, sql string) (n int) {
		tx := f.begin()
		must(tx.Exec(f.ctx(), `SET LOCAL session_replication_role = replica`))(t) // no triggers
		must(tx.Exec(f.ctx(), sql, ids))(t)
		now := time.Now()
		require.NoError(t, r.Find(f.ctx(), tx, pgx.NamedArgs{
			"now": now, "settled": now, "recent": time.Duration(0), "skew": time.Minute, "follow": 10 * time.Minute,
		}, func(invariants.Finding) { n++ }), sql)
		require.NoError(t, tx.Rollback(f.ctx()))
		return n
	}
	for _, r := range invariants.Rules {
		require.Zero(t, findings(r, `SELECT`), r.Name)
		require.NotEmpty(t, damages[r.Name], r.Name)
		for _, sql := range damages[r.Name] {
			require.NotZero(t, findings(r, sql), "%s: %s", r.Name, sql)
		}
	}
}
