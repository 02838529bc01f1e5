-- fragment: wantedJob
-- Condition: the job matches the filters of an operator. The job may belong to any client.
(@client::uuid IS NULL OR client_id = @client) AND (@batch::uuid IS NULL OR batch_id = @batch)
  AND (@schedule::uuid IS NULL OR schedule_id = @schedule) AND (@state::text IS NULL OR state = @state)
  AND (@type::text IS NULL OR type = @type)
  AND (@work_kind::text IS NULL OR work_kind = @work_kind) AND (@correlation_id::text IS NULL OR correlation_id LIKE @correlation_id)
  AND (@failure_code::text IS NULL OR failure_code = @failure_code)
  AND (@created_after::timestamptz IS NULL OR created_at >= @created_after)
  AND (@created_before::timestamptz IS NULL OR created_at < @created_before)

-- fragment: adminJobColumns
jobs.job_id, jobs.client_id, jobs.type, jobs.work_kind, jobs.state, jobs.outcome, jobs.created_at, jobs.execution_at, jobs.updated_at,
  jobs.started_at, jobs.finished_at, CASE WHEN jobs.state = 'CANCELED' THEN jobs.finished_at END AS canceled_at,
  jobs.attempt, jobs.attempt AS attempts, jobs.max_attempts, jobs.failure_retryable, jobs.batch_id, jobs.correlation_id, jobs.failure_code

-- fragment: adminJobs
-- Lists jobs of all clients. Each variant reads one index in index order; only the variant for jobs_held sorts. The column `wanted` says
-- whether the row matches the filters. Always returns row number maxLooked, because the next statement continues after this row. Locks
-- nothing.
--
-- For a client, batch or schedule, the range compares rows such as (client_id, job_id). So Postgres reads only the index entries of this
-- client, batch or schedule.
-- Parameters: @client, @batch, @schedule, @state, @type, @work_kind, @correlation_id, @failure_code, @created_after, @created_before,
-- @at, @id, @from_id, @limit
WITH looked AS (
  SELECT * FROM {{source}} AS jobs WHERE {{range}} ORDER BY {{sort}}
  LIMIT {{maxLooked}}
), judged AS (
  SELECT *, row_number() OVER (ORDER BY {{sort}}) AS nth, ({{wantedJob}}) IS TRUE AS wanted FROM looked
)
SELECT nth = {{maxLooked}}, wanted, {{placed}}, (SELECT to_json(r) FROM (SELECT {{adminJobColumns}}) r)
FROM judged AS jobs WHERE wanted OR nth = {{maxLooked}} ORDER BY {{sort}} LIMIT @limit

-- fragment: adminJobCount
-- Counts matching jobs of all clients. Reads the same index ranges as adminJobs, at most maxCounted rows. Locks nothing.
-- Parameters: @client, @batch, @schedule, @state, @type, @work_kind, @correlation_id, @failure_code, @created_after, @created_before,
-- @at, @id, @from_id, @most
SELECT to_json(r) FROM (
  SELECT least(count(*) FILTER (WHERE wanted), @most) AS count,
    count(*) = {{maxCounted}} OR count(*) FILTER (WHERE wanted) > @most AS more
  FROM (
    SELECT ({{wantedJob}}) IS TRUE AS wanted FROM {{source}} AS jobs
    WHERE {{range}} ORDER BY {{sort}} LIMIT {{maxCounted}}
  ) looked
) r

-- fragment: failureObject
CASE WHEN failure_code IS NOT NULL THEN json_build_object('reason', failure_reason, 'code', failure_code,
  'retryable', failure_retryable, 'stage', failure_stage, 'detail', failure_detail) END AS failure

