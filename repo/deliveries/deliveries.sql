-- fragment: listDeliveries
-- Lists the deliveries of an owner, the newest first. Walks one of the indexes on (owner, delivery_id) backwards: deliveries_webhook,
-- deliveries_failed or deliveries_job. Locks nothing.
-- Parameters: @client, @owner, @to_id, @from_id, @state, @event_name, @created_after, @created_before, @limit
WITH looked AS (
  SELECT * FROM deliveries WHERE ({{owner}}, delivery_id) < (@owner::uuid, @to_id)
    AND ({{owner}}, delivery_id) >= (@owner::uuid, @from_id) AND {{owner}} IS NOT NULL AND {{guard}}
  ORDER BY {{owner}} DESC, delivery_id DESC LIMIT {{maxLooked}}
), judged AS (
  SELECT *, row_number() OVER (ORDER BY {{owner}} DESC, delivery_id DESC) AS nth,
    client_id = @client AND (@state::text IS NULL OR state = @state) AND (@event_name::text IS NULL OR event_name = @event_name)
      AND (@created_after::timestamptz IS NULL OR created_at >= @created_after)
        AND (@created_before::timestamptz IS NULL OR created_at < @created_before) AS wanted FROM looked
)
SELECT nth = {{maxLooked}}, wanted, {{deliveryColumns}} FROM judged AS deliveries WHERE wanted OR nth = {{maxLooked}}
ORDER BY {{owner}} DESC, delivery_id DESC LIMIT @limit

-- fragment: ofOwner
-- Condition: the delivery, found by primary key, belongs to the client and the owner. The owner is the job if @webhook is null.
deliveries.delivery_id = @delivery AND deliveries.client_id = @client
  AND CASE WHEN @webhook::uuid IS NULL THEN deliveries.job_id = @job::uuid ELSE deliveries.webhook_id = @webhook
    AND EXISTS (SELECT FROM webhooks WHERE webhook_id = @webhook AND deleted_at IS NULL) END

-- name: readDelivery
-- Reads a delivery and its latest attempts in one snapshot. The attempts are not sorted. A delivery without attempts has one row. No row:
-- the delivery does not exist.
-- Parameters: @delivery, @client, @webhook, @job, @max_attempts
SELECT {{deliveryColumns}}, a.number, a.started_at, a.duration_ms, a.status, a.error, a.reason, a.response_header, a.response_body,
  a.body_truncated
FROM deliveries LEFT JOIN LATERAL (
  SELECT * FROM delivery_attempts WHERE delivery_id = deliveries.delivery_id ORDER BY number DESC LIMIT @max_attempts
) a ON true
WHERE {{ofOwner}}

-- fragment: dueAgain
-- Makes a completed or waiting delivery due now.
state = 'PENDING', settled_at = NULL, resent_at = CASE state WHEN 'PENDING' THEN resent_at ELSE attempts END,
  next_attempt_at = CASE WHEN claimed_until IS NULL THEN least(next_attempt_at, clock_timestamp()) ELSE next_attempt_at END

-- name: redeliver
-- Makes one delivery due. Locks it, found by primary key. No row: no such delivery, or its webhook is disabled.
-- Parameters: @delivery, @client, @webhook, @job
UPDATE deliveries SET {{dueAgain}} WHERE {{ofOwner}}
  AND NOT EXISTS (SELECT FROM webhooks w WHERE w.webhook_id = deliveries.webhook_id AND (w.deleted_at IS NOT NULL OR w.disabled_at IS NOT NULL))
RETURNING {{deliveryColumns}}

-- name: redeliverFailed
-- Makes FAILED deliveries of a webhook due, the oldest first. Walks the index deliveries_failed, in which ids are ordered by time, and
-- skips rows that another transaction has locked.
-- Parameters: @client, @webhook, @since, @limit, @first_id
WITH failed AS MATERIALIZED (
  SELECT delivery_id FROM deliveries WHERE webhook_id = @webhook AND state = 'FAILED' AND delivery_id >= @first_id
    AND created_at >= @since AND EXISTS (SELECT FROM webhooks
      WHERE webhook_id = @webhook AND client_id = @client AND deleted_at IS NULL AND disabled_at IS NULL)
  ORDER BY webhook_id, delivery_id LIMIT @limit FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET {{dueAgain}} WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM failed))

