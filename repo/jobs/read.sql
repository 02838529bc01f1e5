-- name: readJob
-- Reads a job with the description of its result, both found by primary key. Locks nothing. No row: the client has no such job.
-- Parameters: @job, @client
SELECT results.media_type, results.size, results.sha256, results.expires_at, results.body IS NULL, {{jobColumns}}
FROM jobs LEFT JOIN results ON results.job_id = jobs.job_id WHERE jobs.job_id = @job AND jobs.client_id = @client

-- name: readAttempts
-- Reads the attempts of a job in one snapshot: the finished ones from its reports, found by primary key, and the current one if the job is
-- not final. Locks nothing. No row: the client has no such job.
-- Parameters: @job, @client
SELECT j.created_at, coalesce(j.correlation_id, ''), j.language, {{scenarioColumns}}, a.*
FROM jobs j CROSS JOIN LATERAL (
  SELECT attempt, outcome, started_at, finished_at,
    failure_reason, failure_code, failure_retryable, failure_retry_after, failure_stage, failure_detail, '' AS state
  FROM reports r WHERE r.job_id = j.job_id
  UNION ALL
  SELECT j.attempt, '', j.started_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, j.state WHERE j.finished_at IS NULL
) AS a
WHERE j.job_id = @job AND j.client_id = @client ORDER BY a.attempt

