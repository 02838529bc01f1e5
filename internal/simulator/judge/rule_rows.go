package judge

import "github.com/forgerun/forgerun/internal/simulator/history"

// RowRule counts rows of whole tables that must not be there.
type RowRule struct{ Invariant, What, SQL string }

// RowRules are what collect.Run counts.
var RowRules = []RowRule{
	{keyed, "idempotency keys that stand for nothing", `SELECT count(*) FROM idempotency_keys k
		WHERE answer_status IS NULL AND NOT EXISTS (SELECT FROM jobs WHERE job_id = k.resource_id)
		AND NOT EXISTS (SELECT FROM batches WHERE batch_id = k.resource_id)
		AND NOT EXISTS (SELECT FROM webhooks WHERE webhook_id = k.resource_id)
		AND NOT EXISTS (SELECT FROM tombstones WHERE job_id = k.resource_id)`},
	{accepted, "events of jobs that do not exist",
		`SELECT count(*) FROM events e WHERE NOT EXISTS (SELECT FROM jobs WHERE job_id = e.job_id)`},
	{accepted, "reports of jobs that do not exist",
		`SELECT count(*) FROM reports r WHERE NOT EXISTS (SELECT FROM jobs WHERE job_id = r.job_id)`},
	{streamed, "events that come before an earlier one of their job in the client's stream", `SELECT count(*) FROM (
		SELECT tx, lag(tx) OVER (PARTITION BY job_id ORDER BY seq) AS before FROM events) e WHERE before > tx`},
	{ended, "complete batches without exactly one event", `SELECT count(*) FROM batches b
		LEFT JOIN (SELECT batch_id, client_id, count(*) AS n FROM client_events
			WHERE event_name = 'batch.completed' GROUP BY batch_id, client_id) e
		USING (batch_id, client_id) WHERE b.completed_at IS NOT NULL AND e.n IS DISTINCT FROM 1`},
	{ended, "events of complete batches that are not",
		`SELECT count(*) FROM client_events e JOIN batches b USING (batch_id) WHERE b.completed_at IS NULL`},
	{ended, "batches that are open for more than a minute after their last job", `SELECT count(*) FROM batches b WHERE completed_at IS NULL
		AND b.created_at < now() - interval '1 min' AND NOT EXISTS (SELECT FROM jobs j
			WHERE j.batch_id = b.batch_id AND (j.finished_at IS NULL OR j.finished_at > now() - interval '1 min'))`},
	{foreign, "deliveries of one client's events to another", `SELECT count(*) FROM deliveries d LEFT JOIN webhooks w USING (webhook_id)
		LEFT JOIN jobs j ON j.job_id = d.job_id WHERE w.client_id <> d.client_id OR j.client_id <> d.client_id`},
}

// checkMetrics compares metrics with rows, and reports what RowRules found.
func (b *verdictBuilder) checkMetrics() {
	for _, m := range b.run.Collected.Measured {
		if m.Counter && !b.run.Counters {
			continue
		}
		b.look(measured)
		b.must(m.Metric == m.Rows, history.Fact{}, measured, "%s is %v, the rows say %v", m.Name, m.Metric, m.Rows)
	}
	for _, i := range b.run.Collected.Inconsistencies {
		b.look(i.Invariant)
		b.must(i.Count == 0, history.Fact{}, i.Invariant, "%d %s", i.Count, i.What)
	}
}
