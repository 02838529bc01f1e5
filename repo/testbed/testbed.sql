-- name: expireResult
-- Makes the result of a client's job expire now, found by primary key. Does not change an earlier expiry.
-- Parameters: @job, @client
UPDATE results SET expires_at = least(expires_at, clock_timestamp()) FROM jobs
WHERE results.job_id = @job AND jobs.job_id = @job AND jobs.client_id = @client

-- name: removeFaults
-- Removes the rules of a client's session, by primary key. If @rule is set, removes only this rule.
-- Parameters: @client, @session, @rule
DELETE FROM testbed_faults WHERE client_id = @client
  AND session_id = coalesce(@session::uuid, '00000000-0000-0000-0000-000000000000') AND (@rule::uuid IS NULL OR rule_id = @rule)

-- name: insertFaults
-- Stores the rules of a client's session. The transaction must first run lockFaults and removeFaults.
-- Parameters: @client, @session, @seed, @rules, @ids
INSERT INTO testbed_faults (client_id, session_id, position, rule_id, operation, from_at, until_at, nth, rule, seed)
SELECT @client, coalesce(@session::uuid, '00000000-0000-0000-0000-000000000000'), position, id, rule->'match'->>'operation',
  (rule->'match'->>'from')::timestamptz,
  (rule->'match'->>'until')::timestamptz,
  CASE WHEN rule->'match'->'times' IS NULL AND rule->'match'->'for' IS NULL THEN (rule->'match'->>'nth')::bigint END, rule, @seed
FROM unnest(@rules::json[], @ids::uuid[]) WITH ORDINALITY AS r(rule, id, position)

-- name: lockFaults
-- Takes an advisory lock, so that one transaction at a time replaces the rules of a client.
-- Parameters: @client
SELECT pg_advisory_xact_lock(hashtextextended('testbed faults ' || @client::text, 0))

-- name: listFaults
-- Lists the rules of a client's session in their order, using the primary key. Locks nothing.
-- Parameters: @client, @session
SELECT {{faultColumns}} FROM testbed_faults WHERE client_id = @client
  AND session_id = coalesce(@session::uuid, '00000000-0000-0000-0000-000000000000') ORDER BY position

-- name: countFaults
-- Adds 1 to `seen` of each rule that matches a request or delivery attempt, unless the rule can no longer apply. Returns the counted rules
-- in order. Concurrent requests get different values of `seen`. Locks the rules in the order of the primary key. If @session is null, uses
-- the session of the request, found by primary key. Leaves out rules that applyFault has bound to a subject other than @subject. No row: no
-- rule matches.
-- Parameters: @client, @session, @request, @operation, @subject
WITH about AS MATERIALIZED (
  SELECT client_id, session_id, position FROM testbed_faults
  WHERE client_id = @client AND session_id = coalesce(@session::uuid, (SELECT r.session_id FROM testbed_requests r
      WHERE r.client_id = @client AND r.request_id = @request), '00000000-0000-0000-0000-000000000000')
    AND (operation = @operation OR operation IS NULL AND @operation <> 'delivery')
    AND (from_at IS NULL OR from_at <= clock_timestamp()) AND (until_at IS NULL OR until_at > clock_timestamp())
    AND (nth IS NULL OR seen < nth) AND (subject IS NULL OR subject = @subject)
  ORDER BY client_id, session_id, position FOR NO KEY UPDATE
), counted AS (
  UPDATE testbed_faults f SET seen = f.seen + 1 FROM about
  WHERE f.client_id = about.client_id AND f.session_id = about.session_id AND f.position = about.position
  RETURNING f.session_id, f.rule_id, f.position, f.rule, f.seed, f.seen, f.applied, f.first_at
)
SELECT {{faultColumns}}, session_id FROM counted AS testbed_faults ORDER BY position

-- name: applyFault
-- Adds 1 to `applied`. A rule with "same": true is then bound to @subject. Finds the rule by primary key. A rule can apply @most times; 0
-- means no limit. Within @lasting after the rule's first application, @most has no effect. No row: the rule is gone, bound to another
-- subject, or at its limit.
-- Parameters: @client, @session, @position, @rule, @subject, @most, @lasting
UPDATE testbed_faults SET applied = applied + 1, first_at = coalesce(first_at, clock_timestamp()),
  subject = CASE rule->'match'->>'same' WHEN 'true' THEN @subject END
WHERE client_id = @client AND session_id = coalesce(@session::uuid, '00000000-0000-0000-0000-000000000000')
  AND position = @position AND rule_id = @rule
  AND (subject IS NULL OR subject = @subject)
  AND (@most = 0 OR applied < @most OR first_at > clock_timestamp() - @lasting::interval)

