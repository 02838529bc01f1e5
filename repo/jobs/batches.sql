-- name: takeKey
-- Takes a new or expired idempotency key, and locks its row. Waits for a transaction that is inserting the same key. No row changed: the
-- key is taken.
-- Parameters: @client, @endpoint, @key, @request_hash, @resource, @key_window
INSERT INTO idempotency_keys AS k (client_id, endpoint, key, request_hash, resource_id, created_at, expires_at)
SELECT @client, @endpoint, @key, @request_hash, @resource, at, at + @key_window::interval FROM (VALUES (clock_timestamp())) AS v(at)
ON CONFLICT (client_id, endpoint, key) DO UPDATE SET request_hash = excluded.request_hash, resource_id = excluded.resource_id,
  created_at = excluded.created_at, expires_at = excluded.expires_at
  WHERE k.expires_at <= clock_timestamp()

-- name: readBatch
-- Reads a batch, found by primary key, and counts its jobs by the index jobs_batch. Locks nothing. No row: the client
-- has no such batch.
-- Parameters: @batch, @client
SELECT {{batchColumns}}, items, 0,
  (SELECT coalesce(jsonb_object_agg(state, n), '{}') FROM (
    SELECT state, count(*) AS n FROM jobs WHERE jobs.batch_id = batches.batch_id GROUP BY state) AS counted)
FROM batches WHERE batch_id = @batch AND client_id = @client

-- name: openJobs
-- Finds the unfinished jobs of a batch, using the index jobs_batch_open. Locks nothing.
-- Parameters: @batch, @client
SELECT job_id FROM jobs WHERE batch_id = @batch AND finished_at IS NULL
  AND EXISTS (SELECT FROM batches WHERE batch_id = @batch AND client_id = @client)

-- fragment: isReady
-- Condition: the batch b has no unfinished job. Looks up each batch in the index jobs_batch_open. OFFSET 0 prevents a join with all
-- unfinished jobs.
NOT EXISTS (SELECT FROM jobs WHERE jobs.batch_id = b.batch_id AND jobs.finished_at IS NULL OFFSET 0)

-- name: readyAfter
-- Reads open batches in the order of the index batches_open, and returns the ready batches. If there may be more open batches, it also
-- returns the last batch that it read. Locks nothing.
-- Parameters: @after, @looked
WITH looked AS MATERIALIZED (
  SELECT batch_id, {{isReady}} AS ready, row_number() OVER (ORDER BY batch_id) = @looked AS last FROM (
    SELECT batch_id FROM batches WHERE completed_at IS NULL AND batch_id > @after ORDER BY batch_id LIMIT @looked) AS b
)
SELECT batch_id, ready, last FROM looked WHERE ready OR last ORDER BY batch_id

-- name: readyGiven
-- Returns the given batches that are open and ready, found by the index batches_open or the primary key. Locks nothing.
-- Parameters: @ids
SELECT batch_id FROM batches b WHERE completed_at IS NULL AND batch_id = ANY (@ids::uuid[]) AND {{isReady}}

-- name: lockGiven
-- Locks the given batches that are open and ready, in order of id, and counts their jobs by the index jobs_batch. Skips batches that
-- another process is completing. The check and the count are one statement, so that both see the same jobs.
-- Parameters: @ids
WITH ready AS MATERIALIZED (
  SELECT batch_id, client_id, request_id, correlation_id, items FROM batches b
  WHERE completed_at IS NULL AND batch_id = ANY (@ids::uuid[]) AND {{isReady}}
  ORDER BY batch_id FOR NO KEY UPDATE SKIP LOCKED
)
SELECT batch_id, client_id, request_id, coalesce(correlation_id, ''), items, ended.succeeded, ended.canceled, ended.failed
FROM ready CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE state = 'SUCCEEDED') AS succeeded, count(*) FILTER (WHERE state = 'CANCELED') AS canceled,
    coalesce(jsonb_object_agg(job_id, jsonb_build_object('Reason', failure_reason, 'Code', failure_code, 'Retryable', failure_retryable,
      'Stage', failure_stage, 'Detail', failure_detail)) FILTER (WHERE state = 'FAILED'), '{}') AS failed
  FROM jobs WHERE jobs.batch_id = ready.batch_id
) AS ended

-- name: completeBatches
-- Writes outcomes and their events. Finds the batches by primary key. The transaction has already locked them. The condition tests
-- status instead of completed_at, so that the planner does not walk the index of open batches. No row: the batch was completed before.
-- Trigger: client_events_delivered writes the deliveries of batch.completed.
-- Parameters: @ids, @statuses, @succeeded, @failed, @canceled, @failures, @totals
WITH input AS MATERIALIZED (
  SELECT * FROM unnest(@ids::uuid[], @statuses::text[], @succeeded::int[], @failed::int[], @canceled::int[], @failures::jsonb[],
    @totals::int[])
  AS i(id, status, succeeded, failed, canceled, failures, total)
), completed AS (
  UPDATE batches SET status = i.status, completed_at = clock_timestamp(),
    succeeded = i.succeeded, failed = i.failed, canceled = i.canceled, failures = i.failures
  FROM input i WHERE batches.batch_id = i.id AND batches.status IS NULL
  RETURNING batches.batch_id, client_id, completed_at, batches.status, batches.succeeded, batches.failed, batches.canceled, i.total
), event AS (
  INSERT INTO client_events (event_id, client_id, event_name, occurred_at, batch_id, data)
  SELECT uuid7(completed_at), client_id, 'batch.completed', completed_at, batch_id,
    jsonb_build_object('status', status, 'total', total, 'succeeded', succeeded, 'failed', failed, 'canceled', canceled)
  FROM completed
)
SELECT batch_id, completed_at FROM completed

-- name: inOpenBatch
-- Reads whether a job belongs to an open batch. Finds the job by primary key; locks nothing.
-- Parameters: @job
SELECT NOT {{notInOpenBatch}} FROM jobs WHERE job_id = @job

-- fragment: batchColumns
-- The columns of a batch. Statements add the items, the number of omitted items, and the job counts by state.
batch_id, client_id, created_at, coalesce(correlation_id, ''), language, request_id,
  status, completed_at, succeeded, failed, canceled, failures
