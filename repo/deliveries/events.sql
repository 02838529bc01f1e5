-- name: endedBatches
-- Reads completed batches with their outcome, but without items and job counts. Finds them by primary key; locks nothing. No row: the
-- batch is open, or gone.
-- Parameters: @ids
SELECT {{batchColumns}}, NULL::jsonb, jsonb_array_length(items), NULL::jsonb
FROM batches WHERE batch_id = ANY (@ids::uuid[]) AND completed_at IS NOT NULL

-- fragment: endedBy
-- If the event `e` ended an attempt, joins the report of this attempt, even if the job was retried later. LIMIT 1 makes the planner find
-- the report by primary key.
LEFT JOIN LATERAL (
  SELECT * FROM reports WHERE job_id = e.job_id AND attempt = e.attempt AND e.next_state IN ('SUCCEEDED', 'FAILED', 'CANCELED') LIMIT 1
) r ON true

-- name: jobEvents
-- Reads a job, found by the index jobs_client, and its events, found by primary key, in one snapshot. The first row has no event. The seq
-- has no gaps. The query steps from event to event, so it reads no data after the end of the page. LIMIT 1 in each step makes the planner
-- search by the whole key.
-- Parameters: @job, @client, @after, @limit, @max_bytes
WITH RECURSIVE page AS (
  SELECT greatest(@after::bigint, 0) AS seq, 0 AS n, 0::bigint AS bytes
  UNION ALL
  SELECT e.seq, n + 1, bytes + octet_length(e.data::text)
  FROM page CROSS JOIN LATERAL (SELECT * FROM events WHERE job_id = @job AND seq = page.seq + 1 LIMIT 1) e WHERE n < @limit
    AND bytes < @max_bytes
)
SELECT j.state, j.event_seq, {{eventColumns}}
FROM jobs j CROSS JOIN page
LEFT JOIN LATERAL (SELECT * FROM events WHERE job_id = @job AND seq = page.seq AND n > 0 LIMIT 1) e ON true
{{endedBy}}
WHERE j.job_id = @job AND j.client_id = @client ORDER BY n

-- name: eventSeqs
-- Reads the seq of the latest event of each job, found by primary key. Locks nothing. No row: the job is gone.
-- Parameters: @ids
SELECT job_id, event_seq FROM jobs WHERE job_id = ANY (@ids::uuid[])

-- name: clientEvents
-- Reads at most @limit + 1 events after the position from each of the indexes events_client and client_events_client. Joins the other
-- tables only to the chosen events. The first row has no event, so there is a row even if the page is empty.
--
-- Also reports whether events are held back because older transactions may still be pending. The search for such events begins at the
-- snapshot's xmin. If it began at the position, it would read all later events for each page.
--
-- The size of the page is added up event by event, so that events after its end are not decompressed. For an event of a batch, the batch
-- document counts, too.
-- Parameters: @client, @after_tx, @after_id, @after_seq, @limit, @max_bytes
WITH RECURSIVE chosen AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY tx, item_id, seq) AS n, first.* FROM (SELECT * FROM (
    (SELECT tx, job_id AS item_id, seq, event_id, job_id, event_name, prev_state, next_state, attempt, occurred_at, data,
      NULL::uuid AS batch_id, NULL::uuid AS webhook_id
      FROM events WHERE client_id = @client AND (tx, job_id, seq) > (@after_tx::xid8, @after_id::uuid, @after_seq::int)
        AND tx < pg_snapshot_xmin(pg_current_snapshot())
      ORDER BY tx, job_id, seq LIMIT @limit::bigint + 1)
    UNION ALL
    (SELECT tx, event_id, 0, event_id, NULL, event_name, NULL, NULL, NULL, occurred_at, data, batch_id, webhook_id
      FROM client_events WHERE client_id = @client AND (tx, event_id) > (@after_tx, @after_id)
        AND tx < pg_snapshot_xmin(pg_current_snapshot())
      ORDER BY tx, event_id LIMIT @limit::bigint + 1)
  ) both_kinds ORDER BY tx, item_id, seq LIMIT @limit::bigint + 1) first
), page AS (
  SELECT 0::bigint AS n, 0::bigint AS bytes
  UNION ALL
  SELECT c.n, bytes + octet_length(c.data::text) + CASE WHEN c.batch_id IS NULL THEN 0 ELSE {{batchBytes}} END
  FROM page JOIN chosen c ON c.n = page.n + 1 WHERE c.n <= @limit::bigint AND bytes < @max_bytes::bigint
)
SELECT @after_tx > pg_snapshot_xmax(pg_current_snapshot()),
  EXISTS (SELECT FROM events WHERE client_id = @client AND tx >= greatest(@after_tx, pg_snapshot_xmin(pg_current_snapshot()))
    AND (tx > @after_tx OR (job_id, seq) > (@after_id, @after_seq)))
  OR EXISTS (SELECT FROM client_events WHERE client_id = @client AND tx >= greatest(@after_tx, pg_snapshot_xmin(pg_current_snapshot()))
    AND (tx > @after_tx OR event_id > @after_id)),
  (SELECT max(n) FROM chosen) > (SELECT max(n) FROM page) IS TRUE,
  e.tx, e.item_id, e.batch_id, e.webhook_id, {{eventColumns}}
FROM page LEFT JOIN chosen e ON e.n = page.n LEFT JOIN jobs j ON j.job_id = e.job_id
{{endedBy}}
ORDER BY page.n

-- name: latestPositions
-- Reads the last entry of each client in the indexes events_client and client_events_client. Locks nothing. No row:
-- the client has no events.
-- Parameters: @clients
SELECT client, latest.tx, latest.item_id, latest.seq FROM unnest(@clients::uuid[]) AS client CROSS JOIN LATERAL (
  SELECT * FROM (
    (SELECT tx, job_id AS item_id, seq FROM events WHERE client_id = client ORDER BY tx DESC, job_id DESC, seq DESC LIMIT 1)
    UNION ALL
    (SELECT tx, event_id, 0 FROM client_events WHERE client_id = client ORDER BY tx DESC, event_id DESC LIMIT 1)
  ) both_kinds ORDER BY tx DESC, item_id DESC, seq DESC LIMIT 1
) latest

-- fragment: eventColumns
-- The columns of an event e, read by eventScanner. They include columns of the event's job j, and of the report r if the event ended an
-- attempt.
e.event_id, e.job_id, e.seq, e.event_name, e.prev_state, e.next_state, e.attempt, e.occurred_at, e.data,
  {{attemptColumns}}
