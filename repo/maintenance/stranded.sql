-- name: moveStrandedJobs
-- A row that was written while Postgres' clock was ahead contains future times once the clock is corrected. Such a time is the row's
-- write time plus a known delay. moveStrandedJobs and moveStrandedDeliveries replace it by the current time plus this delay. They ignore
-- times less than a second ahead, because a concurrent transaction may have written them with the correct clock. A future time is never
-- before the write time of its row, except after a move. A row is moved only if its new time is before its write time. So no row is
-- moved twice.
--
-- Walks the entries of the index jobs_waiting with a future run_at. Moves only jobs with a future queued_at. Locks the moved rows in the
-- order of job_id. Skips rows that another transaction has locked. Redis may still have a task for the old time, but the relay enqueues the
-- job at the new time. Keeps the order of the jobs, and never moves a job before its execution_at.
-- Parameters: @after_time, @after_job, @limit
WITH looked AS MATERIALIZED (
  SELECT run_at, job_id, queued_at FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL
    AND (run_at, job_id) > (@after_time, @after_job) AND run_at > now() + interval '1 s'
  ORDER BY run_at, job_id LIMIT @limit
), stranded AS MATERIALIZED (
  SELECT job_id, run_at - queued_at AS wait, row_number() OVER (ORDER BY run_at, job_id) AS nth FROM looked
  WHERE queued_at > now() + interval '1 s' AND run_at >= queued_at AND run_at - queued_at < queued_at - now()
), ready AS MATERIALIZED (
  SELECT j.job_id, greatest(j.execution_at, now() + s.wait + s.nth * interval '1 us') AS due
  FROM jobs j JOIN stranded s ON j.job_id = s.job_id
  WHERE j.state = 'QUEUED' AND j.queued_at > now() AND j.run_at = j.queued_at + s.wait AND j.run_at IS DISTINCT FROM j.execution_at
  ORDER BY j.job_id FOR NO KEY UPDATE OF j SKIP LOCKED
), moved AS (
  UPDATE jobs SET run_at = r.due FROM ready r WHERE jobs.job_id = r.job_id RETURNING 1
)
SELECT run_at, job_id, (SELECT count(*)::int FROM looked), (SELECT count(*)::int FROM moved) FROM looked
ORDER BY run_at DESC, job_id DESC LIMIT 1

-- name: moveStrandedDeliveries
-- Walks endpoints by the index deliveries_waiting. Moves deliveries with a future next_attempt_at and a future write time. The write time
-- is created_at before the first attempt, and tried_at after it. Locks the moved rows, found by primary key, and skips rows that another
-- transaction has locked.
-- Parameters: @after_client, @after_endpoint, @looked, @limit
{{walkEndpoints}}, stranded AS MATERIALIZED (
  SELECT d.delivery_id, d.wait FROM walk CROSS JOIN LATERAL (
    SELECT delivery_id, next_attempt_at - written_at AS wait FROM (
      SELECT delivery_id, client_id, endpoint_id, next_attempt_at, CASE attempts WHEN 0 THEN created_at ELSE tried_at END AS written_at
      FROM deliveries WHERE client_id = walk.client_id AND endpoint_id = walk.endpoint_id AND state = 'PENDING' AND claimed_until IS NULL
        AND deliveries.next_attempt_at > now() + interval '1 s') w
    WHERE written_at > now() + interval '1 s' AND next_attempt_at >= written_at AND next_attempt_at - written_at < written_at - now()
    ORDER BY client_id, endpoint_id, next_attempt_at LIMIT @limit) d
  WHERE n > 0 LIMIT @limit
), held AS MATERIALIZED (
  SELECT d.delivery_id, s.wait FROM deliveries d JOIN stranded s ON d.delivery_id = s.delivery_id WHERE {{stillWaiting}}
    AND d.next_attempt_at = CASE d.attempts WHEN 0 THEN d.created_at ELSE d.tried_at END + s.wait
  ORDER BY d.delivery_id FOR NO KEY UPDATE OF d SKIP LOCKED
), moved AS (
  UPDATE deliveries SET next_attempt_at = now() + h.wait FROM held h WHERE deliveries.delivery_id = h.delivery_id RETURNING 1
)
SELECT client_id, endpoint_id, n, (SELECT count(*)::int FROM moved) FROM walk ORDER BY n DESC LIMIT 1

-- name: endStrandedLeases
-- If the last heartbeat of a worker is in the future, shortens the worker's lease to the usual length, counted from now. A living worker
-- soon renews its lease, so the shorter lease does no harm. Shortens delivery claims (index deliveries_claimed) to six minutes from now,
-- because an attempt takes at most five minutes. Skips rows that another transaction has locked.
-- Parameters: @limit
WITH far AS MATERIALIZED (
  SELECT delivery_id FROM deliveries WHERE claimed_until > pg_catalog.now() + interval '6 min' ORDER BY claimed_until
    LIMIT @limit FOR NO KEY UPDATE SKIP LOCKED
), claims AS (
  UPDATE deliveries SET claimed_until = pg_catalog.now() + interval '6 min' WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM far))
), early AS MATERIALIZED (
  SELECT worker_id FROM workers WHERE state = 'ALIVE' AND heartbeat_at > pg_catalog.clock_timestamp() + interval '1 s'
  ORDER BY worker_id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE workers SET heartbeat_at = pg_catalog.clock_timestamp(), expires_at = pg_catalog.clock_timestamp() + (expires_at - heartbeat_at)
WHERE worker_id = ANY (ARRAY(SELECT worker_id FROM early))
