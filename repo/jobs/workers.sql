-- name: readHeld
-- Reads the claims that the worker still has. Finds the jobs by primary key, like claimedBefore. Locks nothing. No row: the claim is not
-- current.
-- Parameters: @worker, @ids, @attempts, @fences
SELECT {{heldColumns}} FROM unnest(@ids::uuid[], @attempts::int[], @fences::bigint[]) AS i(id, number, token)
  JOIN jobs ON jobs.job_id = i.id
WHERE jobs.attempt = i.number AND jobs.fence = i.token AND jobs.worker_id IS NOT DISTINCT FROM @worker

-- name: markDeadWorkers
-- Marks workers with an ended lease dead. Locks them in order of their ids, and skips a worker that is just renewing its lease.
WITH dead AS MATERIALIZED (
  SELECT worker_id FROM workers WHERE state = 'ALIVE' AND expires_at <= pg_catalog.clock_timestamp()
  ORDER BY worker_id FOR UPDATE SKIP LOCKED
)
UPDATE workers SET state = 'DEAD' WHERE worker_id IN (SELECT worker_id FROM dead)

-- name: orphanedJobs
-- Finds jobs that a dead or stopped worker holds, by the index jobs_held. Locks nothing. Without the subquery, order and limit might make
-- the planner walk all jobs in that order.
-- Parameters: @limit
WITH held AS MATERIALIZED (
  SELECT {{heldColumns}} FROM jobs WHERE worker_id = ANY (ARRAY(SELECT worker_id FROM workers WHERE state <> 'ALIVE'))
)
SELECT * FROM held ORDER BY job_id LIMIT @limit