-- name: readReport
-- Reads the report of an attempt (0: the latest), and the job's events up to the attempt's end, in one snapshot. Finds the rows by primary
-- key; locks nothing. No row: there is no such job, or no such report.
-- Parameters: @job, @client, @attempt
SELECT {{attemptColumns}}, r.duration_ms,
  (SELECT json_agg(json_build_object('ID', e.event_id, 'JobID', e.job_id, 'Seq', e.seq, 'Name', e.event_name, 'Prev', e.prev_state,
    'Next', e.next_state, 'Attempt', e.attempt, 'At', to_char(e.occurred_at, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'Data', e.data)
      ORDER BY e.seq)
    FROM events e WHERE e.job_id = r.job_id AND e.seq <= r.event_seq)
FROM reports r JOIN jobs j ON j.job_id = r.job_id
WHERE r.job_id = @job AND j.client_id = @client AND (@attempt = 0 OR r.attempt = @attempt) ORDER BY r.attempt DESC LIMIT 1

-- name: readResult
-- Reads a job's result, found by primary key. The column `kept` is false as soon as the result has expired, even before the cleaner
-- removes the body. Locks nothing. No row: the client has no such job. In a row without media_type, the job has no result.
-- Parameters: @job, @client
SELECT j.state, r.media_type, r.sha256, r.expires_at, kept, CASE WHEN kept THEN r.body END
FROM jobs j LEFT JOIN results r ON r.job_id = j.job_id
CROSS JOIN LATERAL (SELECT coalesce(r.expires_at > clock_timestamp() AND r.body IS NOT NULL, false)) AS k(kept)
WHERE j.job_id = @job AND j.client_id = @client

-- fragment: listJobs
-- Lists jobs, the newest first, backwards along an index on (owner, job_id). This is jobs_client, or jobs_batch if the owner is a batch,
-- or jobs_schedule if the owner is a schedule. The column `wanted` says whether a row matches the filters. The maxLooked-th row is
-- returned even if it does not match, so that the next page can begin there. Locks nothing.
--
-- The planner must not collect and sort all jobs of the owner, or walk the primary key past other clients' jobs, even if its statistics
-- suggest that. So the range is written as a row comparison, by which other indexes cannot be searched. Sessions also disable bitmap scans.
--
-- The correlation id is a filter without an index. Such searches are rare. An index would cost an entry of up to 256 bytes for each
-- submission. maxLooked limits the cost of the filter.
-- Parameters: @client, @batch, @schedule, @to_id, @from_id, @state, @type, @work_kind, @correlation_id, @created_after,
--   @created_before, @limit
WITH looked AS (
  SELECT * FROM jobs WHERE ({{owner}}, job_id) < ({{value}}, @to_id) AND ({{owner}}, job_id) >= ({{value}}, @from_id) AND {{guard}}
  ORDER BY {{owner}} DESC, job_id DESC LIMIT {{maxLooked}}
), judged AS (
  SELECT *, row_number() OVER (ORDER BY {{owner}} DESC, job_id DESC) AS nth,
    (client_id = @client AND (@batch::uuid IS NULL OR batch_id = @batch)
      AND (@schedule::uuid IS NULL OR schedule_id = @schedule) AND (@state::text IS NULL OR state = @state)
      AND (@type::text IS NULL OR type = @type)
      AND (@work_kind::text IS NULL OR work_kind = @work_kind) AND (@correlation_id::text IS NULL OR correlation_id = @correlation_id)
      AND (@created_after::timestamptz IS NULL OR created_at >= @created_after)
      AND (@created_before::timestamptz IS NULL OR created_at < @created_before)) IS TRUE AS wanted FROM looked
)
SELECT nth = {{maxLooked}}, wanted, {{listColumns}} FROM judged AS jobs WHERE wanted OR nth = {{maxLooked}}
ORDER BY {{owner}} DESC, job_id DESC LIMIT @limit

-- name: listByClient of listJobs
-- {{owner}} => client_id
-- {{value}} => @client::uuid
-- {{guard}} => true

-- name: listByBatch of listJobs
-- Does not read the jobs of another client's batch. So the duration of the statement does not reveal that the batch exists.
-- {{owner}} => batch_id
-- {{value}} => @batch::uuid
-- {{guard}} => batch_id IS NOT NULL AND EXISTS (SELECT FROM batches WHERE batch_id = @batch AND client_id = @client)

-- name: listBySchedule of listJobs
-- The schedule may have been deleted, so the client is read from the schedule's jobs.
-- {{owner}} => schedule_id
-- {{value}} => @schedule::uuid
-- {{guard}} => schedule_id IS NOT NULL AND {{firstRunOfClient}}

-- fragment: firstRunOfClient
(SELECT client_id FROM jobs WHERE schedule_id = @schedule ORDER BY schedule_id, job_id LIMIT 1) = @client

-- fragment: jobColumns
-- In the order of scanJob.
jobs.job_id, jobs.client_id, jobs.batch_id, jobs.type, jobs.work_kind, jobs.definition, jobs.params,
  jobs.state, coalesce(jobs.outcome, ''), jobs.attempt, jobs.max_attempts, jobs.auto_retry, jobs.event_seq,
  jobs.created_at, jobs.updated_at, jobs.execution_at, jobs.run_at, jobs.started_at, jobs.finished_at,
  jobs.failure_reason, jobs.failure_code, jobs.failure_retryable, jobs.failure_retry_after, jobs.failure_stage, jobs.failure_detail,
  coalesce(jobs.callback, ''), coalesce(jobs.correlation_id, ''), coalesce(jobs.traceparent, ''), jobs.language, jobs.request_id,
  jobs.schedule_id, jobs.scheduled_for

-- fragment: listColumns of jobColumns
-- Without the client's data, which can be 256 KiB per job.
-- jobs.definition => NULL::jsonb
-- jobs.params => NULL::json

-- fragment: scenarioColumns
-- The scenario of a job j in outcome documents. These columns are text, because a damaged definition must not make the statement fail.
j.work_kind, j.definition ->> 'duration_ms' AS duration_ms,
  j.definition ->> 'expected_outcome' AS expected_outcome, j.definition #> '{behavior,failures}' AS planned_failures

-- fragment: attemptColumns
-- The columns of an ended attempt, read by AttemptScanner: its job j, and its report r.
j.created_at, coalesce(j.correlation_id, ''), j.language, {{scenarioColumns}},
  r.attempt, r.outcome, r.started_at, r.finished_at,
  r.failure_reason, r.failure_code, r.failure_retryable, r.failure_retry_after, r.failure_stage, r.failure_detail
