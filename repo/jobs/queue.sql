-- name: anyDue
-- Reports whether a due job is still CREATED, by the index jobs_scheduled, even if another transaction has locked it.
SELECT EXISTS (SELECT FROM jobs WHERE queued_at IS NULL AND finished_at IS NULL AND state = 'CREATED' AND execution_at <= now())

-- name: queueDue
-- Moves due CREATED jobs to QUEUED. Finds them by the index jobs_scheduled, locks them in its order, and skips jobs that another
-- transaction has locked. Trigger: events_delivered writes the deliveries. The statement reads only the part of the definition that the
-- event needs, because sorting whole rows costs more.
--
-- Conditions on times use now(), which has one value for the whole statement. clock_timestamp() changes during the statement, so an index
-- scan cannot stop at it, and would also read all future jobs.
-- Parameters: @limit, @event_ids
WITH ready AS MATERIALIZED (
  SELECT job_id, client_id, request_id, event_seq, event_tx, attempt, updated_at, work_kind, execution_at,
    correlation_id, callback, traceparent, event_data(work_kind, definition) AS data FROM jobs
  WHERE queued_at IS NULL AND finished_at IS NULL AND state = 'CREATED' AND execution_at <= now()
  ORDER BY execution_at, job_id LIMIT @limit FOR NO KEY UPDATE SKIP LOCKED
), stamped AS MATERIALIZED (
  SELECT *, greatest(testbed_moment(execution_at), updated_at) AS at, greatest(pg_current_xact_id(), event_tx) AS tx FROM ready
), changed AS (
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
-- Walks the index jobs_waiting from a cursor to the current time. It skips jobs that were stored less than @age ago. Jobs with a created_at
-- that is @age or more in the future were stored before the clock was set back. They are not skipped. Locks nothing.
-- Parameters: @after_time, @after_job, @age, @limit
SELECT {{taskColumns}} FROM jobs
WHERE worker_id IS NULL AND finished_at IS NULL AND (run_at, job_id) > (@after_time, @after_job) AND run_at <= now()
  AND (created_at <= now() - @age::interval OR created_at >= now() + @age::interval)
ORDER BY run_at, job_id LIMIT @limit
