-- name: queueDue
-- Moves due CREATED jobs to QUEUED. Locks those that no other transaction has locked, found by the index
-- jobs_scheduled, in its order; touches queued_at, which leaves the job in jobs_waiting. Trigger: events_delivered
-- writes the deliveries. What the event tells of the definition is all that is carried on of it, since sorting whole rows costs more.
--
-- Here and in every search by time it is now(), the statement's begin, and not clock_timestamp(): a volatile function
-- cannot end an index scan, and the search would read all jobs of the future too.
-- Parameters: @limit, @event_ids
WITH ready AS MATERIALIZED (
  SELECT job_id, client_id, request_id, event_seq, event_tx, attempt, updated_at, work_kind, execution_at,
    correlation_id, callback, traceparent, event_data(work_kind, definition) AS data FROM jobs
  WHERE queued_at IS NULL AND finished_at IS NULL AND state = 'CREATED' AND execution_at <= now()
  ORDER BY execution_at, job_id LIMIT @limit FOR NO KEY UPDATE SKIP LOCKED
), {{stamped}}, changed AS (
  UPDATE jobs SET state = 'QUEUED', queued_at = s.at, updated_at = s.at, event_seq = s.event_seq + 1, event_tx = s.tx
  FROM stamped s WHERE jobs.job_id = s.job_id
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data, called_back)
  SELECT job_id, client_id, event_seq + 1, (@event_ids::uuid[])[row_number() OVER ()], 'job.queued', 'CREATED', 'QUEUED', attempt, at, tx,
    data, callback IS NOT NULL FROM stamped
)
SELECT job_id, client_id, request_id, coalesce(correlation_id, ''), coalesce(callback, ''), coalesce(traceparent, ''),
  work_kind, data ->> 'work_kind', jsonb_typeof(data -> 'duration_ms') = 'number' AND data ->> 'duration_ms' ~ '^\d{1,18}$',
  CASE WHEN data ->> 'duration_ms' ~ '^\d{1,18}$' THEN (data ->> 'duration_ms')::bigint END, data ->> 'expected_outcome',
  execution_at, at FROM stamped

-- name: waitingJobs
-- Walks the index jobs_waiting from a cursor to the end of the time, and reads no job that it does not give. Locks
-- nothing.
-- Parameters: @after_time, @after_job, @ahead, @limit
SELECT {{taskColumns}} FROM jobs
WHERE worker_id IS NULL AND finished_at IS NULL AND (run_at, job_id) > (@after_time, @after_job) AND run_at <= now() + @ahead::interval
ORDER BY run_at, job_id LIMIT @limit

-- name: resumeThrottled
-- Gives throttled jobs their time back, the oldest of each client, as many as its jobs that are held leave room for below
-- @most, and those that were resumed before and wait still: these are older than what is throttled.
--
-- Walks the index jobs_throttled from client to client; only if there is one, counts what is held by jobs_held, and what
-- waits among the @looked oldest of jobs_waiting. Locks what it changes in the order of jobs_throttled, and skips what
-- another transaction has locked. dispatch is raised: the name of the task that was dropped may be taken still.
-- Parameters: @most, @looked, @limit
WITH RECURSIVE clients AS (
  (SELECT client_id, job_id FROM jobs WHERE {{throttled}} ORDER BY client_id, job_id LIMIT 1)
  UNION ALL
  SELECT n.client_id, n.job_id FROM clients c CROSS JOIN LATERAL (
    SELECT client_id, job_id FROM jobs WHERE {{throttled}} AND jobs.client_id > c.client_id ORDER BY client_id, job_id LIMIT 1) n
), held AS MATERIALIZED (
  SELECT client_id, count(*) AS n FROM jobs WHERE worker_id IS NOT NULL AND EXISTS (SELECT FROM clients) GROUP BY client_id
), waiting AS MATERIALIZED (
  SELECT client_id, job_id FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL AND run_at <= now() AND EXISTS (SELECT FROM clients)
  ORDER BY run_at, job_id LIMIT @looked
), places AS MATERIALIZED (
  SELECT c.client_id, @most::int - coalesce((SELECT n FROM held WHERE held.client_id = c.client_id), 0)
    - (SELECT count(*) FROM waiting w WHERE w.client_id = c.client_id AND w.job_id < c.job_id) AS free
  FROM clients c
), chosen AS MATERIALIZED (
  SELECT t.job_id FROM places p CROSS JOIN LATERAL (
    SELECT job_id FROM jobs WHERE {{throttled}} AND jobs.client_id = p.client_id ORDER BY jobs.client_id, jobs.job_id
      LIMIT greatest(p.free, 0) FOR NO KEY UPDATE SKIP LOCKED) t
  LIMIT @limit
)
UPDATE jobs SET run_at = queued_at, dispatch = dispatch + 1, dispatch_epoch = NULL FROM chosen c WHERE jobs.job_id = c.job_id
RETURNING {{taskColumns}}

