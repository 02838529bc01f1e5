-- name: cancelJobs
-- Moves unfinished jobs to CANCELED, if they belong to the client. After that, the worker that held the job can no longer write to it.
--
-- Locks the job rows in job_id order, found by primary key. No row: the job is final or not the client's, or the API key of the request has
-- ended. Triggers: events_delivered writes the deliveries, and reports_published writes the row of outcome_outbox.
-- Parameters: @ids, @clients, @api_keys
WITH input AS MATERIALIZED (
  SELECT * FROM unnest(@ids::uuid[], @clients::uuid[], @api_keys::text[]) AS i(id, client, api_key)
  WHERE i.api_key IS NULL OR {{keyHolds}}
), ready AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.batch_id, j.state, j.event_seq, j.event_tx, j.attempt, j.run_at, j.dispatch, j.started_at, j.updated_at,
    j.worker_id, j.work_kind, j.definition, j.request_id, coalesce(j.correlation_id, '') AS correlation_id,
    coalesce(j.callback, '') AS callback, coalesce(j.traceparent, '') AS traceparent
  FROM jobs j JOIN input i ON j.job_id = i.id
  WHERE j.client_id = i.client AND j.state IN ('CREATED', 'QUEUED', 'ASSIGNED', 'RUNNING')
  ORDER BY j.job_id FOR NO KEY UPDATE OF j
), stamped AS MATERIALIZED (
  SELECT *, greatest(clock_timestamp(), updated_at) AS at, greatest(pg_current_xact_id(), event_tx) AS tx FROM ready
), changed AS (
  UPDATE jobs SET state = 'CANCELED', outcome = 'CANCELED', finished_at = s.at, updated_at = s.at, worker_id = NULL,
    event_seq = s.event_seq + 1, event_tx = s.tx
  FROM stamped s WHERE jobs.job_id = s.job_id
), report AS (
  INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq, worker_id)
  SELECT job_id, attempt, 'CANCELED', started_at, at, coalesce((extract(epoch FROM at - started_at) * 1000)::bigint, 0), event_seq + 1,
    worker_id
  FROM stamped
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data)
  SELECT job_id, client_id, event_seq + 1, uuid7(at), 'job.canceled', state, 'CANCELED', attempt, at, tx,
    event_data(work_kind, definition) FROM stamped
)
SELECT job_id, attempt, at, run_at, dispatch, state, work_kind, definition, request_id, batch_id, correlation_id, callback, traceparent,
  started_at FROM stamped

-- name: unfinishedJobs
-- Returns unfinished jobs of a client. Walks the waiting jobs of all clients until it has found @limit jobs of the client, using only
-- the index jobs_waiting. Then it reads the few jobs that workers hold. OFFSET 0 prevents the planner from walking a client's final jobs
-- instead. Locks nothing.
-- Parameters: @client, @limit
SELECT job_id FROM (
  SELECT job_id, client_id FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL OFFSET 0) waiting
  WHERE client_id = @client
UNION ALL
SELECT job_id FROM (SELECT job_id, client_id FROM jobs WHERE worker_id IS NOT NULL OFFSET 0) held WHERE client_id = @client
LIMIT @limit

