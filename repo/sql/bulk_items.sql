-- name: openBulks
-- Reads the operations that are not finished, by the index bulk_operations_open. Locks nothing.
-- Parameters: @limit
SELECT {{bulkColumns}} FROM bulk_operations WHERE finished_at IS NULL ORDER BY bulk_id LIMIT @limit

-- name: gatherBulk
-- Takes the jobs that match among the next ones into bulk_items, and notes where to go on. The operation's row is locked:
-- of two leaders one does the step, and the other one finds the position moved on. It is done with the last part of the
-- jobs, or when there would be too many items: then those that were found first stay.
--
-- Locks the row of the operation, found by primary key, and none of jobs. No row: the operation is finished, gathered,
-- being worked on by another process, or not at this position any more.
-- Parameters: @client, @batch, @to_id, @from_id, @state, @type, @work_kind, @correlation_id, @failure_code, @created_after,
--   @created_before, @until, @look, @bulk, @position, @most
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
UPDATE bulk_operations SET started_at = coalesce(started_at, clock_timestamp()), total = bulk_operations.total + step.taken, more = step.more,
  position = coalesce(step.last, bulk_operations.position),
  gathered_at = CASE WHEN step.more OR step.looked < @look THEN clock_timestamp() END
FROM operation, (SELECT (SELECT count(*) FROM looked) AS looked, (SELECT job_id FROM looked ORDER BY job_id LIMIT 1) AS last,
  (SELECT count(*) FROM found WHERE nth <= @most) AS taken, EXISTS (SELECT FROM found WHERE nth > @most) AS more) AS step
WHERE bulk_operations.bulk_id = operation.bulk_id
RETURNING {{bulkColumns}}

-- name: lockOpenBulk
-- Locks an operation whose items are to be done, found by primary key: whoever changes its jobs, its items and its
-- counters holds this lock, so an abort comes before a part of the work or after it. No row: it is finished, not
-- gathered yet, or being worked on by another process.
-- Parameters: @bulk
SELECT bulk_id FROM bulk_operations WHERE bulk_id = @bulk AND finished_at IS NULL AND gathered_at IS NOT NULL
FOR NO KEY UPDATE SKIP LOCKED

-- name: nextBulkItems
-- Reads the next items that have no result, in order of their jobs, along the index bulk_items_result, as
-- listBulkItemsWith does. They are not locked: the operation is.
-- Parameters: @bulk, @after, @limit
SELECT {{bulkItemColumns}} FROM bulk_items
WHERE (result, bulk_id, job_id) > ('PENDING', @bulk::uuid, @after::uuid)
  AND (result, bulk_id, job_id) <= ('PENDING', @bulk, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
ORDER BY result, bulk_id, job_id LIMIT @limit

-- name: bulkJobs
-- Reads jobs by primary key as they are now, without what their client sent. Locks nothing: what changes them checks again.
-- Parameters: @ids
SELECT {{bulkJobColumns}} FROM jobs WHERE job_id = ANY (@ids::uuid[])

-- name: deleteItems
-- Removes final jobs that have not changed since they were gathered, with all that belongs to them, and leaves
-- tombstones. Locks their rows in job_id order, found by primary key. No row: the job is not final, changed, of an open
-- batch, or gone. As in deleteJob, event_seq must still be what it was.
-- Parameters: @ids, @seqs
WITH seen AS MATERIALIZED (
  SELECT jobs.job_id, jobs.event_seq FROM jobs JOIN unnest(@ids::uuid[], @seqs::int[]) AS i(id, seq) ON jobs.job_id = i.id
  WHERE jobs.event_seq = i.seq AND finished_at IS NOT NULL AND {{notInOpenBatch}}
), old AS MATERIALIZED (
  SELECT j.job_id, j.client_id FROM seen JOIN jobs j ON j.job_id = seen.job_id AND j.event_seq = seen.event_seq
  WHERE j.finished_at IS NOT NULL ORDER BY j.job_id FOR UPDATE OF j
), {{removeOld}} RETURNING job_id

-- name: recordItems
-- Writes the results of items, and counts them. It is sent in the transaction that has changed the jobs: an item whose
-- job was changed has its result, and is never taken again, and one without a result has had no effect. A leader that
-- dies in between leaves both undone; the next one finds the item as it was, and so does a former leader that comes back.
-- An item whose result is there already stays as it is, and is not counted again.
--
-- The rows, of the items and of the operation, are found by primary key; the latter is locked already. Items are taken in
-- order of their jobs, so those between the first and the last one are searched: the planner does not know whether an
-- operation has ten of them or 100,000.
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
-- Ends an operation whose items all have a result. Locks its row, found by primary key. No row: it is finished, or has
-- items without one.
-- Parameters: @bulk
WITH ended AS (
  UPDATE bulk_operations SET finished_at = clock_timestamp()
  WHERE bulk_id = @bulk AND finished_at IS NULL AND gathered_at IS NOT NULL AND succeeded + skipped + failed = total
  RETURNING bulk_operations.*
), {{bulkEnded}}