-- name: adminJob
-- Reads a job of any client with its reports, first events, latest deliveries and result, in one snapshot. Finds deliveries by the index
-- deliveries_job, everything else by primary key. Locks nothing. No row: there is no such job. Removes the behavior of a CUSTOM job from
-- `definition`, because the caller masks values only in `params`. The behavior is also in `params`.
-- Parameters: @job, @events, @deliveries
SELECT to_json(r) FROM (
  SELECT {{adminJobColumns}}, auto_retry, callback, request_id, substring(traceparent FROM 4 FOR 32) AS trace_id, queued_at, assigned_at,
    run_at, worker_id, fence, lease_expiries,
    CASE jsonb_typeof(definition) WHEN 'object' THEN definition - 'behavior' ELSE definition END AS definition, params, {{failureObject}},
    (SELECT json_build_object('media_type', media_type, 'size_bytes', size, 'sha256', encode(sha256, 'hex'), 'expires_at', expires_at)
      FROM results WHERE results.job_id = jobs.job_id AND jobs.state = 'SUCCEEDED') AS result,
    (SELECT coalesce(json_agg(a ORDER BY a.attempt), '[]') FROM (
      SELECT attempt, outcome, started_at, finished_at, duration_ms, worker_id, {{failureObject}} FROM reports
      WHERE reports.job_id = jobs.job_id) a) AS attempts_log,
    (SELECT coalesce(json_agg(e ORDER BY e.seq), '[]') FROM (
      SELECT event_id, seq, job_id, event_name, prev_state, next_state, attempt, occurred_at AS timestamp, data FROM events
      WHERE events.job_id = jobs.job_id ORDER BY seq LIMIT @events) e) AS events,
    jobs.event_seq > @events AS more_events,
    (SELECT coalesce(json_agg(d ORDER BY d.delivery_id DESC), '[]') FROM (
      SELECT {{adminDeliveryColumns}} FROM deliveries
      WHERE (job_id, delivery_id) >= (@job, '00000000-0000-0000-0000-000000000000'::uuid)
        AND (job_id, delivery_id) <= (@job, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid) AND job_id IS NOT NULL
      ORDER BY job_id DESC, delivery_id DESC LIMIT @deliveries) d) AS deliveries,
    clock_timestamp() AS as_of, (SELECT count(*) FROM workers WHERE workers.state = 'ALIVE' AND expires_at > pg_catalog.now()) AS workers
  FROM jobs WHERE job_id = @job
) r

-- name: adminOwner
-- Finds the owner of a job, by primary key. Locks nothing. No row: there is no such job.
-- Parameters: @job
SELECT client_id FROM jobs WHERE job_id = @job

-- name: anyJobs of adminJobs, anyJobsCount of adminJobCount
-- {{source}} => jobs
-- {{range}} => {{newestJobs}}
-- {{sort}} => job_id DESC
-- {{placed}} => created_at

-- name: clientJobs of adminJobs, clientJobsCount of adminJobCount
-- {{source}} => jobs
-- {{range}} => {{jobsOfOwner}}
-- {{sort}} => client_id DESC, job_id DESC
-- {{placed}} => created_at
-- {{owner}} => client_id
-- {{value}} => @client::uuid

-- name: batchJobs of adminJobs, batchJobsCount of adminJobCount
-- {{source}} => jobs
-- {{range}} => {{jobsOfOwner}}
-- {{sort}} => batch_id DESC, job_id DESC
-- {{placed}} => created_at
-- {{owner}} => batch_id
-- {{value}} => @batch::uuid

-- name: scheduleJobs of adminJobs, scheduleJobsCount of adminJobCount
-- {{source}} => jobs
-- {{range}} => {{jobsOfOwner}}
-- {{sort}} => schedule_id DESC, job_id DESC
-- {{placed}} => created_at
-- {{owner}} => schedule_id
-- {{value}} => @schedule::uuid

-- name: endedJobs of adminJobs, endedJobsCount of adminJobCount
-- {{source}} => jobs
-- {{range}} => (finished_at, job_id) < (@at, @id) AND {{endedSince}}
-- {{sort}} => finished_at DESC, job_id DESC
-- {{placed}} => finished_at

-- name: queuedJobs of adminJobs, queuedJobsCount of adminJobCount
-- {{source}} => jobs
-- {{range}} => (run_at, job_id) > (@at, @id) AND worker_id IS NULL AND finished_at IS NULL AND {{unbounded}}
-- {{sort}} => run_at, job_id
-- {{placed}} => run_at

-- name: scheduledJobs of adminJobs, scheduledJobsCount of adminJobCount
-- {{source}} => jobs
-- {{range}} => (execution_at, job_id) > (@at, @id) AND queued_at IS NULL AND finished_at IS NULL AND {{unbounded}}
-- {{sort}} => execution_at, job_id
-- {{placed}} => execution_at

-- name: heldJobs of adminJobs, heldJobsCount of adminJobCount
-- {{source}} => (SELECT * FROM jobs WHERE worker_id IS NOT NULL ORDER BY worker_id LIMIT {{maxCounted}})
-- {{range}} => {{newestJobs}}
-- {{sort}} => job_id DESC
-- {{placed}} => created_at

-- fragment: newestJobs
job_id < @id AND job_id >= @from_id AND {{unplaced}}

-- fragment: jobsOfOwner
-- Condition: the job belongs to the client, batch or schedule.
({{owner}}, job_id) < ({{value}}, @id) AND ({{owner}}, job_id) >= ({{value}}, @from_id) AND {{owner}} IS NOT NULL AND {{unplaced}}

-- fragment: endedSince
finished_at IS NOT NULL AND finished_at >= coalesce(@created_after, '-infinity'::timestamptz) AND {{unbounded}}

-- fragment: unplaced
-- Always true. Uses @at, because all variants must use the same parameters.
@at::timestamptz IS NOT NULL

-- fragment: unbounded
-- Always true. Uses @from_id, because all variants must use the same parameters.
@from_id::uuid IS NOT NULL
