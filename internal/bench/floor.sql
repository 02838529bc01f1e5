-- These statements create a group of jobs and bring the jobs to their end. They write the same rows as the service, but check nothing.
-- $1: ids of the jobs; $2: id of both the client and the worker; $3: definition; $4: params.

-- name: insert
WITH new AS (
  INSERT INTO jobs (job_id, client_id, type, work_kind, definition, params, state, max_attempts, auto_retry, event_seq, event_tx,
    created_at, updated_at, run_at, queued_at, language, request_id)
  SELECT id, $2, 'EXECUTE', 'PAYLOAD_SMALL', $3, $4, 'QUEUED', 4, true, 2, pg_current_xact_id(), now(), now(), now(), now(), 'en', id::text
  FROM unnest($1::uuid[]) AS id
)
INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, called_back, data)
SELECT id, $2, e.seq, gen_random_uuid(), e.name, e.prev, e.next, 1, now(), false, event_data('PAYLOAD_SMALL', $3)
FROM unnest($1::uuid[]) AS id, (VALUES (1, 'job.created', NULL, 'CREATED'), (2, 'job.queued', 'CREATED', 'QUEUED')) AS e(seq, name, prev, next)

-- name: claim
WITH changed AS (
  UPDATE jobs SET state = 'ASSIGNED', worker_id = $2, fence = 1, assigned_at = now(), updated_at = now(), event_seq = 3,
    event_tx = pg_current_xact_id() WHERE job_id = ANY ($1::uuid[])
)
INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, called_back, data)
SELECT id, $2, 3, gen_random_uuid(), 'job.assigned', 'QUEUED', 'ASSIGNED', 1, now(), false, event_data('PAYLOAD_SMALL', $3)
FROM unnest($1::uuid[]) AS id

-- name: start
WITH changed AS (
  UPDATE jobs SET state = 'RUNNING', started_at = now(), updated_at = now(), event_seq = 4, event_tx = pg_current_xact_id()
  WHERE job_id = ANY ($1::uuid[])
)
INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, called_back, data)
SELECT id, $2, 4, gen_random_uuid(), 'job.running', 'ASSIGNED', 'RUNNING', 1, now(), false, event_data('PAYLOAD_SMALL', $3)
FROM unnest($1::uuid[]) AS id

-- name: finish
WITH changed AS (
  UPDATE jobs SET state = 'SUCCEEDED', outcome = 'SUCCESS', worker_id = NULL, finished_at = now(), updated_at = now(), event_seq = 5,
    event_tx = pg_current_xact_id() WHERE job_id = ANY ($1::uuid[])
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, called_back, data)
  SELECT id, $2, 5, gen_random_uuid(), 'job.succeeded', 'RUNNING', 'SUCCEEDED', 1, now(), false, event_data('PAYLOAD_SMALL', $3)
  FROM unnest($1::uuid[]) AS id
), report AS (
  INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq, worker_id)
  SELECT id, 1, 'SUCCESS', now(), now(), 0, 5, $2 FROM unnest($1::uuid[]) AS id
)
INSERT INTO results (job_id, attempt, media_type, size, sha256, expires_at, body)
SELECT id, 1, 'application/json', 1024, sha256(convert_to(id::text, 'UTF8')), now() + interval '1 day', convert_to(repeat('x', 1024), 'UTF8')
FROM unnest($1::uuid[]) AS id
