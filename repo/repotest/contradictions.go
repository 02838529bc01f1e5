package repotest

// contradictions find the ids of rows that contradict others, beside those of one job's own log.
var contradictions = map[string]string{
	"a success has its result, with its hash": `
		SELECT job_id::text FROM jobs LEFT JOIN results r USING (job_id)
		WHERE (state = 'SUCCEEDED') <> (r.job_id IS NOT NULL) OR sha256(body) <> sha256`,
	"nothing is without its job": `
		SELECT job_id::text FROM (SELECT job_id FROM events UNION SELECT job_id FROM reports UNION SELECT job_id FROM results
			UNION SELECT job_id FROM deliveries WHERE job_id IS NOT NULL UNION SELECT job_id FROM outcome_outbox) AS child
		WHERE job_id NOT IN (SELECT job_id FROM jobs)`,
	"an idempotency key has what it stands for": `
		SELECT key FROM idempotency_keys k WHERE (resource_id IS NOT NULL OR answer_status NOT BETWEEN 200 AND 299)
		AND NOT EXISTS (SELECT FROM jobs WHERE job_id = k.resource_id)
		AND NOT EXISTS (SELECT FROM batches WHERE batch_id = k.resource_id)
		AND NOT EXISTS (SELECT FROM webhooks WHERE webhook_id = k.resource_id)`,
	"a job, batch or webhook has one idempotency key": `
		SELECT resource_id::text FROM idempotency_keys WHERE resource_id IS NOT NULL GROUP BY resource_id HAVING count(*) > 1`,
	"a due time of a schedule has one job": `
		SELECT schedule_id::text FROM jobs WHERE schedule_id IS NOT NULL GROUP BY schedule_id, scheduled_for HAVING count(*) > 1`,
	"an event has the scenario": `SELECT event_id::text FROM events WHERE NOT data ? 'work_kind'`,
	"event ids are unique":      `SELECT event_id::text FROM events GROUP BY event_id HAVING count(*) > 1`,
	"events are their job's client's, and labelled in order": `
		SELECT job_id::text FROM (SELECT *, lag(tx) OVER (PARTITION BY job_id ORDER BY seq) AS before FROM events) e JOIN jobs j USING (job_id)
		WHERE e.client_id <> j.client_id OR e.before > e.tx OR (e.seq = j.event_seq AND e.tx <> j.event_tx)`,
	"a complete batch has its one event, an open one none": `
		SELECT batch_id::text FROM batches b WHERE (completed_at IS NOT NULL)::int <>
			(SELECT count(*) FROM client_events e WHERE e.batch_id = b.batch_id AND e.client_id = b.client_id)`,
	"a change of state goes to the callback, once": `
		SELECT e.event_id::text FROM events e JOIN jobs j USING (job_id)
		LEFT JOIN deliveries d ON d.job_id = e.job_id AND d.seq = e.seq AND d.webhook_id IS NULL AND d.url = j.callback
		WHERE j.callback IS NOT NULL AND (e.next_state IS NOT NULL OR e.event_name = 'event.emitted')
		GROUP BY e.event_id HAVING count(d.delivery_id) <> 1`,
	"an event goes to the webhooks that had subscribed": `
		SELECT e.event_id::text FROM events e JOIN webhooks w USING (client_id)
		LEFT JOIN deliveries d ON d.webhook_id = w.webhook_id AND d.event_id = e.event_id
		WHERE w.created_at < e.occurred_at AND w.updated_at = w.created_at AND w.disabled_at IS NULL AND w.deleted_at IS NULL
		AND w.events && ARRAY['*', split_part(e.event_name, '.', 1) || '.*', e.event_name]
		GROUP BY e.event_id, w.webhook_id HAVING count(d.delivery_id) <> 1`,
	"an event goes to a webhook at most once": `
		SELECT event_id::text FROM deliveries WHERE webhook_id IS NOT NULL GROUP BY event_id, webhook_id HAVING count(*) > 1`,
	"a delivery has its event, and goes to that event's client": `
		SELECT d.delivery_id::text FROM deliveries d LEFT JOIN events e USING (job_id, seq) LEFT JOIN client_events c ON c.event_id = d.event_id
			LEFT JOIN webhooks w ON w.webhook_id = d.webhook_id
		WHERE d.event_id IS DISTINCT FROM coalesce(e.event_id, c.event_id) OR d.client_id IS DISTINCT FROM coalesce(e.client_id, c.client_id)
			OR w.client_id <> d.client_id OR d.webhook_id IS NOT NULL AND w.webhook_id IS NULL`,
	"a delivery pends until a time, or has an end": `
		SELECT delivery_id::text FROM deliveries WHERE (state = 'PENDING') <> (next_attempt_at IS NOT NULL)
			OR (state = 'PENDING') <> (settled_at IS NULL)`,
	"a delivery that is delivered was answered so at last": `
		SELECT d.delivery_id::text FROM deliveries d LEFT JOIN delivery_attempts a ON a.delivery_id = d.delivery_id AND a.number = d.attempts
		WHERE d.state = 'DELIVERED' AND (a.number IS NULL OR a.error IS NOT NULL OR a.status NOT BETWEEN 200 AND 299)`,
	"a delivery has as many attempts as are recorded": `
		SELECT coalesce(d.delivery_id, a.delivery_id)::text FROM deliveries d
		FULL JOIN (SELECT delivery_id, count(*) AS n, max(number) AS last FROM delivery_attempts GROUP BY delivery_id) a USING (delivery_id)
		WHERE d.attempts IS DISTINCT FROM coalesce(a.n, 0) OR a.last <> a.n`,
	"an outcome in the outbox has its report": `
		SELECT o.job_id::text FROM outcome_outbox o LEFT JOIN reports r USING (job_id, attempt) WHERE r.job_id IS NULL`,
}
