-- fragment: endpointEnabled
-- Condition: the endpoint is not a disabled or deleted webhook.
NOT EXISTS (SELECT FROM webhooks w WHERE w.webhook_id = endpoint_id AND (w.deleted_at IS NOT NULL OR w.disabled_at IS NOT NULL) OFFSET 0)

-- fragment: walkEndpoints
-- The first part of a statement. It reads the next @looked endpoints in the index deliveries_waiting, after (@after_client,
-- @after_endpoint). The first index entry of an endpoint is its earliest delivery.
WITH RECURSIVE walk AS (
  SELECT @after_client::uuid AS client_id, @after_endpoint::uuid AS endpoint_id, NULL::timestamptz AS next_attempt_at, 0 AS n
  UNION ALL
  SELECT d.client_id, d.endpoint_id, d.next_attempt_at, n + 1 FROM walk CROSS JOIN LATERAL (
    SELECT client_id, endpoint_id, next_attempt_at FROM deliveries
    WHERE (client_id, endpoint_id) > (walk.client_id, walk.endpoint_id) AND state = 'PENDING' AND claimed_until IS NULL
    ORDER BY client_id, endpoint_id, next_attempt_at LIMIT 1) d
  WHERE n < @looked
)

-- fragment: stillWaiting
-- Condition: the delivery d, found by primary key, is waiting. The condition differs in form from the predicate of the index
-- deliveries_waiting. Otherwise, the planner might walk that index.
num_nonnulls(d.claimed_until, d.settled_at) = 0

-- name: newDeliveries
-- Finds untried deliveries among the latest 100 of each job, by the index deliveries_job. Also finds untried deliveries of each client's
-- latest 20 events without a job, by client_events_client and deliveries_once. Locks nothing.
-- Parameters: @jobs, @clients
SELECT d.delivery_id, d.client_id, d.endpoint_id FROM unnest(@jobs::uuid[]) AS i(id) CROSS JOIN LATERAL (
  SELECT * FROM deliveries WHERE job_id = i.id ORDER BY job_id DESC, delivery_id DESC LIMIT 100) d
WHERE {{stillWaiting}} AND d.attempts = 0
UNION ALL
SELECT d.delivery_id, d.client_id, d.endpoint_id FROM unnest(@clients::uuid[]) AS i(id) CROSS JOIN LATERAL (
  SELECT event_id FROM client_events WHERE client_id = i.id ORDER BY tx DESC, event_id DESC LIMIT 20) e
CROSS JOIN LATERAL (SELECT * FROM deliveries WHERE event_id = e.event_id AND url IS NULL OFFSET 0) d
WHERE {{stillWaiting}} AND d.attempts = 0

