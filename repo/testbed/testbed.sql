-- name: expireResult
-- Lets the result of a client's job expire now, found by primary key. One that has expired stays as it is. Trigger: none.
-- Parameters: @job, @client
UPDATE results SET expires_at = least(expires_at, clock_timestamp()) FROM jobs
WHERE results.job_id = @job AND jobs.job_id = @job AND jobs.client_id = @client

-- name: removeFaults
-- Removes the rules of a client, or the one with the given id, by primary key.
-- Parameters: @client, @rule
DELETE FROM testbed_faults WHERE client_id = @client AND (@rule::uuid IS NULL OR rule_id = @rule)

-- name: insertFaults
-- Stores the rules of a client, who has none: the transaction has removed them and holds the lock of lockFaults.
-- Parameters: @client, @seed, @rules, @ids
INSERT INTO testbed_faults (client_id, position, rule_id, operation, from_at, until_at, nth, rule, seed)
SELECT @client, position, id, rule->'match'->>'operation', (rule->'match'->>'from')::timestamptz, (rule->'match'->>'until')::timestamptz,
  CASE WHEN rule->'match'->'times' IS NULL AND rule->'match'->'for' IS NULL THEN (rule->'match'->>'nth')::bigint END, rule, @seed
FROM unnest(@rules::json[], @ids::uuid[]) WITH ORDINALITY AS r(rule, id, position)

-- name: lockFaults
-- Lets one transaction at a time replace the rules of a client, by an advisory lock.
-- Parameters: @client
SELECT pg_advisory_xact_lock(hashtextextended('testbed faults ' || @client::text, 0))

-- name: listFaults
-- Lists the rules of a client in their order, along the primary key. Locks nothing.
-- Parameters: @client
SELECT {{faultColumns}} FROM testbed_faults WHERE client_id = @client ORDER BY position

-- name: countFaults
-- Counts a request, or an attempt to deliver, for the rules that are about it and may still apply, and gives those in their order:
-- requests that come together each get a number of their own. Finds the rules along the primary key, and locks them in that order.
-- No row: there is no such rule.
-- Parameters: @client, @operation
WITH about AS MATERIALIZED (
  SELECT client_id, position FROM testbed_faults
  WHERE client_id = @client AND (operation = @operation OR operation IS NULL AND @operation <> 'delivery')
    AND (from_at IS NULL OR from_at <= clock_timestamp()) AND (until_at IS NULL OR until_at > clock_timestamp())
    AND (nth IS NULL OR seen < nth)
  ORDER BY client_id, position FOR NO KEY UPDATE
), counted AS (
  UPDATE testbed_faults f SET seen = f.seen + 1 FROM about WHERE f.client_id = about.client_id AND f.position = about.position
  RETURNING f.rule_id, f.position, f.rule, f.seed, f.seen, f.applied, f.first_at
)
SELECT {{faultColumns}} FROM counted AS testbed_faults ORDER BY position

-- name: applyFault
-- Counts that a rule had its effect. Finds it by primary key. No row: it was removed or replaced meanwhile.
-- Parameters: @client, @position, @rule
UPDATE testbed_faults SET applied = applied + 1, first_at = coalesce(first_at, clock_timestamp())
WHERE client_id = @client AND position = @position AND rule_id = @rule

-- name: startSession
-- Begins a session of a client, unless it has an open one: then no row is given. A transaction that begins another one is waited
-- for by the index testbed_sessions_open.
-- Parameters: @session, @client, @profile, @seed, @rules
INSERT INTO testbed_sessions (session_id, client_id, profile, seed, rules, created_at)
VALUES (@session, @client, @profile, @seed, @rules, clock_timestamp())
ON CONFLICT (client_id) WHERE ended_at IS NULL DO NOTHING
RETURNING {{sessionColumns}}

-- name: forgetSessions
-- Removes sessions of a client that are older than its latest ones, with what they recorded. Reads and removes by primary key.
-- Parameters: @client, @keep
WITH old AS MATERIALIZED (
  SELECT session_id FROM testbed_sessions WHERE client_id = @client AND ended_at IS NOT NULL ORDER BY session_id DESC OFFSET @keep
), exchanges AS (
  DELETE FROM testbed_exchanges WHERE client_id = @client AND session_id = ANY (ARRAY(SELECT session_id FROM old))
)
DELETE FROM testbed_sessions WHERE client_id = @client AND session_id = ANY (ARRAY(SELECT session_id FROM old)) RETURNING session_id

