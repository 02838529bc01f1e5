-- name: forgetAnswers
-- Removes the client's idempotency keys with their stored responses, using the primary key. It skips keys with status 0: their requests,
-- such as the reset itself, have no response yet.
-- Parameters: @client, @limit
DELETE FROM idempotency_keys WHERE client_id = @client AND (endpoint, key) IN (SELECT endpoint, key FROM idempotency_keys
  WHERE client_id = @client AND answer_status IS DISTINCT FROM 0 ORDER BY client_id, endpoint, key LIMIT @limit FOR UPDATE SKIP LOCKED)

-- name: finishErasure
-- Ends an erasure and stores its record. Finds the row, which is already locked, by primary key.
-- Parameters: @erasure, @finished_at, @removed, @remaining, @record, @sha256
UPDATE erasures SET finished_at = @finished_at, step = 'done', position = NULL, position_job = NULL, removed = @removed,
  remaining = @remaining, record = @record, record_sha256 = @sha256
WHERE erasure_id = @erasure

-- name: erasureMayGoOn
-- Reads whether all transactions and statements that began before the step have ended. It also checks the snapshots of all sessions of this
-- database, because a transaction without writes has no transaction id. If `since` is above all transaction ids, the database was restored
-- from a backup. All transactions from before the restore have ended. Finds the erasure by primary key.
-- Parameters: @erasure
SELECT since > pg_snapshot_xmax(pg_current_snapshot()) OR since < pg_snapshot_xmin(pg_current_snapshot()) AND NOT EXISTS (
  SELECT FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
    AND age(backend_xmin) >= age(since::xid))
FROM erasures WHERE erasure_id = @erasure

-- name: stopErasedBulks
-- Ends the client's open bulk operations, found by the index bulk_operations_open or bulk_operations_client. If a worker is processing
-- such an operation, the statement waits for the worker's transaction.
-- Parameters: @client
UPDATE bulk_operations SET finished_at = clock_timestamp(), aborted = true WHERE client_id = @client AND finished_at IS NULL

-- name: stopErasedWebhooks
-- Marks the webhooks of a client deleted, and removes their secrets, as deleteWebhook does. Finds them by the index webhooks_client, and
-- locks them in order of their ids.
-- Parameters: @client
WITH locked AS MATERIALIZED (
  SELECT webhook_id FROM webhooks WHERE client_id = @client AND deleted_at IS NULL ORDER BY webhook_id FOR NO KEY UPDATE
)
UPDATE webhooks SET deleted_at = at, updated_at = at, secret = '', old_secrets = '{}', old_secrets_until = '{}'
FROM (VALUES (clock_timestamp())) AS v(at) WHERE webhook_id = ANY (ARRAY(SELECT webhook_id FROM locked))

-- name: lookErasedJobs
-- Reads @look jobs of a client after a position, using the index jobs_client. Removes the callbacks of the unfinished jobs, so that no
-- callback reports their cancellation. Jobs that another transaction has locked keep their callbacks.
-- Parameters: @client, @after, @look
WITH looked AS MATERIALIZED (
  SELECT job_id, finished_at IS NULL AS open, attempt, dispatch FROM jobs
  WHERE client_id = @client AND job_id > @after ORDER BY client_id, job_id LIMIT @look
), called_back AS MATERIALIZED (
  SELECT job_id FROM jobs WHERE job_id = ANY (ARRAY(SELECT job_id FROM looked WHERE open)) AND callback IS NOT NULL
  ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED
), silent AS (
  UPDATE jobs SET callback = NULL WHERE job_id = ANY (ARRAY(SELECT job_id FROM called_back))
)
SELECT job_id, open, attempt, dispatch FROM looked ORDER BY job_id

-- name: chooseErasedJobs
-- Locks the first jobs of a client, using the index jobs_client. The second column is true for an unfinished job. Skips rows that another
-- transaction has locked.
-- Parameters: @client, @limit
SELECT job_id, finished_at IS NULL, attempt, dispatch FROM jobs WHERE client_id = @client ORDER BY client_id, job_id
  LIMIT @limit FOR UPDATE SKIP LOCKED

