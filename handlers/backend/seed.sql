-- Sample rows, most of them of client A. ids.go lists their ids.
DELETE FROM api_keys; DELETE FROM events; DELETE FROM client_events; DELETE FROM reports; DELETE FROM results; DELETE FROM jobs;
DELETE FROM batches; DELETE FROM bulk_items; DELETE FROM bulk_operations; DELETE FROM deliveries; DELETE FROM delivery_attempts;
DELETE FROM webhooks; DELETE FROM schedules; DELETE FROM idempotency_keys; DELETE FROM tombstones; DELETE FROM pauses; DELETE FROM workers;
DELETE FROM testbed_sessions; DELETE FROM testbed_faults; DELETE FROM testbed_exchanges; DELETE FROM testbed_requests;
DELETE FROM testbed_clock; DELETE FROM erasures; DELETE FROM clients; DELETE FROM audit; DELETE FROM outcome_outbox;

INSERT INTO clients (client_id, created_at, name) VALUES
  ('00000000-0000-4000-8000-00000000000a', '2030-01-31 12:00:00.123456Z', 'Alice'),
  ('00000000-0000-4000-8000-00000000000b', '2030-01-31 12:00:00.123456Z', NULL),
  ('00000000-0000-4000-8000-00000000000c', '2030-01-31 12:00:00.123456Z', NULL);

INSERT INTO api_keys (key_id, client_id, secret_hash, scope, issued_by, created_at, expires_at, used_at, revoked_at)
SELECT key_id, ('00000000-0000-4000-8000-00000000000' || client)::uuid, sha256(secret::bytea), scope, 'CREATED', now() - age::interval,
  now() + life::interval, used, revoked
FROM (VALUES
  ('goodKey00000', 'a', 'frk_goodKey00000_secretOfgood00000000000000000000000000000004YBIQj', 'all', '1 day', '90 days', now(), NULL),
  ('abcKey000000', 'a', '', 'all', '2 days', '90 days', NULL, NULL),
  ('readKey00000', 'a', 'frk_readKey00000_secretOfread000000000000000000000000000000026D8Tx', 'read', '1 day', '90 days', now(), NULL),
  ('submitKey000', 'a', 'frk_submitKey000_secretOfsubmit000000000000000000000000000000Ud7mS', 'submit', '1 day', '90 days', now(), NULL),
  ('renewableKey', 'a', 'frk_renewableKey_secretOfrenewable000000000000000000000000002OpNB5', 'all', '1 hour', '-1 day', NULL, NULL),
  ('expiredKey00', 'a', 'frk_expiredKey00_secretOfexpired000000000000000000000000000015TQ7Y', 'all', '1 hour', '-30 days', NULL, NULL),
  ('otherKey0000', 'b', 'frk_otherKey0000_secretOfother0000000000000000000000000000004ImICQ', 'all', '1 day', '90 days', now(), NULL),
  ('revokedKey00', 'b', 'frk_revokedKey00_secretOfrevoked000000000000000000000000000020vrKl', 'all', '2 days', '90 days', now(), now())
) AS k (key_id, client, secret, scope, age, life, used, revoked);

INSERT INTO jobs (job_id, client_id, batch_id, type, work_kind, definition, params, state, outcome, attempt, max_attempts, auto_retry,
  event_seq, fence, created_at, updated_at, execution_at, run_at, queued_at, started_at, finished_at, failure_reason, failure_code,
  failure_retryable, failure_retry_after, failure_stage, failure_detail, callback, correlation_id, language, request_id, event_tx)