-- name: testWebhook
-- Writes a test event and its delivery to this webhook. The trigger client_events_delivered adds no other delivery. No row: the webhook
-- does not exist or is disabled.
-- Parameters: @webhook, @client
WITH target AS MATERIALIZED (
  SELECT webhook_id, client_id, uuid7(at) AS event_id, at FROM webhooks, (VALUES (clock_timestamp())) AS v(at)
  WHERE webhook_id = @webhook AND client_id = @client AND deleted_at IS NULL AND disabled_at IS NULL
), event AS (
  INSERT INTO client_events (event_id, client_id, event_name, occurred_at, webhook_id, data)
  SELECT event_id, client_id, 'webhook.test', at, webhook_id, jsonb_build_object('webhookId', webhook_id) FROM target
)
INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, seq, event_id, event_name, created_at, next_attempt_at)
SELECT uuid7(at), client_id, webhook_id, webhook_id, 0, event_id, 'webhook.test', at, at FROM target
RETURNING {{deliveryColumns}}

-- name: findReplayStart
-- Bisects the range of transaction ids to find the last transaction with an event of the client before @since. The result is approximate,
-- because a transaction gets its id before its events get their times. Each step looks up one event in the index events_client.
-- Parameters: @client, @since
WITH RECURSIVE search AS (
  SELECT 0::bigint AS old, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS young
  UNION ALL
  SELECT CASE WHEN is_old THEN middle ELSE old END, CASE WHEN is_old THEN young ELSE middle END
  FROM (SELECT *, (old + young) / 2 AS middle FROM search WHERE young - old > 1 OFFSET 0) s
  CROSS JOIN LATERAL (SELECT coalesce((SELECT occurred_at < @since::timestamptz FROM events
    WHERE client_id = @client AND tx >= s.middle::text::xid8 ORDER BY tx, job_id, seq LIMIT 1), false) AS is_old) e
)
SELECT max(old)::text::xid8 FROM search