-- name: startSession
-- Begins a session of a client. No row: the client has an open session with the label, or @most open sessions. Waits for another
-- transaction that begins a session with this label (index testbed_sessions_open).
-- Parameters: @session, @client, @label, @profile, @seed, @rules, @most
INSERT INTO testbed_sessions (session_id, client_id, label, profile, seed, rules, created_at)
SELECT @session, @client, @label, @profile, @seed, @rules, clock_timestamp()
WHERE (SELECT count(*) FROM testbed_sessions s WHERE s.client_id = @client AND s.ended_at IS NULL) < @most
ON CONFLICT (client_id, label) WHERE ended_at IS NULL DO NOTHING
RETURNING {{sessionColumns}}

-- name: enterSession
-- Finds the client's open session with this label, by the index testbed_sessions_open. Records that @request belongs to this session,
-- unless @request is null. While the session is being erased, waits for the end of the erasure. Always returns a row: the session's id or
-- null, and whether the session without a label is open.
-- Parameters: @client, @label, @request
WITH own AS MATERIALIZED (
  SELECT client_id, session_id FROM testbed_sessions WHERE client_id = @client AND label = @label AND ended_at IS NULL FOR KEY SHARE
), noted AS (
  INSERT INTO testbed_requests (client_id, request_id, session_id) SELECT client_id, @request::text, session_id FROM own
  WHERE @request::text IS NOT NULL
  ON CONFLICT (client_id, request_id) DO UPDATE SET session_id = excluded.session_id
    WHERE testbed_requests.session_id <> excluded.session_id
)
SELECT own.session_id, EXISTS (SELECT FROM testbed_sessions WHERE client_id = @client AND label = '' AND ended_at IS NULL)
FROM (SELECT) one LEFT JOIN own ON true

-- name: openLabeled
-- Opens a session with the label @label. Copies the settings and rules of the client's open session without a label. The counts of the
-- copied rules start at 0. Locks the session without a label, so that it cannot end at the same time. No row: the session without a label
-- is not open, the label is in use, or @most sessions are open.
-- Parameters: @client, @session, @label, @most
WITH main AS MATERIALIZED (
  SELECT profile, seed, rules FROM testbed_sessions WHERE client_id = @client AND label = '' AND ended_at IS NULL FOR SHARE
), opened AS (
  INSERT INTO testbed_sessions (session_id, client_id, label, profile, seed, rules, created_at)
  SELECT @session::uuid, @client::uuid, @label, profile, seed, rules, clock_timestamp() FROM main
  WHERE (SELECT count(*) FROM testbed_sessions s WHERE s.client_id = @client AND s.ended_at IS NULL) < @most
  ON CONFLICT (client_id, label) WHERE ended_at IS NULL DO NOTHING
  RETURNING client_id, session_id
), copied AS (
  INSERT INTO testbed_faults (client_id, session_id, position, rule_id, operation, from_at, until_at, nth, rule, seed)
  SELECT o.client_id, o.session_id, f.position, f.rule_id, f.operation, f.from_at, f.until_at, f.nth, f.rule, f.seed
  FROM opened o JOIN testbed_faults f ON f.client_id = @client AND f.session_id = '00000000-0000-0000-0000-000000000000'
)
SELECT session_id FROM opened

-- name: forgetSessions
-- Removes the oldest ended sessions of a client, with their records. Keeps all open sessions. Also keeps the latest ended sessions, up
-- to @keep sessions and @all_bytes of records in all. The records of one session count as at most @most_bytes. Also removes the requests
-- of each session that is older than the oldest remaining session. Uses primary keys and testbed_requests_session.
-- Parameters: @client, @keep, @most_bytes, @all_bytes
WITH ranked AS MATERIALIZED (
  SELECT session_id, ended_at IS NOT NULL AND (row_number() OVER latest > @keep
    OR sum(least(bytes, @most_bytes::bigint)) OVER latest > @all_bytes::bigint) AS old
  FROM testbed_sessions WHERE client_id = @client WINDOW latest AS (ORDER BY ended_at IS NOT NULL, session_id DESC)
), exchanges AS (
  DELETE FROM testbed_exchanges WHERE client_id = @client AND session_id = ANY (ARRAY(SELECT session_id FROM ranked WHERE old))
), requests AS (
  DELETE FROM testbed_requests WHERE client_id = @client
    AND session_id < (SELECT session_id FROM ranked WHERE NOT old ORDER BY session_id LIMIT 1)
)
DELETE FROM testbed_sessions WHERE client_id = @client AND session_id = ANY (ARRAY(SELECT session_id FROM ranked WHERE old))
RETURNING session_id

