-- name: lockBulk
-- Lets one transaction at a time begin a bulk operation, by an advisory lock: only so can the open ones be counted.
SELECT pg_advisory_xact_lock(hashtextextended('bulk operations', 0))

-- name: insertBulk
-- Stores a bulk operation. Counts the open ones by the index bulk_operations_open: they are few. Those of clients have
-- a limit together. No row: as many are open as may be.
-- Parameters: @bulk, @client, @operator, @action, @filter, @rate, @override, @request_id, @most_own, @most_clients
INSERT INTO bulk_operations (bulk_id, client_id, operator, action, filter, rate, override, request_id, created_at)
SELECT @bulk, @client::uuid, @operator, @action, @filter, @rate, @override, @request_id, clock_timestamp()
FROM (SELECT count(client_id) AS clients, count(*) FILTER (WHERE client_id IS NOT DISTINCT FROM @client) AS own
  FROM bulk_operations WHERE finished_at IS NULL) AS open
WHERE open.own < @most_own AND (@client IS NULL OR open.clients < @most_clients)
RETURNING {{bulkColumns}}

-- name: countOpenBulks
-- Counts the open operations of a client, or with null those of operators, by the index bulk_operations_open.
-- Parameters: @client
SELECT count(*) FROM bulk_operations WHERE finished_at IS NULL AND client_id IS NOT DISTINCT FROM @client::uuid

-- name: readBulk
-- Reads a bulk operation, found by primary key; with null for the client anybody's. Locks nothing. No row: there is
-- none, or it is not the client's.
-- Parameters: @bulk, @client
SELECT {{bulkColumns}} FROM bulk_operations WHERE bulk_id = @bulk AND (@client::uuid IS NULL OR client_id IS NOT DISTINCT FROM @client)

-- name: listBulksOfClient
-- Lists a client's bulk operations, the newest first, along the index bulk_operations_client. Locks nothing.
-- Parameters: @client, @before, @limit
SELECT {{bulkColumns}} FROM bulk_operations WHERE client_id = @client AND bulk_id < @before ORDER BY client_id DESC, bulk_id DESC LIMIT @limit

-- name: listBulks
-- Lists all bulk operations, the newest first, along the primary key. Locks nothing.
-- Parameters: @before, @limit
SELECT {{bulkColumns}} FROM bulk_operations WHERE bulk_id < @before ORDER BY bulk_id DESC LIMIT @limit

-- name: listBulkItems
-- Lists the items of an operation along the primary key. Locks nothing.
-- Parameters: @bulk, @after, @limit
SELECT {{bulkItemColumns}} FROM bulk_items WHERE bulk_id = @bulk AND job_id > @after ORDER BY bulk_id, job_id LIMIT @limit