VALUES
  ('01890000-0000-7000-8000-000000000001', '00000000-0000-4000-8000-00000000000a', NULL, 'EXECUTE', 'SUCCESS_FAST',
    '{"work_kind":"SUCCESS_FAST","duration_ms":1000,"payload_size":10,"expected_outcome":"SUCCEEDED","seed":42}', '{"a": "<&>"}',
    'SUCCEEDED', 'SUCCESS', 1, 4, false, 5, 1, '2030-01-31 12:00:00.123456Z', '2030-01-31 12:00:02.123456Z', NULL,
    '2030-01-31 12:00:00.123456Z', '2030-01-31 12:00:00.123456Z', '2030-01-31 12:00:01.123456Z', '2030-01-31 12:00:02.123456Z',
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'en', 'request-1', pg_current_xact_id()),
  ('01890000-0000-7000-8000-000000000002', '00000000-0000-4000-8000-00000000000a', '01890000-0000-7000-8000-0000000000ba', 'EXECUTE',
    'SUCCESS_FAST', '{"work_kind":"SUCCESS_FAST","duration_ms":1000,"payload_size":10,"expected_outcome":"SUCCEEDED","seed":42}', NULL,
    'QUEUED', NULL, 1, 4, false, 2, 0, '2025-01-31 12:00:00.123456Z', '2025-01-31 12:00:00.123456Z', NULL, '2025-01-31 12:00:00.123456Z',
    '2025-01-31 12:00:00.123456Z', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'de', 'request-1', pg_current_xact_id()),
  ('01890000-0000-7000-8000-000000000003', '00000000-0000-4000-8000-00000000000a', NULL, 'DEFERRED', 'RETRY_ON_FAIL',
    '{"work_kind":"RETRY_ON_FAIL","duration_ms":1000,"expected_outcome":"FAILED","should_fail":true,"seed":42}', NULL,
    'FAILED', 'FAILED', 2, 4, true, 9, 2, '2030-01-31 12:00:00.123456Z', '2030-01-31 12:00:04.123456Z', '2030-01-31 12:00:01.123456Z',
    '2030-01-31 12:00:01.123456Z', '2030-01-31 12:00:01.123456Z', '2030-01-31 12:00:02.123456Z', '2030-01-31 12:00:04.123456Z',
    'failed-once', 'RFA_DEPENDENCY_TIMEOUT', true, 2, 'processing', 'It failed.', 'https://example.com/cb', 'corr-1', 'de', 'request-1',
    pg_current_xact_id()),
  ('01890000-0000-7000-8000-00000000000f', '00000000-0000-4000-8000-00000000000b', NULL, 'EXECUTE', 'SUCCESS_FAST',
    '{"work_kind":"SUCCESS_FAST","duration_ms":1000,"payload_size":10,"expected_outcome":"SUCCEEDED","seed":42}', NULL,
    'QUEUED', NULL, 1, 4, false, 2, 0, '2025-01-31 12:00:00.123456Z', '2025-01-31 12:00:00.123456Z', NULL, '2025-01-31 12:00:00.123456Z',
    '2025-01-31 12:00:00.123456Z', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'en', 'request-1', pg_current_xact_id());

-- Streams send an event only after all older transactions have ended. With this old transaction id (tx), the events are older than
-- any open transaction of another test.
INSERT INTO events (tx, job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, data)
SELECT '3'::xid8, '01890000-0000-7000-8000-000000000001', '00000000-0000-4000-8000-00000000000a', seq,
  ('01890000-0000-7000-8000-00000000e00' || seq)::uuid, 'job.' || lower(next), prev, next, 1,
  timestamptz '2030-01-31 12:00:00.123456Z' + at::interval, '{"work_kind":"SUCCESS_FAST"}'
FROM (VALUES (1, NULL, 'CREATED', '0s'), (2, 'CREATED', 'QUEUED', '0s'), (3, 'QUEUED', 'ASSIGNED', '1s'),
  (4, 'ASSIGNED', 'RUNNING', '1s'), (5, 'RUNNING', 'SUCCEEDED', '2s')) AS e (seq, prev, next, at);

INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq, failure_reason, failure_code,
  failure_retryable, failure_retry_after, failure_stage, failure_detail)
VALUES
  ('01890000-0000-7000-8000-000000000001', 1, 'SUCCESS', '2030-01-31 12:00:01.123456Z', '2030-01-31 12:00:02.123456Z', 1234, 5,
    NULL, NULL, NULL, NULL, NULL, NULL),
  ('01890000-0000-7000-8000-000000000003', 1, 'CANCELED', NULL, '2030-01-31 12:00:01.123456Z', 0, 3, NULL, NULL, NULL, NULL, NULL, NULL),
  ('01890000-0000-7000-8000-000000000003', 2, 'FAILED', '2030-01-31 12:00:02.123456Z', '2030-01-31 12:00:04.123456Z', 2000, 9,
    'failed-once', 'RFA_DEPENDENCY_TIMEOUT', true, 2, 'processing', 'It failed.');

INSERT INTO results (job_id, attempt, media_type, size, sha256, expires_at, body) VALUES
  ('01890000-0000-7000-8000-000000000001', 1, 'text/plain; charset=utf-8', 10, sha256('0123456789'), '2030-01-31 12:01:30.823456Z',
    '0123456789');

INSERT INTO batches (batch_id, client_id, created_at, language, request_id, refused, items) VALUES
  ('01890000-0000-7000-8000-0000000000ba', '00000000-0000-4000-8000-00000000000a', '2030-01-31 12:00:00.123456Z', 'de', 'request-1', 1,
    '[{"item_id":"0","job_id":"01890000-0000-7000-8000-000000000002","state":"QUEUED"},
      {"item_id":"b","refusal":{"code":"RFA_JOB_VALIDATION_FAILED","detail":"The item has invalid values.",
        "violations":[{"pointer":"/jobs/1/type","detail":"No."}]}}]');