-- name: endSession
-- Ends an open session of a client, found by testbed_sessions_latest. "(ended_at IS NULL) IS TRUE" keeps the planner from using
-- testbed_sessions_open. No row: the session does not exist or has ended.
-- Parameters: @client, @session
UPDATE testbed_sessions SET ended_at = greatest(clock_timestamp(), created_at)
WHERE session_id = @session AND client_id = @client AND (ended_at IS NULL) IS TRUE RETURNING {{sessionColumns}}

-- name: endLabeled
-- Ends all open sessions of a client that have a label, found by testbed_sessions_open.
-- Parameters: @client
UPDATE testbed_sessions SET ended_at = greatest(clock_timestamp(), created_at)
WHERE client_id = @client AND ended_at IS NULL AND label <> ''

-- name: removeEndedFaults
-- Removes rules of the client's ended sessions, using the primary key. If @own is true, also removes the rules of the session without a
-- label.
-- Parameters: @client, @own
DELETE FROM testbed_faults WHERE client_id = @client AND session_id <> ALL (ARRAY(SELECT session_id FROM testbed_sessions
  WHERE client_id = @client AND ended_at IS NULL)) AND (@own OR session_id <> '00000000-0000-0000-0000-000000000000')

-- name: listSessions
-- Lists the sessions of a client, the latest first, by primary key. If @session is set, lists only this session. If @label is set, lists
-- only sessions with this label. Locks nothing.
-- Parameters: @client, @session, @label, @limit
SELECT {{sessionColumns}} FROM testbed_sessions WHERE client_id = @client AND (@session::uuid IS NULL OR session_id = @session)
  AND (@label::text IS NULL OR label = @label)
ORDER BY session_id DESC LIMIT @limit

-- name: recordExchange
-- Records a request in an open session of a client, found by testbed_sessions_latest. If @session is null, uses the client's open session
-- without a label, found by testbed_sessions_open. Locks the session, so each request gets its own number. Beyond @most requests or
-- @most_bytes, the statement only counts the request. No row: there is no such session, or it has ended.
-- Parameters: @client, @session, @exchange, @most, @most_bytes
WITH open AS (
  UPDATE testbed_sessions SET exchanges = exchanges + 1, bytes = bytes + octet_length(@exchange::text)
  WHERE client_id = @client AND (ended_at IS NULL) IS TRUE AND session_id = coalesce(@session::uuid, (
    SELECT s.session_id FROM testbed_sessions s WHERE s.client_id = @client AND s.label = '' AND s.ended_at IS NULL))
  RETURNING session_id, client_id, exchanges, bytes
), kept AS (
  INSERT INTO testbed_exchanges (client_id, session_id, number, exchange)
  SELECT client_id, session_id, exchanges, @exchange::text::json FROM open WHERE exchanges <= @most AND bytes <= @most_bytes
)
SELECT session_id FROM open

-- name: sessionExchanges
-- Returns the records of a session with numbers above @after, using the primary key. Locks nothing.
-- Parameters: @client, @session, @after, @limit
SELECT number, exchange FROM testbed_exchanges WHERE client_id = @client AND session_id = @session AND number > @after
ORDER BY client_id, session_id, number LIMIT @limit

-- name: openStreams
-- Counts a session's event streams without a recorded end. If @all is true, also counts the streams of the client's open sessions. Uses the
-- primary key and testbed_sessions_open. Locks nothing. The LIKE skips most rows before their JSON is parsed.
-- Parameters: @client, @session, @all
SELECT count(*) FILTER (WHERE exchange -> 'stream' ->> 'open' = 'true')
  - count(*) FILTER (WHERE exchange -> 'stream' ->> 'events' IS NOT NULL AND exchange -> 'stream' ->> 'open' IS NULL)
FROM testbed_exchanges WHERE client_id = @client AND session_id = ANY (@session::uuid || ARRAY(
  SELECT s.session_id FROM testbed_sessions s WHERE s.client_id = @client AND s.ended_at IS NULL AND @all))
  AND exchange::text LIKE '%"stream":{%'

-- fragment: jobsOfSession
-- The jobs that a client created in a session. A null @session means the session without a label. Reads the index jobs_client from @first
-- on. @first is the smallest id that a job of the session can have. Finds the session of each job's request by primary key.
FROM jobs WHERE client_id = @client AND job_id >= @first AND created_at >= @since
  AND (@until::timestamptz IS NULL OR created_at <= @until)
  AND (SELECT r.session_id FROM testbed_requests r WHERE r.client_id = @client AND r.request_id = jobs.request_id)
    IS NOT DISTINCT FROM @session::uuid
