-- name: lockBulk
-- Takes an advisory lock, so that only one transaction at a time counts the open bulk operations and adds one.
SELECT pg_advisory_xact_lock(hashtextextended('bulk operations', 'jobs'::regclass::oid::bigint))

-- name: insertBulk
-- Stores a bulk operation. Counts the open operations by the index bulk_operations_open; there are only a few. Each owner has a limit, and
-- all clients together have a limit. No row: a limit is reached.
-- Parameters: @bulk, @client, @operator, @action, @filter, @rate, @override, @request_id, @most_own, @most_clients
INSERT INTO bulk_operations (bulk_id, client_id, operator, action, filter, rate, override, request_id, created_at)
SELECT @bulk, @client::uuid, @operator, @action, @filter, @rate, @override, @request_id, clock_timestamp()
FROM (SELECT count(client_id) AS clients, count(*) FILTER (WHERE client_id IS NOT DISTINCT FROM @client) AS own
  FROM bulk_operations WHERE finished_at IS NULL) AS open
WHERE open.own < @most_own AND (@client IS NULL OR open.clients < @most_clients)
RETURNING {{bulkColumns}}

-- name: countOpenBulks
-- Counts the open operations of a client, or of all operators if @client is null, by the index bulk_operations_open.
-- Parameters: @client
SELECT count(*) FROM bulk_operations WHERE finished_at IS NULL AND client_id IS NOT DISTINCT FROM @client::uuid

-- name: readBulk
-- Reads a bulk operation of a client, or of any owner if @client is null, found by primary key. Locks nothing. No row: the operation does
-- not exist, or is not the client's.
-- Parameters: @bulk, @client
SELECT {{bulkColumns}} FROM bulk_operations WHERE bulk_id = @bulk AND (@client::uuid IS NULL OR client_id IS NOT DISTINCT FROM @client)

-- name: listBulksOfClient
-- Lists a client's bulk operations, the newest first, using the index bulk_operations_client. Locks nothing.
-- Parameters: @client, @before, @limit
SELECT {{bulkColumns}} FROM bulk_operations WHERE client_id = @client AND bulk_id < @before ORDER BY client_id DESC, bulk_id DESC
  LIMIT @limit

-- name: listBulks
-- Lists all bulk operations, the newest first, using the primary key. Locks nothing.
-- Parameters: @before, @limit
SELECT {{bulkColumns}} FROM bulk_operations WHERE bulk_id < @before ORDER BY bulk_id DESC LIMIT @limit

-- name: listBulkItems
-- Lists the items of an operation using the primary key. Locks nothing.
-- Parameters: @bulk, @after, @limit
SELECT {{bulkItemColumns}} FROM bulk_items WHERE bulk_id = @bulk AND job_id > @after ORDER BY bulk_id, job_id LIMIT @limit