-- name: hasErasedJobs
-- Reads whether a client has jobs, by the index jobs_client.
-- Parameters: @client
SELECT EXISTS (SELECT FROM jobs WHERE client_id = @client)

-- fragment: removeDeliveries
-- The last part of a statement. It removes the deliveries of the CTE `old` and their attempts. Returns the ids of all removed deliveries,
-- the ids of the undelivered ones, and the number of removed attempts. Redis may still have tasks of undelivered deliveries.
no_attempts AS (
  DELETE FROM delivery_attempts WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM old)) RETURNING 1
), no_deliveries AS (
  DELETE FROM deliveries WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM old)) RETURNING delivery_id, state
)
SELECT ARRAY(SELECT delivery_id FROM no_deliveries), ARRAY(SELECT delivery_id FROM no_deliveries WHERE state <> 'DELIVERED'),
  (SELECT count(*)::int FROM no_attempts)

-- name: eraseWaitingDeliveries
-- Removes at most @limit waiting deliveries of a client, in the order of the index deliveries_waiting. Skips rows that another transaction
-- has locked.
-- Parameters: @client, @limit
WITH old AS MATERIALIZED (
  SELECT delivery_id FROM deliveries WHERE client_id = @client AND state = 'PENDING' AND claimed_until IS NULL
  ORDER BY client_id, endpoint_id, next_attempt_at LIMIT @limit FOR UPDATE SKIP LOCKED
), {{removeDeliveries}}

-- name: eraseDeliveries
-- Removes deliveries of the jobs or webhooks @ids, using the indexes deliveries_job and deliveries_webhook. Skips rows that another
-- transaction has locked.
-- Parameters: @ids, @limit
WITH old AS MATERIALIZED (
  SELECT d.delivery_id FROM unnest(@ids::uuid[]) AS i(id) CROSS JOIN LATERAL (
    SELECT * FROM (
      SELECT delivery_id FROM deliveries WHERE job_id = i.id ORDER BY job_id, delivery_id LIMIT @limit FOR UPDATE SKIP LOCKED) of_job
    UNION ALL SELECT * FROM (
      SELECT delivery_id FROM deliveries WHERE webhook_id = i.id ORDER BY webhook_id, delivery_id
        LIMIT @limit FOR UPDATE SKIP LOCKED) of_webhook) d
  LIMIT @limit
), {{removeDeliveries}}

-- name: countErasedAttempts
-- Counts attempts of deliveries by primary key. Runs right after the deliveries' removal, because attempts cannot be found by client later.
-- Parameters: @ids
SELECT count(*)::int FROM delivery_attempts WHERE delivery_id = ANY (@ids::uuid[])

-- name: haveDeliveries
-- Reads whether the jobs or webhooks @ids have deliveries, using the indexes deliveries_job and deliveries_webhook.
-- Parameters: @ids
SELECT EXISTS (SELECT FROM unnest(@ids::uuid[]) AS i(id) CROSS JOIN LATERAL (
  (SELECT 1 FROM deliveries WHERE job_id = i.id ORDER BY job_id, delivery_id LIMIT 1)
  UNION ALL (SELECT 1 FROM deliveries WHERE webhook_id = i.id ORDER BY webhook_id, delivery_id LIMIT 1)) d)

