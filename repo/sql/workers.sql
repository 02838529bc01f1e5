-- name: readHeld
-- Reads those of the leases that the worker still has. Finds the jobs by primary key, as claimedBefore does. Locks
-- nothing. No row: the lease is not current.
-- Parameters: @worker, @ids, @attempts, @fences
SELECT {{heldColumns}} FROM unnest(@ids::uuid[], @attempts::int[], @fences::bigint[]) AS i(id, number, token)
  JOIN jobs ON jobs.job_id = i.id
WHERE jobs.attempt = i.number AND jobs.fence = i.token AND jobs.worker_id IS NOT DISTINCT FROM @worker

-- name: markDeadWorkers
-- Marks workers dead whose lease has ended. Locks them in order of their ids, and skips a worker that is just renewing
-- its lease.
WITH dead AS MATERIALIZED (
  SELECT worker_id FROM workers WHERE state = 'ALIVE' AND expires_at <= pg_catalog.clock_timestamp()
  ORDER BY worker_id FOR UPDATE SKIP LOCKED
)
UPDATE workers SET state = 'DEAD' WHERE worker_id IN (SELECT worker_id FROM dead)

-- name: orphanedJobs
-- Finds jobs that a dead or stopped worker holds, by the index jobs_held. Locks nothing. Apart from the search, order
-- and limit cannot mislead the planner into walking all jobs in their order.
-- Parameters: @limit
WITH held AS MATERIALIZED (
  SELECT {{heldColumns}} FROM jobs WHERE worker_id = ANY (ARRAY(SELECT worker_id FROM workers WHERE state <> 'ALIVE'))
)
SELECT * FROM held ORDER BY job_id LIMIT @limit

-- fragment: pausesJob
-- The pause p stops jobs j by their kind or client.
p.mode = 'PAUSE' AND (p.scope = 'KIND' AND p.target = j.work_kind OR p.scope = 'CLIENT' AND p.target = j.client_id::text)

-- fragment: pausesWorker
-- The pause p stops all that the worker of i would claim.
p.mode = 'PAUSE' AND p.scope = 'ALL' OR p.scope = 'WORKER' AND p.target = i.worker::text

-- fragment: putAside
-- Jobs whose time is one that never comes: the predicate of the index jobs_paused.
worker_id IS NULL AND finished_at IS NULL AND queued_at IS NOT NULL AND run_at >= {{pausedUntil}} AND run_at < {{throttledUntil}}

-- name: insertPause
-- Adds a pause, unless there are too many. A pause with the same scope, target and mode stays as it is. Locks nothing but the
-- new row.
-- Parameters: @id, @scope, @target, @mode, @operator, @reason, @most
INSERT INTO pauses (pause_id, scope, target, mode, operator, reason)
SELECT @id, @scope, @target, @mode, @operator, @reason WHERE (SELECT count(*) FROM pauses) < @most
ON CONFLICT (scope, target, mode) DO NOTHING
RETURNING {{pauseColumns}}

-- name: workerAlive
-- Tells whether a worker lives, by primary key.
-- Parameters: @id
SELECT EXISTS (SELECT FROM workers WHERE worker_id = @id AND state = 'ALIVE')

-- name: findPause
-- Reads a pause by what it is of.
-- Parameters: @scope, @target, @mode
SELECT {{pauseColumns}} FROM pauses WHERE scope = @scope AND target = @target AND mode = @mode

-- name: listPauses
-- Reads all pauses, the oldest first. There are never many.
SELECT {{pauseColumns}} FROM pauses ORDER BY created_at, pause_id

-- name: deletePause
-- Removes a pause by primary key. No row: there is none.
-- Parameters: @id
DELETE FROM pauses WHERE pause_id = @id RETURNING {{pauseColumns}}

-- name: putJobsAside
-- Puts QUEUED jobs aside that a pause stops: their time is one that never comes, until resumeJobs gives them back the old one.
-- Locks the jobs in job_id order, found by primary key, and skips those that another transaction has locked.
-- Parameters: @ids
WITH stopped AS MATERIALIZED (
  SELECT j.job_id FROM jobs j WHERE j.job_id = ANY (@ids::uuid[]) AND j.state = 'QUEUED' AND j.run_at <= clock_timestamp()
    AND EXISTS (SELECT FROM pauses p WHERE {{pausesJob}})
  ORDER BY j.job_id FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE jobs SET run_at = {{pausedUntil}} FROM stopped s WHERE jobs.job_id = s.job_id

-- name: jobsAside
-- Walks the index jobs_paused from a job on, and says of each whether it may go on. Locks nothing.
-- Parameters: @after, @limit
SELECT j.job_id, NOT EXISTS (SELECT FROM pauses p WHERE {{pausesJob}}) FROM (
  SELECT job_id, work_kind, client_id FROM jobs WHERE {{putAside}} AND job_id > @after ORDER BY job_id LIMIT @limit) j
ORDER BY j.job_id

-- name: resumeJobs
-- Gives jobs that were put aside their time back: that of queuing, so that they come before what was queued since. Locks the
-- jobs in job_id order, found by primary key, and skips those that another transaction has locked. dispatch is raised: the name
-- of the task that was dropped may be taken still.
-- Parameters: @ids
WITH free AS MATERIALIZED (
  SELECT job_id FROM jobs WHERE job_id = ANY (@ids::uuid[]) AND state = 'QUEUED' AND run_at >= {{pausedUntil}} AND run_at < {{throttledUntil}}
  ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE jobs SET run_at = queued_at, dispatch = dispatch + 1, dispatch_epoch = NULL FROM free f WHERE jobs.job_id = f.job_id
RETURNING {{taskColumns}}

-- name: cleanPauses
-- Removes what operators said of workers whose rows are gone. There are never many.
-- Parameters: @keep, @limit
DELETE FROM pauses WHERE scope = 'WORKER' AND created_at <= pg_catalog.now() - @keep::interval AND pause_id IN (
  SELECT pause_id FROM pauses p WHERE NOT EXISTS (SELECT FROM workers w WHERE w.worker_id::text = p.target) LIMIT @limit)