-- name: endSession
-- Ends a session of a client, found by testbed_sessions_latest; one that has ended stays as it is. No row: there is none.
-- Parameters: @client, @session
UPDATE testbed_sessions SET ended_at = coalesce(ended_at, greatest(clock_timestamp(), created_at))
WHERE session_id = @session AND client_id = @client RETURNING {{sessionColumns}}

-- name: listSessions
-- Lists the sessions of a client, the latest first, by primary key, or finds one. Locks nothing.
-- Parameters: @client, @session, @limit
SELECT {{sessionColumns}} FROM testbed_sessions WHERE client_id = @client AND (@session::uuid IS NULL OR session_id = @session)
ORDER BY session_id DESC LIMIT @limit

-- name: recordExchange
-- Records a request in the open session of a client, which is found by testbed_sessions_open and locked: each gets a number of its
-- own. Beyond @most, and beyond @most_bytes of all, it is counted alone. No row: the client has no open session.
-- Parameters: @client, @exchange, @most, @most_bytes
WITH open AS (
  UPDATE testbed_sessions SET exchanges = exchanges + 1, bytes = bytes + octet_length(@exchange::text)
  WHERE client_id = @client AND ended_at IS NULL RETURNING session_id, client_id, exchanges, bytes
), kept AS (
  INSERT INTO testbed_exchanges (client_id, session_id, number, exchange)
  SELECT client_id, session_id, exchanges, @exchange::text::json FROM open WHERE exchanges <= @most AND bytes <= @most_bytes
)
SELECT session_id FROM open

-- name: sessionExchanges
-- Gives what a session has recorded after a number, along the primary key. Locks nothing.
-- Parameters: @client, @session, @after, @limit
SELECT number, exchange FROM testbed_exchanges WHERE client_id = @client AND session_id = @session AND number > @after
ORDER BY client_id, session_id, number LIMIT @limit

-- name: openStreams
-- Counts the event streams of a session whose end is not recorded, along the primary key. Locks nothing. Text is searched faster than
-- JSON is read.
-- Parameters: @client, @session
SELECT count(*) FILTER (WHERE exchange -> 'stream' ->> 'open' = 'true')
  - count(*) FILTER (WHERE exchange -> 'stream' ->> 'events' IS NOT NULL AND exchange -> 'stream' ->> 'open' IS NULL)
FROM testbed_exchanges WHERE client_id = @client AND session_id = @session AND exchange::text LIKE '%"stream":{%'

-- name: sessionJobs
-- Gives the jobs of a client that were made in a session, along jobs_client. @first is not above the id of any of them. Locks nothing.
-- Parameters: @client, @first, @since, @until, @limit
SELECT job_id, state, finished_at, failure_retryable FROM jobs
WHERE client_id = @client AND job_id >= @first AND created_at >= @since AND (@until::timestamptz IS NULL OR created_at <= @until)
ORDER BY client_id, job_id LIMIT @limit

-- name: sessionKeys
-- Gives the keys of a client that expire, along api_keys_client. Locks nothing.
-- Parameters: @client
SELECT key_id, expires_at FROM api_keys WHERE client_id = @client AND expires_at IS NOT NULL

-- name: sessionDeliveries
-- Gives the attempts to deliver events of the jobs of a client that were made in a session: jobs along jobs_client, their deliveries
-- along deliveries_job, and the attempts of each along their primary key. Locks nothing.
-- Parameters: @client, @first, @since, @until, @limit
SELECT d.delivery_id, d.job_id, a.number, d.event_name, a.started_at, a.duration_ms, coalesce(a.status, 0), coalesce(a.error, '')
FROM (SELECT job_id FROM jobs WHERE client_id = @client AND job_id >= @first AND created_at >= @since
  AND (@until::timestamptz IS NULL OR created_at <= @until) ORDER BY client_id, job_id LIMIT @limit) j
CROSS JOIN LATERAL (SELECT delivery_id, job_id, event_name FROM deliveries WHERE deliveries.job_id = j.job_id OFFSET 0) d
CROSS JOIN LATERAL (SELECT number, started_at, duration_ms, status, error FROM delivery_attempts
  WHERE delivery_attempts.delivery_id = d.delivery_id OFFSET 0) a
LIMIT @limit
