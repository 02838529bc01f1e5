-- fragment: throttled
-- Condition: the job is throttled. This is the predicate of the index jobs_throttled.
worker_id IS NULL AND finished_at IS NULL AND queued_at IS NOT NULL AND run_at >= {{throttledUntil}}

-- name: releaseJobs
-- Moves ASSIGNED jobs back to QUEUED, if their claims are still current. Locks the job rows, found by primary key, in the order of job_id.
-- No row: the claim is not current. Trigger: events_delivered writes the deliveries.
-- Parameters: @ids, @attempts, @fences, @waits
WITH input AS MATERIALIZED (
  SELECT * FROM unnest(@ids::uuid[], @attempts::int[], @fences::bigint[], @waits::interval[]) AS i(id, attempt, fence, wait)
), ready AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.event_seq, j.event_tx, j.attempt, j.updated_at, j.work_kind, j.definition, i.wait
  FROM jobs j JOIN input i ON j.job_id = i.id
  WHERE j.state = 'ASSIGNED' AND j.attempt = i.attempt AND j.fence = i.fence
  ORDER BY j.job_id FOR NO KEY UPDATE OF j
), stamped AS MATERIALIZED (
  SELECT *, greatest(clock_timestamp(), updated_at) AS at, greatest(pg_current_xact_id(), event_tx) AS tx FROM ready
), changed AS (
  UPDATE jobs SET state = 'QUEUED', worker_id = NULL, assigned_at = NULL, run_at = s.at + s.wait, queued_at = s.at, updated_at = s.at,
    lease_expiries = lease_expiries + 1, dispatch = dispatch + 1,
    event_seq = s.event_seq + 1, event_tx = s.tx
  FROM stamped s WHERE jobs.job_id = s.job_id
  RETURNING {{taskColumns}}
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data)
  SELECT job_id, client_id, event_seq + 1, uuid7(at), 'job.lease_expired', 'ASSIGNED', 'QUEUED', attempt, at, tx,
    event_data(work_kind, definition) FROM stamped
)
SELECT * FROM changed

-- name: emitEvent
-- Adds event.emitted to the log of a RUNNING job, if the claim is still current. Returns false and writes nothing unless the attempt has
-- emitted exactly @before events. So a request that is repeated after a lost answer does not write its event twice. The events are counted
-- in the statement's snapshot. If another transaction changed the row between the snapshot and the lock, the count may be wrong. The
-- statement then writes nothing and returns null.
--
-- Locks the job row, found by primary key, and changes no indexed column. Counts the job's events by primary key. No row: the claim is no
-- longer current. Trigger: events_delivered writes the deliveries.
-- Parameters: @job, @attempt, @fence, @before, @event_id, @emit, @due
WITH ready AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.event_seq, j.event_tx, j.attempt, j.updated_at, j.callback IS NOT NULL AS called_back,
    event_data(j.work_kind, j.definition) AS data, @due::timestamptz AS due
  FROM jobs j
  WHERE j.job_id = @job AND j.state = 'RUNNING' AND j.attempt = @attempt AND j.fence = @fence
  FOR NO KEY UPDATE OF j
), stamped AS MATERIALIZED (
  SELECT *, greatest(testbed_moment(due), updated_at) AS at, greatest(pg_current_xact_id(), event_tx) AS tx FROM ready
), seen AS MATERIALIZED (
  SELECT (SELECT event_seq FROM jobs WHERE job_id = @job) AS seq,
    (SELECT count(*) FROM events WHERE job_id = @job AND attempt = @attempt AND event_name = 'event.emitted') AS emitted
), fresh AS MATERIALIZED (
  SELECT stamped.* FROM stamped, seen WHERE seen.seq = stamped.event_seq AND seen.emitted = @before
), changed AS (
  UPDATE jobs SET updated_at = f.at, event_seq = f.event_seq + 1, event_tx = f.tx FROM fresh f WHERE jobs.job_id = f.job_id
), log AS (
  INSERT INTO events (job_id, client_id, occurred_at, tx, called_back, seq, event_id, event_name, attempt, data)
  SELECT job_id, client_id, at, tx, called_back, event_seq + 1, @event_id, 'event.emitted', attempt, data || @emit::jsonb FROM fresh
)
SELECT CASE WHEN seen.seq = stamped.event_seq THEN EXISTS (SELECT FROM fresh) END FROM stamped, seen

-- fragment: taskColumns
-- The columns of a task, named like the fields of job.Task. `reason` is the failure reason of the previous attempt, or "" for the first
-- attempt.
jobs.job_id, jobs.attempt, jobs.dispatch, jobs.run_at, coalesce(jobs.traceparent, '') AS traceparent, jobs.client_id,
  jobs.work_kind, CASE WHEN jobs.attempt > 1 THEN coalesce((SELECT failure_reason FROM reports
    WHERE reports.job_id = jobs.job_id AND reports.attempt = jobs.attempt - 1), '') ELSE '' END AS reason