-- name: claimDeliveries
-- Claims due deliveries, found by primary key, except deliveries of disabled or deleted webhooks. Skips deliveries that another
-- transaction has locked, so it never waits.
--
-- A delivery and its event are written together and removed together. A delivery without an event cannot be sent, so this statement removes
-- it.
--
-- The size of an event's data is estimated from its stored size. The estimate for compressed data is too large, because the exact size is
-- known only after decompression. Small events come first, so that large events of one client do not block events of other clients.
--
-- Returns a row for each requested delivery. If a delivery could not be claimed yet, its row has a wait: the time until the delivery is
-- due. The wait is 20 ms if the delivery is due, but was locked or too large for this statement.
-- Parameters: @ids, @holds
WITH due AS MATERIALIZED (
  SELECT d.delivery_id, d.job_id, d.seq, d.event_id, i.hold
  FROM unnest(@ids::uuid[], @holds::interval[]) AS i(id, hold) JOIN deliveries d ON d.delivery_id = i.id
  WHERE {{stillWaiting}} AND d.next_attempt_at <= now() AND {{endpointEnabled}}
  FOR NO KEY UPDATE OF d SKIP LOCKED
), found AS MATERIALIZED (
  SELECT due.delivery_id, hold, e.*,
    CASE WHEN pg_column_compression(data) IS NULL THEN pg_column_size(data)
      ELSE greatest(pg_column_size(data), least(128 * pg_column_size(data), 262144)) END
      + CASE WHEN batch_id IS NULL THEN 0 ELSE {{batchBytes}} END AS bytes
  FROM due LEFT JOIN LATERAL (
    SELECT prev_state, next_state, attempt, occurred_at, data, NULL::uuid AS batch_id, NULL::uuid AS about
      FROM events WHERE events.job_id = due.job_id AND events.seq = due.seq
    UNION ALL
    SELECT NULL, NULL, NULL, occurred_at, data, batch_id, webhook_id
      FROM client_events WHERE client_events.event_id = due.event_id AND due.job_id IS NULL
    LIMIT 1) e ON true
), measured AS MATERIALIZED (
  SELECT *, sum(bytes) OVER (ORDER BY bytes, delivery_id) - bytes AS before FROM found WHERE bytes IS NOT NULL
), lost AS (
  DELETE FROM deliveries WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM found WHERE bytes IS NULL))
), claimed AS (
  UPDATE deliveries SET dispatch = dispatch + 1, claimed_until = pg_catalog.clock_timestamp() + m.hold FROM measured m
  WHERE deliveries.delivery_id = m.delivery_id AND m.before < {{maxClaimBytes}}
  RETURNING deliveries.*, m.prev_state, m.next_state, m.attempt, m.occurred_at, m.data, m.batch_id, m.about
)
SELECT i.n::int - 1, CASE WHEN e.delivery_id IS NULL THEN (SELECT greatest(d.next_attempt_at - clock_timestamp(), '20 ms')
    FROM deliveries d WHERE d.delivery_id = i.id AND {{stillWaiting}} AND {{endpointEnabled}}) END,
  {{claimedColumns}}, e.dispatch, coalesce(j.request_id, ''), coalesce(e.traceparent, ''), e.batch_id,
  e.about, w.url, w.content_mode, w.consecutive_failures,
  w.secret, w.old_secrets, w.old_secrets_until, {{eventColumns}}
FROM unnest(@ids) WITH ORDINALITY AS i(id, n) LEFT JOIN claimed e ON e.delivery_id = i.id LEFT JOIN jobs j ON j.job_id = e.job_id
LEFT JOIN LATERAL (
  SELECT * FROM reports WHERE job_id = e.job_id AND attempt = e.attempt
    AND coalesce(e.next_state, e.event_name) IN ('job.retries_exhausted', 'SUCCEEDED', 'FAILED', 'CANCELED') LIMIT 1
) r ON true
LEFT JOIN LATERAL (SELECT * FROM webhooks WHERE webhook_id = e.webhook_id LIMIT 1) w ON true

-- name: releaseDelivery
-- Releases a claim, if it is current. Locks the delivery, found by primary key. Because of num_nonnulls, the planner does not walk the
-- index deliveries_claimed instead.
-- Parameters: @delivery, @fence
UPDATE deliveries d SET claimed_until = NULL WHERE d.delivery_id = @delivery AND num_nonnulls(d.claimed_until) = 1 AND d.dispatch = @fence

-- name: reclaimDeliveries
-- Ends expired claims. Walks the index deliveries_claimed; skips deliveries that another transaction has locked.
-- Parameters: @limit
WITH expired AS MATERIALIZED (
  SELECT delivery_id FROM deliveries WHERE claimed_until <= pg_catalog.now() ORDER BY claimed_until
    LIMIT @limit FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET claimed_until = NULL WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM expired))