-- name: eraseJobs
-- Removes jobs by primary key, with all their data except deliveries. The jobs are locked already. Leaves no tombstones. Returns the
-- numbers of removed rows by table. The deliveries must be removed first, so that the trigger jobs_undelivered has nothing to do.
-- Parameters: @ids
WITH no_outcomes AS (
  DELETE FROM outcome_outbox WHERE job_id = ANY (@ids::uuid[]) RETURNING 1
), no_events AS (
  DELETE FROM events WHERE job_id = ANY (@ids) RETURNING 1
), no_reports AS (
  DELETE FROM reports WHERE job_id = ANY (@ids) RETURNING 1
), no_results AS (
  DELETE FROM results WHERE job_id = ANY (@ids) RETURNING 1
), no_jobs AS (
  DELETE FROM jobs WHERE job_id = ANY (@ids) RETURNING 1
)
SELECT jsonb_build_object('outcome_outbox', (SELECT count(*) FROM no_outcomes), 'events', (SELECT count(*) FROM no_events),
  'reports', (SELECT count(*) FROM no_reports), 'results', (SELECT count(*) FROM no_results), 'jobs', (SELECT count(*) FROM no_jobs))

-- name: countErasedJobs
-- Counts the remaining data of jobs right after their removal, by primary key. The data cannot be counted later, because these tables do
-- not store the client.
-- Parameters: @ids
SELECT (SELECT count(*) FROM outcome_outbox WHERE job_id = ANY (@ids::uuid[]))
  + (SELECT count(*) FROM reports WHERE job_id = ANY (@ids)) + (SELECT count(*) FROM results WHERE job_id = ANY (@ids))

-- name: lookErasedWebhooks
-- Reads @look webhooks after a position by primary key. The second column is true if the webhook belongs to the client. The index by client
-- is not used, because it lacks deleted webhooks. Locks nothing.
-- Parameters: @client, @after, @look
SELECT webhook_id, client_id = @client FROM webhooks WHERE webhook_id > @after ORDER BY webhook_id LIMIT @look

-- name: eraseWebhooks
-- Parameters: @ids
DELETE FROM webhooks WHERE webhook_id = ANY (@ids::uuid[])

-- fragment: lookedAlong
looked AS MATERIALIZED (
  SELECT {{key}}, client_id FROM {{table}} WHERE {{key}} > @after ORDER BY {{key}} LIMIT @look
)

-- fragment: eraseAlong
-- Reads @look rows of a table after a position by primary key, and removes the client's rows. The table has no index by client. Returns
-- the number of rows read, the last row read, and the number of rows removed.
-- Parameters: @client, @after, @after_job, @look
WITH {{lookedAlong}}, gone AS (
  DELETE FROM {{table}} WHERE {{key}} = ANY (ARRAY(SELECT {{key}} FROM looked WHERE client_id = @client)) RETURNING 1
)
SELECT (SELECT count(*)::int FROM looked), (SELECT {{key}} FROM looked ORDER BY {{key}} DESC LIMIT 1), @after_job::uuid,
  (SELECT count(*)::int FROM gone)

-- fragment: countAlong
-- Reads rows like eraseAlong, and counts the client's rows. Locks nothing.
-- Parameters: @client, @after, @after_job, @look
WITH {{lookedAlong}}
SELECT (SELECT count(*)::int FROM looked), (SELECT {{key}} FROM looked ORDER BY {{key}} DESC LIMIT 1), @after_job::uuid,
  (SELECT count(*)::int FROM looked WHERE client_id = @client)

-- name: eraseBatches of eraseAlong, countBatches of countAlong
-- {{table}} => batches
-- {{key}} => batch_id

-- name: eraseTombstones of eraseAlong, countTombstones of countAlong
-- {{table}} => tombstones
-- {{key}} => job_id

-- name: countDeliveries of countAlong
-- {{table}} => deliveries
-- {{key}} => delivery_id

-- name: countAllWebhooks of countAlong
-- {{table}} => webhooks
-- {{key}} => webhook_id

-- fragment: lookedItems
-- Reads @look items of bulk operations after a position, by primary key. The table has no index by client.
looked AS MATERIALIZED (
  SELECT bulk_id, job_id, client_id FROM bulk_items WHERE (bulk_id, job_id) > (@after::uuid, @after_job::uuid)
  ORDER BY bulk_id, job_id LIMIT @look
)

