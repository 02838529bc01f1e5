-- fragment: pausesJob
-- Condition: the pause p stops the job j by its kind or client.
p.mode = 'PAUSE' AND (p.scope = 'KIND' AND p.target = j.work_kind OR p.scope = 'CLIENT' AND p.target = j.client_id::text)

-- name: insertPause
-- Adds a pause, unless there are too many or one with the same scope, target and mode exists. Locks only the new row.
-- Parameters: @id, @scope, @target, @mode, @operator, @reason, @most
INSERT INTO pauses (pause_id, scope, target, mode, operator, reason)
SELECT @id, @scope, @target, @mode, @operator, @reason WHERE (SELECT count(*) FROM pauses) < @most
ON CONFLICT (scope, target, mode) DO NOTHING
RETURNING {{pauseColumns}}

-- name: workerAlive
-- Reports whether a worker is alive, by primary key.
-- Parameters: @id
SELECT EXISTS (SELECT FROM workers WHERE worker_id = @id AND state = 'ALIVE')

-- name: findPause
-- Reads a pause by its scope, target and mode.
-- Parameters: @scope, @target, @mode
SELECT {{pauseColumns}} FROM pauses WHERE scope = @scope AND target = @target AND mode = @mode

-- name: listPauses
-- Reads all pauses, the oldest first. There are at most job.MaxPauses.
SELECT {{pauseColumns}} FROM pauses ORDER BY created_at, pause_id

-- name: deletePause
-- Removes a pause by primary key. No row: the pause does not exist.
-- Parameters: @id
DELETE FROM pauses WHERE pause_id = @id RETURNING {{pauseColumns}}

-- name: parkedJobs
-- Walks the index jobs_paused, beginning after the job @after. Returns for each job whether it may run now. Locks nothing.
-- Parameters: @after, @limit
SELECT j.job_id, NOT EXISTS (SELECT FROM pauses p WHERE {{pausesJob}}) FROM (
  SELECT job_id, work_kind, client_id FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL AND queued_at IS NOT NULL
    AND run_at >= {{pausedUntil}} AND run_at < {{throttledUntil}} AND job_id > @after ORDER BY job_id LIMIT @limit) j
ORDER BY j.job_id

-- name: resumeJobs
-- Sets run_at of parked jobs to queued_at, so that they come before jobs that were queued later. Locks the jobs in job_id order, found
-- by primary key, and skips jobs that another transaction has locked. Raises dispatch, which is part of the name of a job's task. So the
-- new task has a new name, even if Redis still has a task with the old name.
-- Parameters: @ids
WITH free AS MATERIALIZED (
  SELECT job_id FROM jobs WHERE job_id = ANY (@ids::uuid[]) AND state = 'QUEUED' AND run_at >= {{pausedUntil}}
    AND run_at < {{throttledUntil}}
  ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE jobs SET run_at = queued_at, dispatch = dispatch + 1 FROM free f WHERE jobs.job_id = f.job_id
RETURNING {{taskColumns}}

-- fragment: pauseColumns
-- The columns of a pause, named like the fields of job.Pause.
pause_id AS id, scope, target, mode, operator, reason, created_at
