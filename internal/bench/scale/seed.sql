WITH made AS MATERIALIZED (
  SELECT uuid7(at) AS job_id, ($5::uuid[])[1 + n % cardinality($5::uuid[])] AS client_id, at, at + interval '3 ms' AS started,
    at + interval '5 ms' AS finished, pg_current_xact_id() AS tx
  FROM (SELECT n, $3::timestamptz + n * $4::interval AS at FROM generate_series($1::int, $2::int) AS n) AS moments
), added AS (
  INSERT INTO jobs (job_id, client_id, type, work_kind, definition, state, outcome, max_attempts, auto_retry, event_seq, event_tx, fence,
    created_at, updated_at, execution_at, run_at, queued_at, assigned_at, started_at, finished_at, language, request_id)
  SELECT job_id, client_id, CASE WHEN $7::timestamptz IS NULL THEN 'EXECUTE' ELSE 'DEFERRED' END, $8::text, $9::jsonb,
    CASE $6::int WHEN 1 THEN 'CREATED' WHEN 2 THEN 'QUEUED' ELSE 'SUCCEEDED' END, CASE WHEN $6 > 2 THEN 'SUCCESS' END,
    4, false, $6::int, tx, CASE WHEN $6 > 2 THEN 1 ELSE 0 END,
    at, CASE WHEN $6 > 2 THEN finished ELSE at END, $7, coalesce($7, at), CASE WHEN $6 > 1 THEN at END,
    CASE WHEN $6 > 2 THEN started END, CASE WHEN $6 > 2 THEN started END, CASE WHEN $6 > 2 THEN finished END, 'en', job_id::text
  FROM made
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data, called_back)
  SELECT job_id, client_id, e.seq, uuid7(e.at), e.name, e.prev, e.next, 1, e.at, tx, (SELECT event_data($8, $9)), false
  FROM made CROSS JOIN LATERAL (VALUES (1, 'job.created', NULL, 'CREATED', at), (2, 'job.queued', 'CREATED', 'QUEUED', at),
    (3, 'job.assigned', 'QUEUED', 'ASSIGNED', started), (4, 'job.running', 'ASSIGNED', 'RUNNING', started),
    (5, 'job.succeeded', 'RUNNING', 'SUCCEEDED', finished)) AS e(seq, name, prev, next, at)
  WHERE e.seq <= $6
), report AS (
  INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq, worker_id)
  SELECT job_id, 1, 'SUCCESS', started, finished, 2, 5, $13 FROM made WHERE $6 > 2
)
INSERT INTO results (job_id, attempt, media_type, size, sha256, expires_at, body)
SELECT job_id, 1, $10, length($11::bytea), $12, finished + interval '1 day', CASE WHEN finished + interval '1 day' > now() THEN $11 END
FROM made WHERE $6 > 2