-- name: eraseItems
-- Reads @look items after a position, and removes the client's items, by primary key. First it locks the bulk operations of these items,
-- like every statement that changes items. Removed pending items count as skipped, because an operator's operation ends only when all its
-- items are counted. Returns the number of items read, the last item read, and the number of items removed.
-- Parameters: @client, @after, @after_job, @look
WITH {{lookedItems}}, mine AS MATERIALIZED (
  SELECT bulk_id, job_id FROM looked WHERE client_id = @client
), locked AS MATERIALIZED (
  SELECT bulk_id FROM bulk_operations WHERE bulk_id = ANY (ARRAY(SELECT DISTINCT bulk_id FROM mine)) ORDER BY bulk_id FOR NO KEY UPDATE
), gone AS (
  DELETE FROM bulk_items USING mine
  WHERE bulk_items.bulk_id = mine.bulk_id AND bulk_items.job_id = mine.job_id AND (SELECT count(*) FROM locked) >= 0
  RETURNING bulk_items.bulk_id, result
), counted AS (
  UPDATE bulk_operations SET skipped = skipped + g.pending
  FROM (SELECT bulk_id, count(*) AS pending FROM gone WHERE result = 'PENDING' GROUP BY bulk_id) g
  WHERE bulk_operations.bulk_id = g.bulk_id
)
SELECT (SELECT count(*)::int FROM looked), l.bulk_id, l.job_id, (SELECT count(*)::int FROM gone)
FROM (SELECT bulk_id, job_id FROM looked ORDER BY bulk_id DESC, job_id DESC LIMIT 1) l

-- name: countItems
-- Reads items like eraseItems, and counts the client's items. Locks nothing.
-- Parameters: @client, @after, @after_job, @look
WITH {{lookedItems}}
SELECT (SELECT count(*)::int FROM looked), l.bulk_id, l.job_id, (SELECT count(*)::int FROM looked WHERE client_id = @client)
FROM (SELECT bulk_id, job_id FROM looked ORDER BY bulk_id DESC, job_id DESC LIMIT 1) l

-- name: eraseBulks
-- Removes bulk operations of a client using the index bulk_operations_client.
-- Parameters: @client, @limit
DELETE FROM bulk_operations WHERE bulk_id = ANY (ARRAY(SELECT bulk_id FROM bulk_operations WHERE client_id = @client
  ORDER BY client_id, bulk_id LIMIT @limit))

-- name: eraseSchedules
-- Removes schedules of a client using the index schedules_client.
-- Parameters: @client, @limit
DELETE FROM schedules WHERE schedule_id = ANY (ARRAY(SELECT schedule_id FROM schedules WHERE client_id = @client
  ORDER BY client_id, schedule_id LIMIT @limit))

-- name: eraseFaults
-- Removes the rules of a client's test bed by primary key. Keeps the rules of open sessions with a profile, found by
-- testbed_sessions_open.
-- Parameters: @client, @limit
DELETE FROM testbed_faults WHERE client_id = @client AND (session_id, position) IN (SELECT session_id, position FROM testbed_faults f
  WHERE client_id = @client AND NOT EXISTS (
    SELECT FROM testbed_sessions s WHERE s.client_id = @client AND s.ended_at IS NULL AND s.profile <> ''
      AND f.session_id = CASE s.label WHEN '' THEN '00000000-0000-0000-0000-000000000000' ELSE s.session_id END)
  ORDER BY client_id, session_id, position LIMIT @limit)

-- name: eraseSessions
-- Removes the sessions of a client's test bed by primary key. Without a session no exchange is recorded, so a later step can remove all
-- recorded exchanges.
-- Parameters: @client, @limit
DELETE FROM testbed_sessions WHERE client_id = @client AND session_id = ANY (ARRAY(SELECT session_id FROM testbed_sessions
  WHERE client_id = @client ORDER BY client_id, session_id LIMIT @limit))

