package judge

import "github.com/forgerun/forgerun/internal/simulator/history"

// RowRule counts rows of whole tables that must not be there. @minute_ago is the service's time a minute of a real
// clock ago; @minute and @ten_minutes are the most of it that passed in so long.
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
		AND b.created_at < @minute_ago AND NOT EXISTS (SELECT FROM jobs j
			WHERE j.batch_id = b.batch_id AND (j.finished_at IS NULL OR j.finished_at > @minute_ago))`},
	{ended, "complete batches whose counts, event and items disagree", `SELECT count(*) FROM batches b JOIN client_events e USING (batch_id)
		WHERE b.completed_at IS NOT NULL AND e.event_name = 'batch.completed' AND (e.occurred_at <> b.completed_at
			OR e.data -> 'status' IS DISTINCT FROM to_jsonb(b.status) OR e.data -> 'succeeded' IS DISTINCT FROM to_jsonb(b.succeeded)
			OR e.data -> 'failed' IS DISTINCT FROM to_jsonb(b.failed) OR e.data -> 'canceled' IS DISTINCT FROM to_jsonb(b.canceled)
			OR e.data -> 'total' IS DISTINCT FROM to_jsonb(jsonb_array_length(b.items))
			OR b.succeeded + b.failed + b.canceled <> jsonb_array_length(b.items))`},
	{ended, "jobs whose failure is not that of their report", `SELECT count(*) FROM jobs j JOIN reports r USING (job_id, attempt)
		WHERE j.finished_at IS NOT NULL
		AND (j.failure_reason, j.failure_code, j.failure_retryable, j.failure_retry_after, j.failure_stage, j.failure_detail, j.finished_at)
			IS DISTINCT FROM
			(r.failure_reason, r.failure_code, r.failure_retryable, r.failure_retry_after, r.failure_stage, r.failure_detail, r.finished_at)`},
	{logged, "jobs whose times are not those of their last events", `SELECT count(*) FROM jobs j WHERE j.finished_at IS NOT NULL AND EXISTS (
		SELECT FROM events e WHERE e.job_id = j.job_id AND e.attempt = j.attempt
			AND (e.event_name = 'job.assigned' AND e.occurred_at > j.assigned_at OR e.next_state = j.state AND e.occurred_at <> j.finished_at
				OR e.event_name = 'job.queued' AND j.attempt = 1 AND j.lease_expiries = 0 AND e.occurred_at <> j.queued_at))`},
	{answered, "results that are not as long, or not of the digest, that they are said to be", `SELECT count(*) FROM results
		WHERE octet_length(body) <> size OR sha256(body) <> sha256`},
	{streamed, "events that are another client's than their job, or labelled otherwise", `SELECT count(*) FROM events e
		JOIN jobs j USING (job_id) WHERE e.client_id <> j.client_id OR e.seq = j.event_seq AND e.tx <> j.event_tx`},
	{streamed, "events whose data are not their job's", `SELECT count(*) FROM events e JOIN jobs j USING (job_id)
		WHERE e.event_name <> 'event.emitted' AND (e.data -> 'work_kind' IS DISTINCT FROM to_jsonb(j.work_kind)
			OR j.definition IS NOT NULL AND e.data -> 'duration_ms' IS DISTINCT FROM j.definition -> 'duration_ms')`},
	{keyed, "keys of one client that lead to what another one has, or came after what they lead to", `SELECT count(*) FROM idempotency_keys k
		LEFT JOIN jobs j ON j.job_id = k.resource_id LEFT JOIN batches b ON b.batch_id = k.resource_id
		WHERE coalesce(j.client_id, b.client_id) <> k.client_id OR k.created_at > coalesce(j.created_at, b.created_at) + @minute::interval
			OR k.expires_at <= k.created_at`},
	{delivered, "deliveries that do not say what their last attempt was answered", `SELECT count(*) FROM deliveries d
		JOIN delivery_attempts a ON a.delivery_id = d.delivery_id AND a.number = d.attempts
		WHERE d.last_status IS DISTINCT FROM a.status
			OR d.tried_at < a.started_at - @minute::interval OR d.tried_at > a.started_at + @ten_minutes::interval
			OR d.last_error IS DISTINCT FROM a.error AND d.last_error NOT IN ('WEBHOOK_DISABLED', 'WEBHOOK_DELETED')`},
	{delivered, "deliveries whose attempts are not numbered one after the other", `SELECT count(*) FROM deliveries d JOIN (
		SELECT delivery_id, count(*) AS n, min(number) AS first, max(number) AS last FROM delivery_attempts GROUP BY delivery_id) a
		USING (delivery_id) WHERE a.last <> d.attempts OR a.n <> a.last - a.first + 1`},
	{delivered, "callbacks that do not lead where their job says", `SELECT count(*) FROM deliveries d JOIN jobs j USING (job_id)
		WHERE d.url IS NOT NULL AND d.url IS DISTINCT FROM j.callback`},
	{delivered, "deliveries at another endpoint than their webhook, or settled before they were made", `SELECT count(*) FROM deliveries
		WHERE webhook_id IS NOT NULL AND endpoint_id <> webhook_id OR settled_at < created_at - interval '1 s'`},
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
