-- name: insertJobs
-- Writes a batch of submissions: the idempotency keys, the jobs and their first events.
--
-- Locks the rows of idempotency keys, in key order. Waits if another transaction is inserting the same key. Takes over an expired key. An
-- item has no row if its key is taken and not expired. The caller then reads the stored answer with findKey, because this statement's
-- snapshot cannot see a concurrent insert.
--
-- The Go type `order` assigned @created_times. NULL, or a time ahead of Postgres' clock, is replaced by Postgres' time. @request_hashes and
-- @keys belong to the idempotency keys; @event_ids has two ids for each item. run_at is never earlier than created_at, so a past
-- execution_at cannot jump the queue. Trigger: events_delivered writes the deliveries. @schedules and @scheduled_times are null except for
-- runs of schedules. A second run of a schedule for the same due time makes the statement fail.
--
-- Reads the API keys of the requests, by primary key. A submission has no row if its API key was revoked or has expired, or if its
-- headroom lease has ended. The table erasures is not read for a submission with an API key, because an erasure revokes the client's
-- keys. insertOwn reads erasures for jobs without an API key: runs of schedules and jobs of operators. Leases are locked in order of id.
-- Parameters: @ids, @clients, @types, @work_kinds, @definitions, @params, @max_attempts, @auto_retries,
--   @execution_times, @callbacks, @correlation_ids, @traceparents, @languages, @request_ids, @keys,
--   @request_hashes, @batches, @created_times, @key_window, @event_ids,
--   @api_keys, @leases, @schedules, @scheduled_times
WITH {{leased}}, input AS MATERIALIZED (
  SELECT *, least(created_time, clock_timestamp()) AS at FROM unnest(
    @ids::uuid[], @clients::uuid[], @types::text[], @work_kinds::text[], @definitions::jsonb[], @params::json[],
    @max_attempts::int[], @auto_retries::boolean[], @execution_times::timestamptz[], @callbacks::text[],
    @correlation_ids::text[], @traceparents::text[], @languages::text[], @request_ids::text[],
    @keys::text[], @request_hashes::bytea[], @batches::uuid[], @created_times::timestamptz[], @api_keys::text[],
    @leases::uuid[]) WITH ORDINALITY
  AS i(job_id, client_id, type, work_kind, definition, params, max_attempts, auto_retry,
    execution_at, callback, correlation_id, traceparent, language, request_id, key, request_hash, batch_id, created_time, api_key,
      lease, n)
  WHERE {{keyHolds}} AND (i.lease IS NULL OR i.lease IN (SELECT lease_id FROM leased))
), keys AS (
  INSERT INTO idempotency_keys AS k (client_id, endpoint, key, request_hash, resource_id, state, created_at, expires_at)
  SELECT client_id, 'jobs', key, request_hash, job_id,
    CASE WHEN execution_at IS NULL THEN 'QUEUED' ELSE 'CREATED' END, at, at + @key_window::interval
  FROM input WHERE key IS NOT NULL ORDER BY client_id, key
  ON CONFLICT (client_id, endpoint, key) DO UPDATE SET request_hash = excluded.request_hash, resource_id = excluded.resource_id,
    state = excluded.state, created_at = excluded.created_at, expires_at = excluded.expires_at
    WHERE k.expires_at <= clock_timestamp()
  RETURNING k.resource_id
), new AS (
  INSERT INTO jobs (job_id, client_id, batch_id, type, work_kind, definition, params, state, max_attempts, auto_retry,
    event_seq, event_tx, created_at, updated_at, execution_at, run_at, queued_at,
    callback, correlation_id, traceparent, language, request_id, schedule_id, scheduled_for)
  SELECT job_id, client_id, batch_id, type, work_kind, definition, params,
    CASE WHEN execution_at IS NULL THEN 'QUEUED' ELSE 'CREATED' END, max_attempts, auto_retry,
    CASE WHEN execution_at IS NULL THEN 2 ELSE 1 END, pg_current_xact_id(),
    at, at, execution_at, greatest(execution_at, at), CASE WHEN execution_at IS NULL THEN at END,
    callback, correlation_id, traceparent, language, request_id,
    (@schedules::uuid[])[n], (@scheduled_times::timestamptz[])[n]
  FROM input WHERE key IS NULL OR job_id IN (SELECT resource_id FROM keys)
  RETURNING job_id, state, created_at
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data, called_back)
  SELECT i.job_id, i.client_id, e.seq, (@event_ids::uuid[])[2 * i.n - 2 + e.seq], e.name, e.prev, e.next, 1, i.at, pg_current_xact_id(),
    i.data, i.callback IS NOT NULL
  FROM (SELECT job_id, client_id, n, at, callback, execution_at, event_data(work_kind, definition) AS data
    FROM input WHERE key IS NULL OR job_id IN (SELECT resource_id FROM keys) OFFSET 0) AS i
  JOIN (VALUES (1, 'job.created', NULL, 'CREATED'), (2, 'job.queued', 'CREATED', 'QUEUED')) AS e(seq, name, prev, next)
    ON e.seq = 1 OR i.execution_at IS NULL
)
SELECT job_id, state, created_at, pg_catalog.clock_timestamp() FROM new

-- fragment: keyHolds
-- Reports whether the API key of the input row i is neither revoked nor expired; null without a key. It avoids EXISTS, for which the
-- planner may read the whole table.
(SELECT revoked_at IS NULL AND expires_at > clock_timestamp() FROM api_keys WHERE api_keys.key_id = i.api_key)

-- name: insertOwn of insertJobs
-- Also accepts submissions without an API key.
-- {{keyHolds}} => CASE WHEN i.api_key IS NULL THEN {{notErased}} ELSE {{keyHolds}} END

-- fragment: notErased
(SELECT count(*) FROM erasures WHERE erasures.client_id = i.client_id) = 0