-- name: retryJobs
-- Moves FAILED jobs back to QUEUED, if attempts are left and the failure is retryable. The failed attempt remains in its report. For a job
-- with true in @overrides, both conditions are ignored, and max_attempts is raised if necessary.
--
-- Locks the headroom leases, then the job rows in job_id order, found by primary key. No row: the job is no longer FAILED at that attempt,
-- or is not the client's, or the request's API key or headroom lease has ended. Trigger: events_delivered writes the deliveries.
-- Parameters: @ids, @clients, @attempts, @waits, @traceparents, @api_keys, @leases, @overrides
WITH {{leased}}, input AS MATERIALIZED (
  SELECT * FROM unnest(@ids::uuid[], @clients::uuid[], @attempts::int[], @waits::interval[], @traceparents::text[],
    @api_keys::text[], @leases::uuid[], @overrides::boolean[])
  AS i(id, client, attempt, wait, traceparent, api_key, lease, override)
  WHERE (i.api_key IS NULL OR {{keyHolds}}) AND (i.lease IS NULL OR i.lease IN (SELECT lease_id FROM leased))
), ready AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.event_seq, j.event_tx, j.attempt + 1 AS number, j.updated_at, j.work_kind, j.definition, i.wait,
    i.traceparent
  FROM jobs j JOIN input i ON j.job_id = i.id
  WHERE j.client_id = i.client AND j.state = 'FAILED' AND j.attempt = i.attempt
    AND (i.override OR j.attempt < j.max_attempts AND j.failure_retryable)
  ORDER BY j.job_id FOR NO KEY UPDATE OF j
), stamped AS MATERIALIZED (
  SELECT *, greatest(clock_timestamp(), updated_at) AS at, greatest(pg_current_xact_id(), event_tx) AS tx FROM ready
), changed AS (
  UPDATE jobs SET state = 'QUEUED', attempt = s.number, max_attempts = greatest(max_attempts, s.number),
    outcome = NULL, finished_at = NULL, started_at = NULL,
    failure_reason = NULL, failure_code = NULL, failure_retryable = NULL, failure_retry_after = NULL,
    failure_stage = NULL, failure_detail = NULL,
    run_at = s.at + s.wait, queued_at = s.at, updated_at = s.at, dispatch = 0,
      traceparent = coalesce(s.traceparent, jobs.traceparent),
    event_seq = s.event_seq + 1, event_tx = s.tx
  FROM stamped s WHERE jobs.job_id = s.job_id
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data)
  SELECT job_id, client_id, event_seq + 1, uuid7(at), 'job.retried', 'FAILED', 'QUEUED', number, at, tx,
    event_data(work_kind, definition) FROM stamped
)
SELECT job_id, number, at, at + wait FROM stamped

-- name: deleteJob
-- Removes a client's final job with all its data, and leaves a tombstone. Locks the job's row, found by primary key. No row: the job is not
-- final, not the client's, belongs to an open batch, or changed meanwhile.
--
-- The statement may wait for the lock of the job's row, but it sees only events and reports from before the wait. If the job is retried
-- during the wait, the new events would not be removed. So event_seq must be unchanged.
-- Parameters: @job, @client
WITH seen AS MATERIALIZED (
  SELECT job_id, event_seq FROM jobs WHERE job_id = @job AND client_id = @client AND finished_at IS NOT NULL AND {{notInOpenBatch}}
), old AS MATERIALIZED (
  SELECT jobs.job_id, jobs.client_id, jobs.state, jobs.attempt, jobs.run_at, jobs.started_at, jobs.finished_at FROM seen
    JOIN jobs ON jobs.job_id = seen.job_id AND jobs.event_seq = seen.event_seq
  WHERE jobs.finished_at IS NOT NULL ORDER BY jobs.job_id FOR UPDATE OF jobs
), {{removeOld}}

-- fragment: removeOld
-- The last part of a statement. It removes the jobs of the CTE `old` with all their data, and leaves tombstones. The tombstone of a recent
-- job stores how the job ended, because the history may still count the job. Trigger: jobs_undelivered removes their deliveries.
no_outcomes AS (
  DELETE FROM outcome_outbox WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))
), no_events AS (
  DELETE FROM events WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))
), no_reports AS (
  DELETE FROM reports WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))
), no_results AS (
  DELETE FROM results WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))
), tombstone AS (
  INSERT INTO tombstones (job_id, client_id, expired_at, state, attempt, run_at, started_at, finished_at)
  SELECT job_id, client_id, clock_timestamp(), j.* FROM old LEFT JOIN LATERAL (SELECT state, attempt, run_at, started_at, finished_at
    WHERE finished_at > now() - interval '20 min') j ON true
  ON CONFLICT DO NOTHING
)
DELETE FROM jobs WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))

-- fragment: notInOpenBatch
(batch_id IS NULL OR NOT EXISTS (SELECT FROM batches WHERE batches.batch_id = jobs.batch_id AND completed_at IS NULL))