ORDER BY client_id, job_id LIMIT @limit

-- name: sessionJobs
-- Returns the jobs of a session, each with its batch and the end of the batch. Finds batches by primary key. Locks nothing.
-- Parameters: @client, @session, @first, @since, @until, @limit
SELECT job_id, state, finished_at, failure_retryable, batch_id, (SELECT completed_at FROM batches b WHERE b.batch_id = jobs.batch_id)
{{jobsOfSession}}

-- name: sessionBulks
-- Returns the jobs that a client's bulk operations changed or skipped, and the end of each operation. Reads operations from the id @first
-- on. Uses the index bulk_operations_client, and the primary key of bulk_items. Leaves out jobs that a bulk retry has queued again, because
-- they do not end with the operation. Locks nothing.
-- Parameters: @client, @first, @limit
SELECT b.bulk_id, b.finished_at, i.job_id
FROM (SELECT bulk_id, finished_at, action FROM bulk_operations WHERE client_id = @client AND bulk_id >= @first) b
CROSS JOIN LATERAL (SELECT job_id, result FROM bulk_items WHERE bulk_items.bulk_id = b.bulk_id OFFSET 0) i
WHERE i.result <> 'PENDING' AND NOT (b.action = 'retry' AND i.result = 'SUCCEEDED')
LIMIT @limit

-- name: sessionKeys
-- Returns the client's API keys that have an expiry, by the index api_keys_client. Locks nothing.
-- Parameters: @client
SELECT key_id, expires_at FROM api_keys WHERE client_id = @client AND expires_at IS NOT NULL

-- name: sessionDeliveries
-- Returns the delivery attempts for events of a session's jobs, by the index deliveries_job. Locks nothing.
-- Parameters: @client, @session, @first, @since, @until, @limit
SELECT d.delivery_id, j.subject, a.number, d.event_name, a.started_at, a.duration_ms, coalesce(a.status, 0), coalesce(a.error, '')
  FROM (SELECT job_id AS subject {{jobsOfSession}}) j
CROSS JOIN LATERAL (SELECT delivery_id, event_name FROM deliveries WHERE deliveries.job_id = j.subject OFFSET 0) d
CROSS JOIN LATERAL (SELECT number, started_at, duration_ms, status, error FROM delivery_attempts
  WHERE delivery_attempts.delivery_id = d.delivery_id OFFSET 0) a
LIMIT @limit

-- name: sessionGroupDeliveries
-- Returns the attempts to deliver batch.completed and bulk.completed for the batches and bulk operations of a session. Uses the index
-- client_events_client for the events, and deliveries_once for the deliveries. Locks nothing.
-- Parameters: @client, @session, @first, @since, @until, @limit
SELECT d.delivery_id, j.subject, a.number, d.event_name, a.started_at, a.duration_ms, coalesce(a.status, 0), coalesce(a.error, '') FROM (
  SELECT event_id, coalesce(batch_id, (data->>'bulkId')::uuid) AS subject FROM client_events
  WHERE client_id = @client AND event_id >= @first AND event_name IN ('batch.completed', 'bulk.completed') OFFSET 0
) j
CROSS JOIN LATERAL (
  SELECT request_id, created_at FROM batches WHERE batches.batch_id = j.subject
  UNION ALL SELECT request_id, created_at FROM bulk_operations WHERE bulk_operations.bulk_id = j.subject OFFSET 0
) g
CROSS JOIN LATERAL (SELECT delivery_id, event_name FROM deliveries WHERE deliveries.event_id = j.event_id AND url IS NULL OFFSET 0) d
CROSS JOIN LATERAL (SELECT number, started_at, duration_ms, status, error FROM delivery_attempts
  WHERE delivery_attempts.delivery_id = d.delivery_id OFFSET 0) a
WHERE g.created_at >= @since AND (@until::timestamptz IS NULL OR g.created_at <= @until)
  AND (SELECT r.session_id FROM testbed_requests r WHERE r.client_id = @client AND r.request_id = g.request_id)
    IS NOT DISTINCT FROM @session::uuid
LIMIT @limit

-- fragment: faultColumns
-- Read by scanFault.
testbed_faults.rule_id, testbed_faults.position, testbed_faults.rule, testbed_faults.seed, testbed_faults.seen,
  testbed_faults.applied, clock_timestamp() - testbed_faults.first_at

-- fragment: sessionColumns
-- Read by scanSession.
session_id, label, profile, seed, rules, exchanges, created_at, ended_at
