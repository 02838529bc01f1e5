-- name: unpublishedOutcomes
-- Returns unpublished outcomes, the oldest first, by the index outcome_outbox_waiting. Removes outcomes of deleted jobs.
-- Parameters: @limit
WITH waiting AS MATERIALIZED (
  SELECT job_id, attempt, finished_at FROM outcome_outbox WHERE published_at IS NULL ORDER BY finished_at, job_id LIMIT @limit
), found AS MATERIALIZED (
  SELECT {{scenarioColumns}}, w.job_id, w.attempt, w.finished_at, j.created_at, coalesce(j.correlation_id, '') AS correlation_id,
    j.language,
    r.outcome, r.started_at, r.failure_reason, r.failure_code, r.failure_retryable, r.failure_retry_after, r.failure_stage,
      r.failure_detail
  FROM waiting w LEFT JOIN LATERAL (SELECT * FROM jobs WHERE job_id = w.job_id LIMIT 1) j ON true
  LEFT JOIN LATERAL (SELECT * FROM reports WHERE job_id = w.job_id AND attempt = w.attempt LIMIT 1) r ON true
), gone AS (
  DELETE FROM outcome_outbox WHERE job_id = ANY (ARRAY(SELECT job_id FROM found WHERE created_at IS NULL OR outcome IS NULL))
)
SELECT job_id, created_at, correlation_id, language, work_kind, duration_ms, expected_outcome, planned_failures, attempt, outcome,
  started_at, finished_at,
  failure_reason, failure_code, failure_retryable, failure_retry_after, failure_stage, failure_detail
FROM found WHERE created_at IS NOT NULL AND outcome IS NOT NULL ORDER BY finished_at, job_id

-- name: markPublished
-- Marks outcomes as published. Finds the rows by primary key, and locks them in the order of job_id. Skips rows that another transaction
-- has locked.
-- Parameters: @ids, @attempts
WITH sent AS MATERIALIZED (
  SELECT o.job_id, o.attempt FROM outcome_outbox o JOIN unnest(@ids::uuid[], @attempts::int[]) AS i(id, number) ON o.job_id = i.id
    AND o.attempt = i.number
  ORDER BY o.job_id FOR NO KEY UPDATE OF o SKIP LOCKED
)
UPDATE outcome_outbox SET published_at = pg_catalog.clock_timestamp() FROM sent s
WHERE outcome_outbox.job_id = s.job_id AND outcome_outbox.attempt = s.attempt AND published_at IS NULL

-- name: republishOutcomes
-- Makes published outcomes unpublished. Walks the index outcome_outbox_published, and locks the rows in key order. Waits for rows that
-- another transaction has locked, because no row may be skipped. The other transaction may delete its rows, so fewer rows may be changed
-- than were found. The statement returns both numbers.
-- Parameters: @limit
WITH oldest AS MATERIALIZED (
  SELECT job_id, attempt FROM outcome_outbox WHERE published_at IS NOT NULL ORDER BY published_at LIMIT @limit
), held AS MATERIALIZED (
  SELECT job_id, attempt FROM outcome_outbox WHERE job_id = ANY (ARRAY(SELECT job_id FROM oldest)) AND num_nonnulls(published_at) = 1
  ORDER BY job_id, attempt FOR NO KEY UPDATE
), changed AS (
  UPDATE outcome_outbox SET published_at = NULL WHERE job_id = ANY (ARRAY(SELECT job_id FROM held))
    AND num_nonnulls(published_at) = 1 RETURNING 1
)
SELECT (SELECT count(*)::int FROM oldest), (SELECT count(*)::int FROM changed)

-- name: removePublished
-- Removes published outcomes. Walks the index outcome_outbox_published, and skips rows that another transaction has locked. Without IS
-- TRUE, the planner could turn IN into a slow join.
-- Parameters: @min_age, @limit
WITH old AS MATERIALIZED (
  SELECT job_id, attempt FROM outcome_outbox WHERE published_at <= pg_catalog.now() - @min_age::interval ORDER BY published_at
    LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM outcome_outbox WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))
  AND ((job_id, attempt) IN (SELECT job_id, attempt FROM old)) IS TRUE