-- name: listBulkItemsWith
-- Lists the items of an operation that have one result along the index bulk_items_result. The comparison of rows
-- makes the planner do so whether an operation has ten items or 100,000. Locks nothing.
-- Parameters: @bulk, @after, @limit, @result
SELECT {{bulkItemColumns}} FROM bulk_items
WHERE (result, bulk_id, job_id) > (@result, @bulk::uuid, @after::uuid)
  AND (result, bulk_id, job_id) <= (@result, @bulk, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
ORDER BY result, bulk_id, job_id LIMIT @limit

-- fragment: bulkLooked
-- Looks at jobs from the newest to the oldest, as listJobs does and for its reasons: along jobs_client, jobs_batch for
-- the jobs of one batch, or the primary key for those of all clients. It looks at so many rows of the index, whether
-- they match or not. owner, value and order name the first column of the index; for the primary key they are empty.
looked AS MATERIALIZED (
  SELECT job_id, client_id, attempt, event_seq, (@client::uuid IS NULL OR client_id = @client) AND created_at <= @until
    AND (@batch::uuid IS NULL OR batch_id = @batch) AND (@state::text IS NULL OR state = @state)
    AND (@type::text IS NULL OR type = @type) AND (@work_kind::text IS NULL OR work_kind = @work_kind)
    AND (@correlation_id::text IS NULL OR correlation_id = @correlation_id)
    AND (@failure_code::text IS NULL OR failure_code = @failure_code)
    AND (@created_after::timestamptz IS NULL OR created_at >= @created_after)
    AND (@created_before::timestamptz IS NULL OR created_at < @created_before) AS matches
  FROM jobs WHERE ({{owner}} job_id) < ({{value}} @to_id) AND ({{owner}} job_id) >= ({{value}} @from_id) AND {{guard}}
  ORDER BY {{order}} job_id DESC LIMIT @look
)

-- name: countBulk
-- Looks at a part of the jobs that an operation would be about, and counts those that match. Locks nothing.
-- Parameters: @client, @batch, @to_id, @from_id, @state, @type, @work_kind, @correlation_id, @failure_code, @created_after,
--   @created_before, @until, @look, @sample
WITH {{bulkLooked}}
SELECT (SELECT count(*) FROM looked), (SELECT count(*) FROM looked WHERE matches),
  (SELECT job_id FROM looked ORDER BY job_id LIMIT 1),
  ARRAY(SELECT job_id FROM looked WHERE matches ORDER BY job_id DESC LIMIT @sample)

-- fragment: bulkEnded
-- Writes the event of operations that have just ended, for the clients who began them: what an operator began is told to
-- nobody, as its jobs are those of many. Trigger: client_events_delivered writes the deliveries.
event AS (
  INSERT INTO client_events (event_id, client_id, event_name, occurred_at, data)
  SELECT uuid7(finished_at), client_id, 'bulk.completed', finished_at, jsonb_build_object('bulkId', bulk_id, 'action', action,
    'state', CASE WHEN aborted THEN 'ABORTED' ELSE 'DONE' END, 'total', total, 'succeeded', succeeded, 'skipped', skipped, 'failed', failed)
  FROM ended AS bulk_operations WHERE client_id IS NOT NULL
)
SELECT {{bulkColumns}} FROM ended AS bulk_operations

-- name: abortBulk
-- Ends an operation as it is: items without a result stay so. Locks its row, found by primary key, and waits for the
-- part of the work that is under way. No row: it is finished, or not the client's; with null for the client it may be anybody's.
-- Parameters: @bulk, @client
WITH ended AS (
  UPDATE bulk_operations SET finished_at = clock_timestamp(), aborted = true
  WHERE bulk_id = @bulk AND (@client::uuid IS NULL OR client_id IS NOT DISTINCT FROM @client) AND finished_at IS NULL
  RETURNING bulk_operations.*
), {{bulkEnded}}

-- name: cleanBulkItems
-- Removes items of operations that ended long ago, found by the index bulk_operations_ended. They are locked, so they are
-- where they were found.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT i.place FROM (SELECT bulk_id FROM bulk_operations WHERE finished_at <= now() - @keep::interval ORDER BY finished_at
    LIMIT @limit) b
  CROSS JOIN LATERAL (SELECT ctid AS place FROM bulk_items WHERE bulk_id = b.bulk_id ORDER BY bulk_id, job_id
    LIMIT @limit FOR UPDATE SKIP LOCKED) i
  LIMIT @limit
)
DELETE FROM bulk_items WHERE ctid = ANY (ARRAY(SELECT place FROM old))

-- name: cleanBulks
-- Removes operations that ended long ago and have no items any more.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT bulk_id FROM bulk_operations b WHERE finished_at <= now() - @keep::interval
    AND NOT EXISTS (SELECT FROM bulk_items WHERE bulk_items.bulk_id = b.bulk_id OFFSET 0)
  ORDER BY finished_at LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM bulk_operations WHERE bulk_id = ANY (ARRAY(SELECT bulk_id FROM old))