-- name: eraseExchanges
-- Removes the recorded exchanges of a client by primary key.
-- Parameters: @client, @limit
DELETE FROM testbed_exchanges WHERE client_id = @client AND (session_id, number) IN (SELECT session_id, number FROM testbed_exchanges
  WHERE client_id = @client ORDER BY client_id, session_id, number LIMIT @limit)

-- name: eraseRequests
-- Removes the rows that assign a client's requests to sessions, by primary key.
-- Parameters: @client, @limit
DELETE FROM testbed_requests WHERE client_id = @client AND request_id = ANY (ARRAY(SELECT request_id FROM testbed_requests
  WHERE client_id = @client ORDER BY client_id, request_id LIMIT @limit))

-- name: eraseClientEvents
-- Removes events without a job using the index client_events_client.
-- Parameters: @client, @limit
DELETE FROM client_events WHERE event_id = ANY (ARRAY(SELECT event_id FROM client_events WHERE client_id = @client
  ORDER BY client_id, tx, event_id LIMIT @limit))

-- name: eraseEvents
-- Removes events that have no job any more, using the index events_client. Normally there are none.
-- Parameters: @client, @limit
DELETE FROM events WHERE ((job_id, seq) IN (SELECT job_id, seq FROM events WHERE client_id = @client
  ORDER BY client_id, tx, job_id, seq LIMIT @limit)) IS TRUE
  AND job_id = ANY (ARRAY(SELECT job_id FROM events WHERE client_id = @client ORDER BY client_id, tx, job_id, seq LIMIT @limit))

-- name: eraseAnswers
-- Removes idempotency keys using the primary key: the client's keys, and the key of the request that created the client. That request had
-- no client, so its key is stored under the zero client id. Skips rows that another transaction has locked. If rows are left after the last
-- step, the erasure starts again.
-- Parameters: @client, @limit
WITH own AS MATERIALIZED (
  SELECT ctid AS place FROM idempotency_keys WHERE client_id = @client ORDER BY client_id, endpoint, key
    LIMIT @limit FOR UPDATE SKIP LOCKED
), first AS MATERIALIZED (
  SELECT ctid AS place FROM idempotency_keys WHERE client_id = '00000000-0000-0000-0000-000000000000' AND resource_id = @client
  ORDER BY client_id, endpoint, key LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(SELECT place FROM own UNION ALL SELECT place FROM first))

-- name: eraseKeys
-- Removes the API keys of a client, found by the index api_keys_client.
-- Parameters: @client
DELETE FROM api_keys WHERE client_id = @client RETURNING key_id

-- name: eraseClient
-- Parameters: @client
DELETE FROM clients WHERE client_id = @client

-- name: countErased
-- Counts the client's rows in the tables with an index by client, and returns the time. Locks nothing.
-- Parameters: @client
SELECT jsonb_build_object('jobs', (SELECT count(*) FROM jobs WHERE client_id = @client),
  'events', (SELECT count(*) FROM events WHERE client_id = @client),
  'client_events', (SELECT count(*) FROM client_events WHERE client_id = @client),
  'bulk_operations', (SELECT count(*) FROM bulk_operations WHERE client_id = @client),
  'schedules', (SELECT count(*) FROM schedules WHERE client_id = @client),
  'testbed_faults', (SELECT count(*) FROM testbed_faults WHERE client_id = @client),
  'testbed_sessions', (SELECT count(*) FROM testbed_sessions WHERE client_id = @client),
  'testbed_exchanges', (SELECT count(*) FROM testbed_exchanges WHERE client_id = @client),
  'testbed_requests', (SELECT count(*) FROM testbed_requests WHERE client_id = @client),
  'idempotency_keys', (SELECT count(*) FROM idempotency_keys WHERE client_id = @client),
  'api_keys', (SELECT count(*) FROM api_keys WHERE client_id = @client),
  'clients', (SELECT count(*) FROM clients WHERE client_id = @client)), clock_timestamp()