INSERT INTO bulk_operations (bulk_id, client_id, operator, action, filter, rate, override, request_id, created_at, started_at, total,
  succeeded, skipped, failed)
VALUES
  ('01890000-0000-7000-8000-0000000000e2', '00000000-0000-4000-8000-00000000000a', '', 'retry',
    '{"state":"FAILED","created_after":"2030-01-31T12:00:01.123456Z"}', 200, false, 'request-1', '2030-01-31 12:00:00.123456Z',
    '2030-01-31 12:00:01.123456Z', 10, 2, 1, 1),
  ('01890000-0000-7000-8000-0000000000e3', '00000000-0000-4000-8000-00000000000a', '', 'cancel', '{"all":true}', 7, false, 'request-1',
    '2030-01-31 12:00:00.123456Z', NULL, 0, 0, 0, 0);
INSERT INTO bulk_items (bulk_id, job_id, client_id, attempt, event_seq, result, code, detail, ended_at) VALUES
  ('01890000-0000-7000-8000-0000000000e2', '01890000-0000-7000-8000-000000000003', '00000000-0000-4000-8000-00000000000a', 2, 9, 'FAILED',
    'RFA_JOB_CONFLICT', 'The job has used all of its 4 attempts.', '2030-01-31 12:00:00.123456Z'),
  ('01890000-0000-7000-8000-0000000000e2', '01890000-0000-7000-8000-000000000001', '00000000-0000-4000-8000-00000000000a', 1, 5, 'FAILED',
    'RFA_JOB_CONFLICT', 'The job has used all of its 4 attempts.', '2030-01-31 12:00:00.123456Z'),
  ('01890000-0000-7000-8000-0000000000e2', '01890000-0000-7000-8000-000000000002', '00000000-0000-4000-8000-00000000000a', 1, 2, 'PENDING',
    NULL, NULL, NULL);

INSERT INTO webhooks (webhook_id, client_id, url, events, description, content_mode, secret, created_at, updated_at) VALUES
  ('01890000-0000-7000-8000-0000000000c1', '00000000-0000-4000-8000-00000000000a', 'https://example.com/hook?a=<b>',
    '{job.*,batch.completed}', 'Mine', 'binary', 'sealed', '2030-01-31 12:00:00.123456Z', '2030-01-31 12:00:01.123456Z');

INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, url, job_id, seq, event_id, event_name, created_at, state,
  attempts, next_attempt_at, settled_at, last_status, last_error, last_reason)
VALUES
  ('01890000-0000-7000-8000-0000000000d1', '00000000-0000-4000-8000-00000000000a', '01890000-0000-7000-8000-0000000000c1',
    '01890000-0000-7000-8000-0000000000c1', NULL, '01890000-0000-7000-8000-000000000001', 5, '01890000-0000-7000-8000-00000000e005',
    'job.succeeded', '2030-01-31 12:00:00.123456Z', 'PENDING', 7, '2030-01-31 12:00:02.123456Z', NULL, NULL, NULL, NULL),
  ('01890000-0000-7000-8000-0000000000d3', '00000000-0000-4000-8000-00000000000a', '01890000-0000-7000-8000-0000000000c1',
    '01890000-0000-7000-8000-0000000000c1', NULL, '01890000-0000-7000-8000-000000000001', 4, '01890000-0000-7000-8000-00000000e004',
    'job.running', '2030-01-31 12:00:00.123456Z', 'PENDING', 0, '2030-01-31 12:00:02.123456Z', NULL, NULL, NULL, NULL),
  ('01890000-0000-7000-8000-0000000000d2', '00000000-0000-4000-8000-00000000000a', '01890000-0000-7000-8000-000000000001', NULL,
    'https://example.com/done', '01890000-0000-7000-8000-000000000001', 3, '01890000-0000-7000-8000-00000000e003', 'job.assigned',
    '2030-01-31 12:00:00.123456Z', 'FAILED', 1, NULL, '2030-01-31 12:01:00.123456Z', 503, 'TIMEOUT',
    'timeout after 10 s from 203.0.113.5:443'),
  ('01890000-0000-7000-8000-0000000000d4', '00000000-0000-4000-8000-00000000000a', '01890000-0000-7000-8000-000000000001', NULL,
    'https://example.com/done', '01890000-0000-7000-8000-000000000001', 4, '01890000-0000-7000-8000-00000000e004', 'job.running',
    '2030-01-31 12:00:00.123456Z', 'FAILED', 1, NULL, '2030-01-31 12:01:00.123456Z', 503, 'TIMEOUT', NULL);