-- name: redispatchJobs
-- Raises the dispatch count of waiting jobs. Locks the jobs in job_id order, skips those that another transaction has
-- locked. Finds them by primary key: the guard is on their state, because one that names the columns of the index
-- jobs_waiting can lead the planner to walk that index instead. Touches no indexed column. dispatch_epoch is the epoch
-- in which the job's task was lost last. No row: the job went on meanwhile.
-- Parameters: @ids, @attempts, @dispatches
WITH waiting AS MATERIALIZED (
  SELECT j.job_id FROM jobs j JOIN unnest(@ids::uuid[], @attempts::int[], @dispatches::int[]) AS t(id, attempt,
    dispatch) ON j.job_id = t.id
  WHERE j.attempt = t.attempt AND j.dispatch = t.dispatch AND j.state IN ('CREATED', 'QUEUED')
  ORDER BY j.job_id FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE jobs SET dispatch = dispatch + 1, dispatch_epoch = (SELECT epoch FROM maintenance_state) FROM waiting w
  WHERE jobs.job_id = w.job_id
RETURNING {{taskColumns}}

-- name: countLoad
-- Reads the indexes jobs_waiting, jobs_scheduled and jobs_held, and no row that a vacuum has seen since it changed:
-- what is asked is all in the predicates. What waits and is not CREATED is QUEUED; of more that waits than the limit
-- too little is counted as QUEUED, but then there is no room anyway.
-- Parameters: @limit
SELECT waiting.n + held.n, greatest(waiting.n - created.n, 0) FROM
  (SELECT count(*) AS n FROM (SELECT FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL LIMIT @limit) w) waiting,
  (SELECT count(*) AS n FROM (SELECT FROM jobs WHERE queued_at IS NULL AND finished_at IS NULL LIMIT @limit) c) created,
  (SELECT count(*) AS n FROM (SELECT FROM jobs WHERE worker_id IS NOT NULL LIMIT @limit) h) held

-- name: countLoadByClient
-- Counts what waits by the index jobs_waiting alone, which has the client and the time of queuing for that, and what is
-- held by the index jobs_held. Locks nothing. What waits and has no time of queuing is CREATED.
-- Parameters: @limit, @few
SELECT client_id, count(*)::int, count(queued_at)::int FROM (
  (SELECT client_id, queued_at FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL LIMIT @limit)
  UNION ALL
  (SELECT client_id, NULL FROM jobs WHERE worker_id IS NOT NULL LIMIT @limit)
) unfinished GROUP BY client_id HAVING count(*) > @few

-- name: countDue
-- Counts waiting jobs that are due by the index jobs_waiting.
-- Parameters: @limit
SELECT count(*)::int FROM (SELECT FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL AND run_at <= now() LIMIT @limit) due

-- name: readBacklog
-- Counts jobs by the indexes jobs_scheduled, jobs_waiting and jobs_held, deliveries by deliveries_waiting and
-- deliveries_claimed, and webhooks by webhooks_client. Locks nothing. Where there may be a million rows, the index
-- alone is read, in no order: the predicates say all that is asked. What waits and is not CREATED is QUEUED.
-- Parameters: @after_client, @after_endpoint, @looked, @limit
{{walkEndpoints}}
SELECT created.n, waiting.n, held.assigned, held.running,
  coalesce((SELECT now() - run_at FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL AND run_at <= now() ORDER BY run_at, job_id
    LIMIT 1), '0'),
  (SELECT epoch FROM maintenance_state), alive.n, alive.slots,
  least(unsent.n + sending.n, @limit), coalesce((SELECT now() - min(next_attempt_at) FROM walk WHERE next_attempt_at <= now()), '0'),
    hooks.disabled
FROM
  (SELECT count(*) AS n FROM (SELECT FROM jobs WHERE queued_at IS NULL AND finished_at IS NULL LIMIT @limit) j) created,
  (SELECT count(*) AS n FROM (SELECT FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL LIMIT @limit) j) waiting,
  (SELECT count(*) FILTER (WHERE state = 'ASSIGNED') AS assigned, count(*) FILTER (WHERE state = 'RUNNING') AS running
    FROM (SELECT state FROM jobs WHERE worker_id IS NOT NULL ORDER BY worker_id LIMIT @limit) j) held,
  (SELECT count(*) AS n, coalesce(sum(concurrency), 0) AS slots FROM workers WHERE state = 'ALIVE' AND expires_at > pg_catalog.now()) alive,
  (SELECT count(*) AS n FROM (SELECT FROM deliveries WHERE {{waiting}} LIMIT @limit) d) unsent,
  (SELECT count(*) AS n FROM (SELECT FROM deliveries WHERE claimed_until IS NOT NULL ORDER BY claimed_until LIMIT @limit) d) sending,
  (SELECT count(*) FILTER (WHERE disabled_reason <> 'OWNER') AS disabled
    FROM (SELECT disabled_reason FROM webhooks WHERE deleted_at IS NULL ORDER BY client_id, webhook_id LIMIT @limit) w) hooks

-- fragment: isOld
-- Guards jobs to be removed. Those of a batch wait until it is complete: its outcome counts them.
finished_at <= now() - @keep::interval AND {{notInOpenBatch}}

-- name: cleanDeliveries
-- Removes deliveries of old jobs, twenty for each job that may be removed at once: a job can have hundreds. Finds the
-- jobs by the index jobs_ended.
--
-- In this and the statements below the rows to remove are chosen in a materialized query of their own: within the
-- DELETE the choice could be made more than once, and the limit with it. They are handed on as an array: whatever the
-- planner believes about their number, it finds them by the primary key. All of them skip rows that another
-- transaction has locked.
-- Parameters: @keep, @limit
WITH ended AS MATERIALIZED (
  SELECT job_id FROM jobs WHERE {{isOld}} ORDER BY finished_at LIMIT @limit
), old AS MATERIALIZED (
  SELECT d.delivery_id FROM ended CROSS JOIN LATERAL (
    SELECT delivery_id FROM deliveries WHERE job_id = ended.job_id ORDER BY job_id, delivery_id
      LIMIT 20 * @limit::bigint FOR UPDATE SKIP LOCKED) d
  LIMIT 20 * @limit::bigint
)
DELETE FROM deliveries WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM old))