-- name: replayEvents
-- Walks the indexes events_client and client_events_client from a position on, like clientEvents, and looks up each event in the index
-- deliveries_once. Waits for a delivery that another transaction is inserting. Skips events of jobs that another transaction is removing.
-- Locks the jobs of the other events until this transaction ends.
--
-- Pending transactions may still write events with a tx at or above the snapshot's xmin, so the returned position stays before the xmin.
-- Deliveries of events at or above the xmin are queued, too, and the next call reads these events again. The third column reports whether
-- the caller should repeat the call, because there are more events to read. Events at or above the xmin count only if this call queued
-- deliveries. So the caller does not loop as long as a transaction is pending.
-- Parameters: @client, @webhook, @since, @limit, @after_tx, @after_id, @after_seq, @looked
WITH target AS MATERIALIZED (
  SELECT webhook_id, events FROM webhooks WHERE webhook_id = @webhook AND client_id = @client AND deleted_at IS NULL
    AND disabled_at IS NULL
), looked AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY tx, item_id, seq) AS n, first.* FROM (SELECT * FROM (
    (SELECT tx, job_id AS item_id, seq, event_id, job_id, event_name, occurred_at, NULL::uuid AS webhook_id
      FROM events WHERE client_id = @client AND (tx, job_id, seq) > (@after_tx::xid8, @after_id::uuid, @after_seq::int)
        AND EXISTS (SELECT FROM target)
      ORDER BY tx, job_id, seq LIMIT @looked::bigint + 1)
    UNION ALL
    (SELECT tx, event_id, 0, event_id, NULL, event_name, occurred_at, webhook_id
      FROM client_events WHERE client_id = @client AND (tx, event_id) > (@after_tx, @after_id) AND EXISTS (SELECT FROM target)
      ORDER BY tx, event_id LIMIT @looked::bigint + 1)
  ) both_kinds ORDER BY tx, item_id, seq LIMIT @looked::bigint + 1) first
), missed AS MATERIALIZED (
  SELECT n, e.event_id, e.job_id, e.seq, e.event_name, t.webhook_id FROM looked e CROSS JOIN target t
  WHERE n <= @looked AND occurred_at >= @since AND t.events && ARRAY['*', split_part(e.event_name, '.', 1) || '.*', e.event_name]
    AND e.event_name <> 'webhook.test' AND e.webhook_id IS DISTINCT FROM t.webhook_id
    AND NOT EXISTS (SELECT FROM deliveries d WHERE d.webhook_id = t.webhook_id AND d.event_id = e.event_id AND d.url IS NULL OFFSET 0)
  ORDER BY n LIMIT @limit
), there AS MATERIALIZED (
  SELECT job_id FROM jobs WHERE job_id = ANY (ARRAY(SELECT job_id FROM missed)) FOR KEY SHARE SKIP LOCKED
), made AS (
  INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, job_id, seq, event_id, event_name, created_at,
    next_attempt_at, traceparent)
  SELECT uuid7(now()), @client, webhook_id, webhook_id, job_id, seq, event_id, event_name, now(), now(),
    (SELECT traceparent FROM jobs WHERE jobs.job_id = missed.job_id)
  FROM missed WHERE job_id IS NULL OR job_id = ANY (ARRAY(SELECT job_id FROM there)) ORDER BY n
  ON CONFLICT (event_id, webhook_id) WHERE url IS NULL DO NOTHING
  RETURNING 1
), seen AS MATERIALIZED (
  SELECT CASE WHEN (SELECT count(*) FROM missed) = @limit THEN (SELECT max(n) FROM missed) ELSE @looked END AS n
), passed AS MATERIALIZED (
  SELECT tx, item_id, seq FROM looked WHERE n <= (SELECT n FROM seen) AND tx < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY n DESC
    LIMIT 1
), queued AS MATERIALIZED (
  SELECT count(*)::int AS n FROM made
)
SELECT @after_tx > pg_snapshot_xmax(pg_current_snapshot()), queued.n,
  EXISTS (SELECT FROM looked l WHERE l.n > seen.n AND (queued.n > 0 OR l.tx < pg_snapshot_xmin(pg_current_snapshot()))),
  coalesce(p.tx, @after_tx), coalesce(p.item_id, @after_id), coalesce(p.seq, @after_seq)
FROM target CROSS JOIN seen CROSS JOIN queued LEFT JOIN passed p ON true

-- name: listByWebhook of listDeliveries
-- {{owner}} => webhook_id
-- {{guard}} => {{ownsWebhook}}

-- name: listFailed of listDeliveries
-- {{owner}} => webhook_id
-- {{guard}} => {{ownsWebhook}} AND state = 'FAILED'

-- name: listByJob of listDeliveries
-- {{owner}} => job_id
-- {{guard}} => EXISTS (SELECT FROM jobs WHERE job_id = @owner AND client_id = @client)

-- fragment: ownsWebhook
EXISTS (SELECT FROM webhooks WHERE webhook_id = @owner AND client_id = @client AND deleted_at IS NULL)

-- fragment: deliveryColumns
-- In the order of scanDelivery.
deliveries.delivery_id, deliveries.client_id, deliveries.endpoint_id, deliveries.webhook_id, deliveries.url,
  deliveries.job_id, deliveries.seq, deliveries.event_id, deliveries.event_name, deliveries.created_at,
  deliveries.state, deliveries.attempts, deliveries.resent_at, deliveries.next_attempt_at, deliveries.claimed_until, deliveries.settled_at,
  deliveries.last_status, deliveries.last_error, deliveries.last_reason
