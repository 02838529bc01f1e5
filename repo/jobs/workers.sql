-- name: readHeld
-- Reads the jobs of the given claims, found by primary key. IS NOT DISTINCT FROM stops the planner from using the index jobs_held instead.
-- Locks nothing. No row: the claim is no longer current.
-- Parameters: @worker, @ids, @attempts, @fences
SELECT {{heldColumns}} FROM unnest(@ids::uuid[], @attempts::int[], @fences::bigint[]) AS i(id, number, token)
  JOIN jobs ON jobs.job_id = i.id
WHERE jobs.attempt = i.number AND jobs.fence = i.token AND jobs.worker_id IS NOT DISTINCT FROM @worker

-- name: markDeadWorkers
-- Marks workers as dead if their lease has ended. Locks the workers in the order of their ids, and skips rows that a renewal has locked.
WITH dead AS MATERIALIZED (
  SELECT worker_id FROM workers WHERE state = 'ALIVE' AND expires_at <= pg_catalog.clock_timestamp()
  ORDER BY worker_id FOR UPDATE SKIP LOCKED
)
UPDATE workers SET state = 'DEAD' WHERE worker_id IN (SELECT worker_id FROM dead)

-- name: orphanedJobs
-- Finds jobs of dead or stopped workers, by the index jobs_held. Locks nothing. Without the subquery, the planner might walk all jobs by
-- job_id to satisfy ORDER BY and LIMIT.
-- Parameters: @limit
WITH held AS MATERIALIZED (
  SELECT {{heldColumns}} FROM jobs WHERE worker_id = ANY (ARRAY(SELECT worker_id FROM workers WHERE state <> 'ALIVE'))
)
SELECT * FROM held ORDER BY job_id LIMIT @limit

-- fragment: heldColumns
-- The columns of a held job. Their names match the fields of job.Held.
job_id, client_id, request_id, coalesce(correlation_id, '') AS correlation_id,
  coalesce(traceparent, '') AS traceparent, attempt, fence, state, work_kind, max_attempts, auto_retry,
  definition -> 'retry' AS retry, lease_expiries

-- name: registerWorker
-- Stores a living worker. Its lease ends after @lease.
-- Parameters: @worker, @name, @concurrency, @lease
INSERT INTO workers (worker_id, name, concurrency, state, expires_at)
VALUES (@worker, @name, @concurrency, 'ALIVE', pg_catalog.clock_timestamp() + @lease::interval)

-- name: renewWorker
-- Extends the lease of a living worker, found by primary key. No row: the lease has already ended.
-- Parameters: @worker, @lease
UPDATE workers SET heartbeat_at = pg_catalog.clock_timestamp(), expires_at = pg_catalog.clock_timestamp() + @lease::interval
WHERE worker_id = @worker AND state = 'ALIVE' AND expires_at > pg_catalog.clock_timestamp()

-- name: claimsOfWorker
-- Reads the claims of a worker by the index jobs_held. Locks nothing.
-- Parameters: @worker
SELECT job_id, attempt, fence FROM jobs WHERE worker_id = @worker

-- name: retireWorker
-- Ends the lease of a worker, found by primary key.
-- Parameters: @worker
UPDATE workers SET state = 'STOPPED', expires_at = pg_catalog.clock_timestamp() WHERE worker_id = @worker
