package repo_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// checkInvariants reads the whole database and checks what must hold after
// anything.
func (f *fixture) checkInvariants() {
	f.t.Helper()
	for what, sql := range contradictions {
		rows, err := f.db.Query(f.ctx(), sql)
		require.NoError(f.t, err, what)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(f.t, err, what)
		require.Empty(f.t, ids, what)
	}
	rows, err := f.db.Query(f.ctx(), `SELECT job_id::text, state, attempt, event_seq, updated_at FROM jobs`)
	require.NoError(f.t, err)
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		ID, State         string
		Attempt, EventSeq int
		UpdatedAt         time.Time
	}])
	require.NoError(f.t, err)
	for _, j := range jobs {
		id, err := job.ParseID(j.ID)
		require.NoError(f.t, err)
		log := f.log(id)
		require.Len(f.t, log, j.EventSeq, j.ID)
		state, attempt := checkLog(f.t, log)
		require.Equal(f.t, j.State, state, "the row agrees with its log")
		require.Equal(f.t, j.Attempt, attempt)
		require.Equal(f.t, j.UpdatedAt, log[len(log)-1].At)
	}
}

// checkLog follows the log of one job and gives where it ends.
func checkLog(t testing.TB, log []event) (state string, attempt int) {
	t.Helper()
	attempt = 1
	for i, e := range log {
		require.Equal(t, i+1, e.Seq, "no gap")
		if i > 0 {
			require.False(t, e.At.Before(log[i-1].At), "time does not run backwards")
		}
		require.Contains(t, e.Data, "work_kind")
		if e.Next == "" {
			require.Empty(t, e.Prev)
			require.Equal(t, attempt, e.Attempt)
			continue
		}
		require.Equal(t, state, e.Prev, "each step begins where the last one ended")
		require.Equal(t, job.EventOf(job.State(e.Prev), job.State(e.Next)), e.Name)
		if e.Name == job.EventRetried {
			attempt++
		}
		require.Equal(t, attempt, e.Attempt)
		state = e.Next
	}
	return state, attempt
}

// contradictions finds ids of rows that contradict each other.
var contradictions = map[string]string{
	"a report for each end of an attempt, and no other": `
		SELECT coalesce(r.job_id, e.job_id)::text FROM reports r
		FULL JOIN (SELECT * FROM events WHERE next_state IN ('SUCCEEDED', 'FAILED', 'CANCELED')) e
			ON e.job_id = r.job_id AND e.attempt = r.attempt AND e.occurred_at = r.finished_at
			AND e.next_state = CASE r.outcome WHEN 'SUCCESS' THEN 'SUCCEEDED' ELSE r.outcome END
		WHERE r.job_id IS NULL OR e.job_id IS NULL`,
	"a report's log ends with its attempt": `
		SELECT r.job_id::text FROM reports r WHERE r.event_seq <>
			(SELECT max(seq) FROM events e WHERE e.job_id = r.job_id AND e.attempt = r.attempt)`,
	"a final job has the report of its attempt": `
		SELECT j.job_id::text FROM jobs j LEFT JOIN reports r USING (job_id, attempt)
		WHERE j.finished_at IS NOT NULL AND (r.outcome IS DISTINCT FROM j.outcome OR r.finished_at <> j.finished_at)`,
	"outcome and final state go together": `
		SELECT job_id::text FROM jobs WHERE (outcome IS NOT NULL) <> (state IN ('SUCCEEDED', 'FAILED', 'CANCELED'))`,
	"a success has its result": `
		SELECT job_id::text FROM jobs LEFT JOIN results r USING (job_id)
		WHERE (state = 'SUCCEEDED') <> (r.job_id IS NOT NULL) OR sha256(body) <> sha256`,
	"nothing without its job": `
		SELECT job_id::text FROM (SELECT job_id FROM events UNION SELECT job_id FROM reports UNION SELECT job_id FROM results
			UNION SELECT job_id FROM deliveries WHERE job_id IS NOT NULL UNION SELECT job_id FROM outcome_outbox UNION SELECT resource_id
				FROM idempotency_keys) AS child
		WHERE job_id NOT IN (SELECT job_id FROM jobs UNION ALL SELECT batch_id FROM batches UNION ALL SELECT webhook_id FROM webhooks)`,
	"nothing starts early": `
		SELECT job_id::text FROM events JOIN jobs j USING (job_id) WHERE event_name IN ('job.queued', 'job.assigned', 'job.running')
			AND occurred_at < j.execution_at`,
	"events are their job's client's, and labelled in order": `
		SELECT job_id::text FROM (SELECT *, lag(tx) OVER (PARTITION BY job_id ORDER BY seq) AS before FROM events) e JOIN jobs j USING (job_id)
		WHERE e.client_id <> j.client_id OR e.before > e.tx OR (e.seq = j.event_seq AND e.tx <> j.event_tx)`,
	"what pends has a time, and what does not has an end": `
		SELECT delivery_id::text FROM deliveries WHERE (state = 'PENDING') <> (next_attempt_at IS NOT NULL)
			OR (state = 'PENDING') <> (settled_at IS NULL)`,
	"what is delivered was answered so at last": `
		SELECT d.delivery_id::text FROM deliveries d LEFT JOIN delivery_attempts a ON a.delivery_id = d.delivery_id AND a.number = d.attempts
		WHERE d.state = 'DELIVERED' AND (a.number IS NULL OR a.error IS NOT NULL)`,
	"as many attempts as are written down": `
		SELECT coalesce(d.delivery_id, a.delivery_id)::text FROM deliveries d
		FULL JOIN (SELECT delivery_id, count(*) AS n, max(number) AS last FROM delivery_attempts GROUP BY delivery_id) a USING (delivery_id)
		WHERE d.attempts IS DISTINCT FROM coalesce(a.n, 0) OR a.last <> a.n`,
	"one delivery at most of an event to a webhook": `
		SELECT event_id::text FROM deliveries WHERE webhook_id IS NOT NULL GROUP BY event_id, webhook_id HAVING count(*) > 1`,
	"a delivery has its event, and goes to that event's client": `
		SELECT d.delivery_id::text FROM deliveries d LEFT JOIN events e USING (job_id, seq) LEFT JOIN client_events c ON c.event_id = d.event_id
			LEFT JOIN webhooks w ON w.webhook_id = d.webhook_id
		WHERE d.event_id IS DISTINCT FROM coalesce(e.event_id, c.event_id) OR d.client_id IS DISTINCT FROM coalesce(e.client_id, c.client_id)
			OR w.client_id <> d.client_id OR d.webhook_id IS NOT NULL AND w.webhook_id IS NULL`,
	"an outcome in the outbox has its report": `
		SELECT o.job_id::text FROM outcome_outbox o LEFT JOIN reports r USING (job_id, attempt) WHERE r.job_id IS NULL`,
	"event ids are unique": `SELECT event_id::text FROM events GROUP BY event_id HAVING count(*) > 1`,
}