-- name: recordDeliveries
-- Writes the results of attempts to send, the state of their deliveries, and the health of their webhooks. Locks the deliveries, found by
-- primary key, then the webhooks with a changed health, both in order of id. A success changes the health of a webhook only if
-- consecutive_failures is above zero. No row: the claim is not current, and nothing was written for that item.
--
-- Among several results for one webhook a success takes precedence, because it proves that the receiver works.
--
-- Only the latest attempts of a delivery are kept, because a client may redeliver it any number of times.
--
-- Trigger: client_events_delivered writes the deliveries of webhook.disabled.
-- Parameters: @ids, @fences, @states, @waits, @disables, @started, @durations_ms, @errors, @reasons, @statuses,
--   @headers, @bodies, @truncated, @disable_failures, @disable_after, @disabled_texts, @max_attempts
WITH input AS MATERIALIZED (
  SELECT * FROM unnest(@ids::uuid[], @fences::int[], @states::text[], @waits::interval[], @disables::text[],
    @started::timestamptz[], @durations_ms::bigint[], @errors::text[], @reasons::text[], @statuses::int[],
    @headers::json[], @bodies::bytea[], @truncated::boolean[])
  AS i(id, fence, next, wait, disable, started_at, duration_ms, failed, reason, status, header, body, truncated)
), ready AS MATERIALIZED (
  SELECT d.delivery_id, d.webhook_id, d.attempts + 1 AS number, i.failed IS NOT DISTINCT FROM 'INTERNAL' AS ours, i.*
  FROM deliveries d JOIN input i ON d.delivery_id = i.id
  WHERE num_nonnulls(d.claimed_until) = 1 AND d.dispatch = i.fence
  ORDER BY d.delivery_id FOR NO KEY UPDATE OF d
), stamped AS MATERIALIZED (
  SELECT *, clock_timestamp() AS at FROM ready
), tried AS (
  INSERT INTO delivery_attempts (delivery_id, number, started_at, duration_ms, error, reason, status, response_header,
    response_body, body_truncated)
  SELECT delivery_id, number, started_at, duration_ms, failed, reason, status, header, body, truncated FROM stamped
), forgotten AS (
  DELETE FROM delivery_attempts a USING stamped s WHERE s.number > @max_attempts AND a.delivery_id = s.delivery_id
    AND a.number <= s.number - @max_attempts
), changed AS (
  UPDATE deliveries SET state = s.next, attempts = s.number, tried_at = s.at, resent_at = resent_at + s.ours::int,
    claimed_until = NULL,
    last_status = s.status, last_error = s.failed, last_reason = s.reason,
    next_attempt_at = CASE s.next WHEN 'PENDING' THEN s.at + s.wait END, settled_at = CASE s.next WHEN 'PENDING' THEN NULL ELSE s.at END
  FROM stamped s WHERE deliveries.delivery_id = s.delivery_id
), tally AS MATERIALIZED (
  SELECT webhook_id, count(*) FILTER (WHERE failed IS NOT NULL) AS failures, bool_or(failed IS NULL) AS alive, max(disable) AS disable,
    max(at) AS at
  FROM stamped WHERE webhook_id IS NOT NULL AND NOT ours GROUP BY webhook_id
), failing AS MATERIALIZED (
  SELECT w.webhook_id, w.client_id, t.at, t.disable,
    CASE WHEN t.alive THEN 0 ELSE w.consecutive_failures + t.failures END AS failures,
    CASE WHEN t.alive THEN NULL ELSE coalesce(w.failing_since, t.at) END AS since
  FROM tally t JOIN webhooks w ON w.webhook_id = t.webhook_id
  WHERE w.deleted_at IS NULL AND w.disabled_at IS NULL AND (w.consecutive_failures > 0 OR NOT t.alive OR t.disable IS NOT NULL)
  ORDER BY w.webhook_id FOR NO KEY UPDATE OF w
), judged AS MATERIALIZED (
  SELECT *, CASE WHEN disable IS NOT NULL THEN disable WHEN failures >= @disable_failures
    AND since <= at - @disable_after::interval THEN 'FAILING' END AS reason FROM failing
), health AS (
  UPDATE webhooks SET consecutive_failures = j.failures, failing_since = j.since,
    disabled_reason = j.reason, disabled_at = CASE WHEN j.reason IS NOT NULL THEN j.at END,
    updated_at = CASE WHEN j.reason IS NULL THEN updated_at ELSE j.at END
  FROM judged j WHERE webhooks.webhook_id = j.webhook_id
), event AS (
  INSERT INTO client_events (event_id, client_id, event_name, occurred_at, webhook_id, data)
  SELECT uuid7(at), client_id, 'webhook.disabled', at, webhook_id, jsonb_build_object('webhookId', webhook_id, 'reason', reason,
    'text', @disabled_texts::jsonb -> reason, 'language', 'en',
    'disabledAt', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
  FROM judged WHERE reason IS NOT NULL
)
SELECT s.delivery_id, s.number, s.webhook_id, s.failed IS NOT NULL AND NOT s.ours,
  (SELECT reason FROM judged j WHERE j.webhook_id = s.webhook_id) FROM stamped s

-- name: dueDeliveries
-- Walks endpoints, and finds the first waiting deliveries of each endpoint that are due within @soon. Skips untried deliveries younger
-- than @min_age, because the process that wrote them enqueues them. Reads the index deliveries_waiting; locks nothing. If there may be
-- more endpoints, it returns the last endpoint read, for the next call.
-- Parameters: @after_client, @after_endpoint, @looked, @per_endpoint, @min_age, @soon, @limit
{{walkEndpoints}}
SELECT walk.n = @looked, walk.client_id, walk.endpoint_id, delivery_id, d.next_attempt_at FROM walk LEFT JOIN LATERAL (
  SELECT delivery_id, next_attempt_at FROM deliveries
  WHERE client_id = walk.client_id AND endpoint_id = walk.endpoint_id AND state = 'PENDING' AND claimed_until IS NULL
    AND next_attempt_at <= now() + @soon::interval
    AND (attempts > 0 OR next_attempt_at <= now() - @min_age::interval) AND {{endpointEnabled}}
  ORDER BY client_id, endpoint_id, next_attempt_at LIMIT @per_endpoint) d ON true
WHERE n > 0 AND (delivery_id IS NOT NULL OR n = @looked) LIMIT @limit

-- name: failOrphans
-- Ends waiting deliveries of disabled or deleted webhooks. A tried delivery keeps its error. Finds the deliveries by the index
-- deliveries_waiting. Skips locked rows: a request to enable the webhook or to redeliver may have locked them, and such a request takes
-- precedence.
-- Parameters: @after_client, @after_endpoint, @looked, @limit
{{walkEndpoints}}, orphans AS MATERIALIZED (
  SELECT d.delivery_id FROM walk CROSS JOIN LATERAL (
    SELECT webhook_id FROM webhooks WHERE webhook_id = walk.endpoint_id AND (deleted_at IS NOT NULL OR disabled_at IS NOT NULL) LIMIT 1) w
  CROSS JOIN LATERAL (
    SELECT delivery_id FROM deliveries WHERE client_id = walk.client_id AND endpoint_id = walk.endpoint_id
      AND state = 'PENDING' AND claimed_until IS NULL
    ORDER BY client_id, endpoint_id, next_attempt_at LIMIT @limit) d
  LIMIT @limit
), locked AS MATERIALIZED (
  SELECT d.delivery_id, w.deleted_at FROM deliveries d JOIN webhooks w ON w.webhook_id = d.endpoint_id
  WHERE d.delivery_id = ANY (ARRAY(SELECT delivery_id FROM orphans)) AND {{stillWaiting}}
    AND (w.deleted_at IS NOT NULL OR w.disabled_at IS NOT NULL)
  FOR NO KEY UPDATE OF d SKIP LOCKED FOR SHARE OF w SKIP LOCKED
), failed AS (
  UPDATE deliveries SET state = 'FAILED', next_attempt_at = NULL, settled_at = clock_timestamp(),
    last_error = coalesce(last_error, CASE WHEN l.deleted_at IS NULL THEN 'WEBHOOK_DISABLED' ELSE 'WEBHOOK_DELETED' END)
  FROM locked l WHERE deliveries.delivery_id = l.delivery_id
  RETURNING deliveries.delivery_id
)
SELECT client_id, endpoint_id, n, ARRAY(SELECT delivery_id FROM failed) FROM walk ORDER BY n DESC LIMIT 1

-- fragment: claimedColumns of deliveryColumns
-- deliveries. => e.