-- Responses of receivers: none, text, binary data, and text that was cut off within a character.
INSERT INTO delivery_attempts (delivery_id, number, started_at, duration_ms, status, error, response_header, response_body, body_truncated)
VALUES
  ('01890000-0000-7000-8000-0000000000d1', 1, '2030-01-31 12:00:00.123456Z', 10000, NULL, 'TIMEOUT', NULL, NULL, false),
  ('01890000-0000-7000-8000-0000000000d1', 2, '2030-01-31 12:00:05.123456Z', 1, 503, 'HTTP_5XX',
    '{"Content-Type":["text/html"],"Set-Cookie":["a=1","b=2"]}', convert_to('<script>ä</script>' || chr(27), 'UTF8'), false),
  ('01890000-0000-7000-8000-0000000000d1', 3, '2030-01-31 12:00:00.123456Z', 0, 200, NULL, NULL, '\x610062', false),
  ('01890000-0000-7000-8000-0000000000d1', 4, '2030-01-31 12:00:00.123456Z', 0, 200, NULL, NULL, '\xfffe', false),
  ('01890000-0000-7000-8000-0000000000d1', 5, '2030-01-31 12:00:00.123456Z', 0, 200, NULL, NULL, '\x61f09f98', false),
  ('01890000-0000-7000-8000-0000000000d1', 6, '2030-01-31 12:00:00.123456Z', 0, 200, NULL, NULL, '\x61f09f98', true),
  ('01890000-0000-7000-8000-0000000000d1', 7, '2030-01-31 12:00:00.123456Z', 0, 200, NULL, NULL, '\x6180808080', true),
  ('01890000-0000-7000-8000-0000000000d2', 1, '2030-01-31 12:00:00.123456Z', 10000, NULL, 'TIMEOUT', NULL, NULL, false);

INSERT INTO schedules (schedule_id, client_id, name, cron, time_zone, jitter_ms, overlap, catch_up, catch_up_max, job, language, request_id,
  paused, created_at, updated_at, due_at, look_at, runs, missed, skipped, last_due_at, last_job_id, last_error)
SELECT ('01890000-0000-7000-8000-0000000000d' || n)::uuid, '00000000-0000-4000-8000-00000000000a', 'nightly', '30 4 * * *', 'Europe/Berlin',
  90000, 'skip', 'all', 7, '{"type":"EXECUTE","work_kind":"SUCCESS_FAST","params":{"a": 1}}', 'en', 'request-1', false,
  '2030-01-31 12:00:00.123456Z', '2030-01-31 12:00:00.123456Z', '2030-02-01 03:30Z', '2030-02-01 03:30Z', 3, 2, 1,
  '2030-01-31 12:00:00.123456Z', '01890000-0000-7000-8000-000000000001',
  '{"scheduled_for":"2030-01-31T12:00:00.123456Z","code":"RFA_EXEC_QUEUE_FULL","detail":"Full."}'
FROM generate_series(2, 3) n;

INSERT INTO pauses (pause_id, scope, target, mode, operator, reason, created_at) VALUES
  ('01890000-0000-7000-8000-0000000000f1', 'KIND', 'CPU_BURST', 'DRAIN', 'ann', 'a release', '2030-01-31 12:00:00.123456Z');
INSERT INTO workers (worker_id, name, concurrency, state, expires_at) VALUES
  ('01890000-0000-7000-8000-0000000000f2', 'w', 4, 'ALIVE', now() + interval '1 hour');
INSERT INTO erasures (erasure_id, client_id, operator, reason, request_id, created_at, started_at, step, removed) VALUES
  ('01890000-0000-7000-8000-0000000000f3', '00000000-0000-4000-8000-00000000000c', 'ann', '<a> & "ü"', 'request-1',
    '2030-01-31 12:00:00.123456Z', '2030-01-31 12:00:01.123456Z', 'jobs', '{"jobs":3}');

INSERT INTO testbed_sessions (client_id, session_id, label, profile, seed, rules, created_at) VALUES
  ('00000000-0000-4000-8000-00000000000a', '01890000-0000-7000-8000-0000000000f4', 'a test', 'flaky-network', 1, '{retry-after}',
    '2026-01-31 12:00:00Z'),
  ('00000000-0000-4000-8000-00000000000a', '01890000-0000-7000-8000-0000000000f6', 'another', '', 1, '{retry-after}',
    '2026-01-31 12:00:00Z');
INSERT INTO testbed_faults (client_id, position, rule_id, nth, rule, seed) VALUES
  ('00000000-0000-4000-8000-00000000000a', 1, '01890000-0000-7000-8000-0000000000f5', 1000000,
    '{"match":{"nth":1000000},"effect":{"status":503}}', 1);