-- name: listBulkItemsWith
-- Lists the items of an operation that have the result @result, using the index bulk_items_result. Because of the row comparison, the
-- planner uses this index for any number of items. Locks nothing.
-- Parameters: @bulk, @after, @limit, @result
SELECT {{bulkItemColumns}} FROM bulk_items
WHERE (result, bulk_id, job_id) > (@result, @bulk::uuid, @after::uuid)
  AND (result, bulk_id, job_id) <= (@result, @bulk, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
ORDER BY result, bulk_id, job_id LIMIT @limit

-- fragment: bulkLooked
-- Reads jobs from the newest to the oldest (see listJobs). It walks jobs_client, or jobs_batch for the jobs of one batch, or the primary
-- key for the jobs of all clients. It reads @look entries of the index, matching or not. The placeholders owner, value and order refer to
-- the first column of the index. They are empty for the primary key.
looked AS MATERIALIZED (
  SELECT job_id, client_id, batch_id, state, attempt, max_attempts, failure_retryable, event_seq,
    (@client::uuid IS NULL OR client_id = @client) AND created_at <= @until
    AND (@batch::uuid IS NULL OR batch_id = @batch) AND (@state::text IS NULL OR state = @state)
    AND (@type::text IS NULL OR type = @type) AND (@work_kind::text IS NULL OR work_kind = @work_kind)
    AND (@correlation_id::text IS NULL OR correlation_id = @correlation_id)
    AND (@failure_code::text IS NULL OR failure_code = @failure_code)
    AND (@failure_detail::text IS NULL OR failure_detail = @failure_detail)
    AND (@created_after::timestamptz IS NULL OR created_at >= @created_after)
    AND (@created_before::timestamptz IS NULL OR created_at < @created_before) AS matches
  FROM jobs WHERE ({{owner}} job_id) < ({{value}} @to_id) AND ({{owner}} job_id) >= ({{value}} @from_id) AND {{guard}}
  ORDER BY {{order}} job_id DESC LIMIT @look
)

-- fragment: countBulk
-- Reads a part of the jobs that an operation would read. Counts the matching jobs by state, attempts, whether the failure is retryable, and
-- whether the batch is open. Locks nothing.
-- Parameters: @client, @batch, @to_id, @from_id, @state, @type, @work_kind, @correlation_id, @failure_code, @failure_detail,
--   @created_after, @created_before, @until, @look, @sample
WITH {{bulkLooked}}
SELECT (SELECT count(*) FROM looked), (SELECT job_id FROM looked ORDER BY job_id LIMIT 1),
  ARRAY(SELECT job_id FROM looked WHERE matches ORDER BY job_id DESC LIMIT @sample),
  (SELECT coalesce(json_agg(alike), '[]') FROM (
    SELECT state, attempt, max_attempts, coalesce(failure_retryable, false) AS retryable, NOT {{notInOpenBatch}} AS in_open_batch,
      count(*) AS count
    FROM looked AS jobs WHERE matches GROUP BY 1, 2, 3, 4, 5) alike)

-- fragment: bulkEnded
-- Writes the event of operations that have just ended, for the clients that began them. Operations of operators have no event, because
-- their jobs belong to many clients. Trigger: client_events_delivered writes the deliveries.
event AS (
  INSERT INTO client_events (event_id, client_id, event_name, occurred_at, data)
  SELECT uuid7(finished_at), client_id, 'bulk.completed', finished_at, jsonb_build_object('bulkId', bulk_id, 'action', action,
    'state', CASE WHEN aborted THEN 'ABORTED' ELSE 'DONE' END, 'total', total, 'succeeded', succeeded, 'skipped', skipped, 'failed',
      failed)
  FROM ended AS bulk_operations WHERE client_id IS NOT NULL
)
SELECT {{bulkColumns}} FROM ended AS bulk_operations

-- name: abortBulk
-- Ends an operation. Items that were not processed stay without a result. Locks the operation's row, found by primary key. Waits for a
-- transaction of DoItems that holds the lock. If @client is null, the operation may belong to anyone. No row: the operation is finished, or
-- not the client's.
-- Parameters: @bulk, @client
WITH ended AS (
  UPDATE bulk_operations SET finished_at = clock_timestamp(), aborted = true
  WHERE bulk_id = @bulk AND (@client::uuid IS NULL OR client_id IS NOT DISTINCT FROM @client) AND finished_at IS NULL
  RETURNING bulk_operations.*
), {{bulkEnded}}

-- name: openBulks
-- Reads the open operations, by the index bulk_operations_open. Locks nothing.
-- Parameters: @limit
SELECT {{bulkColumns}} FROM bulk_operations WHERE finished_at IS NULL ORDER BY bulk_id LIMIT @limit

-- fragment: gatherBulk
-- Adds the next matching jobs to bulk_items, and stores the position to continue from. The operation's row is locked, so only one process
-- does the step. A process that comes later changes nothing, because the position has changed. Gathering ends when no jobs are left to
-- read, or at @most items.
--
-- Locks the row of the operation, found by primary key, but no jobs. No row: the operation is finished or gathered, another process works
-- on it, or it is no longer at this position.
-- Parameters: @client, @batch, @to_id, @from_id, @state, @type, @work_kind, @correlation_id, @failure_code, @failure_detail,
--   @created_after, @created_before, @until, @look, @bulk, @position, @most
WITH operation AS MATERIALIZED (
  SELECT bulk_id, total FROM bulk_operations WHERE bulk_id = @bulk AND finished_at IS NULL AND gathered_at IS NULL
    AND position IS NOT DISTINCT FROM @position::uuid
  FOR NO KEY UPDATE SKIP LOCKED
), {{bulkLooked}}, found AS MATERIALIZED (
  SELECT looked.*, row_number() OVER (ORDER BY job_id DESC) + operation.total AS nth FROM looked CROSS JOIN operation WHERE matches
), taken AS (
  INSERT INTO bulk_items (bulk_id, job_id, client_id, attempt, event_seq)
  SELECT @bulk, job_id, client_id, attempt, event_seq FROM found WHERE nth <= @most
)
UPDATE bulk_operations SET started_at = coalesce(started_at, clock_timestamp()), total = bulk_operations.total + step.taken,
  more = step.more,
  position = coalesce(step.last, bulk_operations.position),
  gathered_at = CASE WHEN step.more OR step.looked < @look THEN clock_timestamp() END
FROM operation, (SELECT (SELECT count(*) FROM looked) AS looked, (SELECT job_id FROM looked ORDER BY job_id LIMIT 1) AS last,
  (SELECT count(*) FROM found WHERE nth <= @most) AS taken, EXISTS (SELECT FROM found WHERE nth > @most) AS more) AS step
WHERE bulk_operations.bulk_id = operation.bulk_id
RETURNING {{bulkColumns}}

-- name: lockOpenBulk
-- Locks an operation with pending items, found by primary key. Every change of the operation's jobs, items and counters holds this lock. So
-- an abort never happens during a transaction of DoItems. No row: the operation is finished, not gathered yet, or another process works on
-- it.
-- Parameters: @bulk
SELECT bulk_id FROM bulk_operations WHERE bulk_id = @bulk AND finished_at IS NULL AND gathered_at IS NOT NULL
FOR NO KEY UPDATE SKIP LOCKED

-- name: nextBulkItems
-- Reads the next items without a result, in order of their jobs, using the index bulk_items_result. The items need no lock, because the
-- transaction has locked the operation.
-- Parameters: @bulk, @after, @limit
SELECT {{bulkItemColumns}} FROM bulk_items
WHERE (result, bulk_id, job_id) > ('PENDING', @bulk::uuid, @after::uuid)
  AND (result, bulk_id, job_id) <= ('PENDING', @bulk, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
ORDER BY result, bulk_id, job_id LIMIT @limit

-- name: bulkJobs
-- Reads the current state of jobs, found by primary key. The column params is null. Locks nothing, because the
-- statement that changes a job checks its state again.
-- Parameters: @ids
SELECT {{bulkJobColumns}} FROM jobs WHERE job_id = ANY (@ids::uuid[])

-- name: deleteItems
-- Removes final jobs with all their data, and leaves tombstones. The jobs must not have changed since the operation selected them. Locks
-- the jobs in job_id order, found by primary key. No row: the job is not final, has changed, belongs to an open batch, or is gone. An
-- unchanged event_seq shows that the job has not changed.
-- Parameters: @ids, @seqs
WITH seen AS MATERIALIZED (
  SELECT jobs.job_id, jobs.event_seq FROM jobs JOIN unnest(@ids::uuid[], @seqs::int[]) AS i(id, seq) ON jobs.job_id = i.id
  WHERE jobs.event_seq = i.seq AND finished_at IS NOT NULL AND {{notInOpenBatch}}
), old AS MATERIALIZED (
  SELECT jobs.job_id, jobs.client_id, jobs.state, jobs.attempt, jobs.run_at, jobs.started_at, jobs.finished_at FROM seen
    JOIN jobs ON jobs.job_id = seen.job_id AND jobs.event_seq = seen.event_seq
  WHERE jobs.finished_at IS NOT NULL ORDER BY jobs.job_id FOR UPDATE OF jobs
), {{removeOld}} RETURNING job_id

-- name: recordItems
-- Writes the results of items and counts them, in the transaction that has changed the jobs. So a job and its item change together or not
-- at all. An item with a result does not change and is not counted again.
--
-- The rows of the items and of the operation are found by primary key; the operation's row is already locked. Because of the range of jobs
-- from @first to @last, the planner uses the primary key for any number of items.
-- Parameters: @bulk, @ids, @results, @codes, @details, @first, @last
WITH input AS MATERIALIZED (
  SELECT * FROM unnest(@ids::uuid[], @results::text[], @codes::text[], @details::text[]) AS i(id, result, code, detail)
), ended AS (
  UPDATE bulk_items SET result = i.result, code = i.code, detail = i.detail, ended_at = clock_timestamp()
  FROM input i WHERE (bulk_id, job_id) >= (@bulk::uuid, @first::uuid) AND (bulk_id, job_id) <= (@bulk, @last::uuid)
    AND job_id = i.id AND num_nonnulls(ended_at) = 0
  RETURNING i.result
)
UPDATE bulk_operations SET succeeded = bulk_operations.succeeded + n.succeeded, skipped = bulk_operations.skipped + n.skipped,
  failed = bulk_operations.failed + n.failed
FROM (SELECT count(*) FILTER (WHERE result = 'SUCCEEDED') AS succeeded, count(*) FILTER (WHERE result = 'SKIPPED') AS skipped,
  count(*) FILTER (WHERE result = 'FAILED') AS failed FROM ended) AS n
WHERE bulk_id = @bulk

-- name: finishBulk
-- Ends an operation if all items have a result. Locks the operation's row, found by primary key. No row: the operation is already
-- finished, or an item has no result.
-- Parameters: @bulk
WITH ended AS (
  UPDATE bulk_operations SET finished_at = clock_timestamp()
  WHERE bulk_id = @bulk AND finished_at IS NULL AND gathered_at IS NOT NULL AND succeeded + skipped + failed = total
  RETURNING bulk_operations.*
), {{bulkEnded}}

-- name: countBulkOfClient of countBulk, gatherBulkOfClient of gatherBulk
-- {{owner}} => client_id,
-- {{value}} => @client::uuid,
-- {{order}} => client_id DESC,
-- {{guard}} => true

-- name: countBulkOfBatch of countBulk, gatherBulkOfBatch of gatherBulk
-- Does not read the jobs of another client's batch. So the duration of the statement does not reveal that the batch exists.
-- {{owner}} => batch_id,
-- {{value}} => @batch::uuid,
-- {{order}} => batch_id DESC,
-- {{guard}} => batch_id IS NOT NULL AND {{batchOfClient}}

-- fragment: batchOfClient
EXISTS (SELECT FROM batches WHERE batch_id = @batch AND (@client::uuid IS NULL OR client_id = @client))

-- name: countBulkOfAll of countBulk, gatherBulkOfAll of gatherBulk
-- {{owner}} =>
-- {{value}} =>
-- {{order}} =>
-- {{guard}} => true

-- fragment: bulkColumns
-- In the order of scanBulk.
bulk_operations.bulk_id, bulk_operations.client_id, bulk_operations.operator, bulk_operations.action,
  bulk_operations.filter, bulk_operations.rate, bulk_operations.override, bulk_operations.request_id, bulk_operations.created_at,
  bulk_operations.started_at, bulk_operations.gathered_at, bulk_operations.finished_at, bulk_operations.aborted, bulk_operations.position,
  bulk_operations.more, bulk_operations.total, bulk_operations.succeeded, bulk_operations.skipped, bulk_operations.failed

-- fragment: bulkItemColumns
-- The columns of an item, named like the fields of job.BulkItem.
job_id, client_id, attempt, event_seq, result, coalesce(code, '') AS code, coalesce(detail, '') AS detail, ended_at AS at

-- fragment: bulkJobColumns of jobColumns
-- Without the client's data, which can be 256 KiB per job.
-- jobs.params => NULL::json