-- name: cleanJobs
-- Removes jobs with all that belongs to them and leaves tombstones. Those that have deliveries still are left for
-- later.
-- Parameters: @keep, @limit
WITH oldest AS MATERIALIZED (
  SELECT job_id, client_id FROM jobs WHERE {{isOld}} ORDER BY finished_at LIMIT @limit FOR UPDATE SKIP LOCKED
), old AS MATERIALIZED (
  SELECT job_id, client_id FROM oldest WHERE NOT EXISTS (SELECT FROM deliveries WHERE deliveries.job_id = oldest.job_id OFFSET 0)
), {{removeOld}}

-- name: cleanClientDeliveries
-- Removes deliveries of old events of no job, found by the index deliveries_once: one event has as many as its client
-- has webhooks.
-- Parameters: @keep, @limit
WITH past AS MATERIALIZED (
  SELECT event_id FROM client_events WHERE occurred_at <= now() - @keep::interval ORDER BY occurred_at LIMIT @limit
), old AS MATERIALIZED (
  SELECT d.delivery_id FROM past CROSS JOIN LATERAL (
    SELECT delivery_id FROM deliveries WHERE event_id = past.event_id AND url IS NULL FOR UPDATE SKIP LOCKED) d
  LIMIT 20 * @limit::bigint
)
DELETE FROM deliveries WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM old))

-- name: cleanClientEvents
-- Removes events of no job. Those that have deliveries still are left for later.
-- Parameters: @keep, @limit
WITH oldest AS MATERIALIZED (
  SELECT event_id FROM client_events WHERE occurred_at <= now() - @keep::interval ORDER BY occurred_at LIMIT @limit FOR UPDATE SKIP LOCKED
), old AS MATERIALIZED (
  SELECT event_id FROM oldest WHERE NOT EXISTS (SELECT FROM deliveries d WHERE d.event_id = oldest.event_id AND d.url IS NULL OFFSET 0)
)
DELETE FROM client_events WHERE event_id = ANY (ARRAY(SELECT event_id FROM old))

-- name: cleanBatches
-- Removes completed batches, by the index batches_ended. Leaves the jobs of a batch alone: one that was retried later
-- has its own time.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT batch_id FROM batches WHERE completed_at <= now() - @keep::interval ORDER BY completed_at LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM batches WHERE batch_id = ANY (ARRAY(SELECT batch_id FROM old))

-- name: cleanLogs
-- Removes what is left of the deliveries of webhooks that were deleted long ago, found by the index
-- deliveries_webhook.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT d.delivery_id FROM (SELECT webhook_id FROM webhooks WHERE deleted_at <= now() - @keep::interval ORDER BY deleted_at
    LIMIT @limit) w
  CROSS JOIN LATERAL (
    SELECT delivery_id FROM deliveries WHERE webhook_id = w.webhook_id ORDER BY webhook_id, delivery_id
      LIMIT @limit FOR UPDATE SKIP LOCKED) d
  LIMIT @limit
)
DELETE FROM deliveries WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM old))

-- name: cleanWebhooks
-- Removes webhooks that were deleted long ago and have no deliveries any more.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT webhook_id FROM webhooks w WHERE deleted_at <= now() - @keep::interval
    AND NOT EXISTS (SELECT FROM deliveries WHERE deliveries.webhook_id = w.webhook_id OFFSET 0)
  ORDER BY deleted_at LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM webhooks WHERE webhook_id = ANY (ARRAY(SELECT webhook_id FROM old))

-- name: cleanSigningKeys
-- Removes signing keys that no receiver needs any more.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT kid FROM signing_keys WHERE retires_at <= pg_catalog.now() - @keep::interval LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM signing_keys WHERE kid = ANY (ARRAY(SELECT kid FROM old))

-- name: cleanResults
-- Removes bodies. What they were, and when they expired, stays as long as their job.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT job_id FROM results WHERE body IS NOT NULL AND expires_at <= now() - @keep::interval
  ORDER BY expires_at LIMIT @limit FOR UPDATE SKIP LOCKED
)
UPDATE results SET body = NULL WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))

-- name: cleanIdempotencyKeys
-- Removes expired idempotency keys, by the index idempotency_keys_expiry.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT client_id, endpoint, key FROM idempotency_keys
  WHERE expires_at <= now() - @keep::interval ORDER BY expires_at LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM idempotency_keys WHERE (client_id, endpoint, key) IN (SELECT client_id, endpoint, key FROM old)

-- name: cleanTombstones
-- Removes old tombstones, by the index tombstones_expiry.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT job_id FROM tombstones WHERE expired_at <= now() - @keep::interval ORDER BY expired_at LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM tombstones WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))

-- name: cleanKeys
-- Removes API keys that were revoked and have expired long ago, whichever came later, or expired without being revoked.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT key_id FROM api_keys WHERE greatest(revoked_at, expires_at) <= now() - @keep::interval LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM api_keys WHERE key_id = ANY (ARRAY(SELECT key_id FROM old))

-- name: cleanWorkers
-- Leaves the row of a worker that jobs still name: the rescuer finds them by it.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT worker_id FROM workers w WHERE state <> 'ALIVE' AND expires_at <= pg_catalog.now() - @keep::interval
    AND NOT EXISTS (SELECT FROM jobs WHERE jobs.worker_id = w.worker_id) LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM workers WHERE worker_id = ANY (ARRAY(SELECT worker_id FROM old))

-- name: unpublishedOutcomes
-- Gives outcomes that are not published, the oldest first, by the index outcome_outbox_waiting, and removes those
-- whose job is gone.
-- Parameters: @limit
WITH waiting AS MATERIALIZED (
  SELECT job_id, attempt, finished_at FROM outcome_outbox WHERE published_at IS NULL ORDER BY finished_at, job_id LIMIT @limit
), found AS MATERIALIZED (
  SELECT {{scenarioColumns}}, w.job_id, w.attempt, w.finished_at, j.created_at, coalesce(j.correlation_id, '') AS correlation_id, j.language,
    r.outcome, r.started_at, r.failure_reason, r.failure_code, r.failure_retryable, r.failure_retry_after, r.failure_stage,
      r.failure_detail
  FROM waiting w LEFT JOIN LATERAL (SELECT * FROM jobs WHERE job_id = w.job_id LIMIT 1) j ON true
  LEFT JOIN LATERAL (SELECT * FROM reports WHERE job_id = w.job_id AND attempt = w.attempt LIMIT 1) r ON true
), gone AS (
  DELETE FROM outcome_outbox WHERE job_id = ANY (ARRAY(SELECT job_id FROM found WHERE created_at IS NULL OR outcome IS NULL))
)
SELECT job_id, created_at, correlation_id, language, work_kind, duration_ms, expected_outcome, planned_failures, attempt, outcome,
  started_at, finished_at,
  failure_reason, failure_code, failure_retryable, failure_retry_after, failure_stage, failure_detail
FROM found WHERE created_at IS NOT NULL AND outcome IS NOT NULL ORDER BY finished_at, job_id

-- name: markPublished
-- Marks outcomes as published. Finds them by primary key, locks them in its order, and leaves out those that another
-- transaction has locked: they are just being removed, or marked.
-- Parameters: @ids, @attempts
WITH sent AS MATERIALIZED (
  SELECT o.job_id, o.attempt FROM outcome_outbox o JOIN unnest(@ids::uuid[], @attempts::int[]) AS i(id, number) ON o.job_id = i.id
    AND o.attempt = i.number
  ORDER BY o.job_id FOR NO KEY UPDATE OF o SKIP LOCKED
)
UPDATE outcome_outbox SET published_at = pg_catalog.clock_timestamp() FROM sent s
WHERE outcome_outbox.job_id = s.job_id AND outcome_outbox.attempt = s.attempt AND published_at IS NULL

-- name: republishOutcomes
-- Makes published outcomes unpublished. Walks the index outcome_outbox_published, and locks what it finds in order of
-- the keys. Rows that another transaction has locked are waited for: nothing may be left out. They may be gone then,
-- so what was found counts.
-- Parameters: @limit
WITH oldest AS MATERIALIZED (
  SELECT job_id, attempt FROM outcome_outbox WHERE published_at IS NOT NULL ORDER BY published_at LIMIT @limit
), held AS MATERIALIZED (
  SELECT job_id, attempt FROM outcome_outbox WHERE job_id = ANY (ARRAY(SELECT job_id FROM oldest)) AND num_nonnulls(published_at) = 1
  ORDER BY job_id, attempt FOR NO KEY UPDATE
), changed AS (
  UPDATE outcome_outbox SET published_at = NULL WHERE job_id = ANY (ARRAY(SELECT job_id FROM held))
    AND num_nonnulls(published_at) = 1 RETURNING 1
)
SELECT (SELECT count(*)::int FROM oldest), (SELECT count(*)::int FROM changed)

-- name: removePublished
-- Removes published outcomes. Walks the index outcome_outbox_published, and skips what another transaction has locked.
-- IS TRUE keeps the planner from making a join of IN, which would compare all with all.
-- Parameters: @min_age, @limit
WITH old AS MATERIALIZED (
  SELECT job_id, attempt FROM outcome_outbox WHERE published_at <= pg_catalog.now() - @min_age::interval ORDER BY published_at
    LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM outcome_outbox WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))
  AND ((job_id, attempt) IN (SELECT job_id, attempt FROM old)) IS TRUE
