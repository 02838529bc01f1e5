-- A database after some days: 10,000 ended jobs with all their data, and 1,000 waiting, 2,000 scheduled jobs and 200 that workers hold.
-- Many belong to one client, called busy in the tests.
SET session_replication_role = replica; -- disables triggers, which would take most of the time
CREATE TEMP TABLE n AS SELECT i, uuid7(now() - i * interval '1 s') AS id, now() - i * interval '1 minute' AS at FROM generate_series(1,
	10000) i;
INSERT INTO jobs (job_id, client_id, type, work_kind, definition, state, outcome, max_attempts, auto_retry, event_seq,
  created_at, updated_at, run_at, queued_at, assigned_at, started_at, finished_at, language, request_id)
SELECT id, gen_random_uuid(), 'EXECUTE', 'SUCCESS_FAST', '{"duration_ms": 1000}', 'SUCCEEDED', 'SUCCESS', 4, false, 5,
  at, at, at, at, at, at, at, 'en', 'r' FROM n;
INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data)
SELECT id, CASE WHEN i % 4 = 0 THEN 'busy' ELSE gen_random_uuid() END,
	s, gen_random_uuid(), 'x', 1, at, '{"work_kind": "SUCCESS_FAST"}' FROM n, generate_series(1, 5) s;
INSERT INTO client_events (event_id, client_id, event_name, occurred_at, batch_id, data)
SELECT gen_random_uuid(), CASE WHEN i % 4 = 0 THEN 'busy' ELSE gen_random_uuid() END, 'batch.completed',
	at, id, '{}' FROM n;
INSERT INTO batches (batch_id, client_id, created_at, language, request_id, items, refused, status, completed_at, succeeded, failed,
	canceled, failures)
SELECT id, gen_random_uuid(), at, 'en', 'r', '[]', 0, 'COMPLETED', at, 1, 0, 0, '[]' FROM n;
INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq) SELECT id, 1, 'SUCCESS', at, at, 0, 5
	FROM n;
INSERT INTO results SELECT id, 1, 'text/plain', 4, sha256('abcd'), at + interval '1 day', 'abcd' FROM n;
INSERT INTO idempotency_keys (client_id, endpoint, key, request_hash, resource_id, state, created_at, expires_at)
SELECT gen_random_uuid(), 'jobs', i::text, 'hash', id, 'QUEUED', at, at + interval '1 day' FROM n;
INSERT INTO tombstones SELECT gen_random_uuid(), gen_random_uuid(), at FROM n;
INSERT INTO jobs (job_id, client_id, type, work_kind, definition, state, max_attempts, auto_retry, event_seq, created_at, updated_at,
	execution_at, run_at, language, request_id)
SELECT uuid7(at), gen_random_uuid(), 'DEFERRED', 'SUCCESS_FAST', '{}', 'CREATED', 4, false, 1, at, at, now() + i * interval '1 minute',
	now() + i * interval '1 minute', 'en', 'r'
FROM n WHERE i <= 2000;
INSERT INTO jobs (job_id, client_id, type, work_kind, definition, state, max_attempts, auto_retry, event_seq, created_at, updated_at,
	run_at, queued_at, language, request_id)
SELECT uuid7(at), gen_random_uuid(), 'EXECUTE', 'SUCCESS_FAST', '{}', 'QUEUED', 4, false, 2, now(), now(), now() - i * interval '1 ms',
	now(), 'en', 'r' FROM n WHERE i <= 1000;
INSERT INTO workers (worker_id, name, concurrency, state, expires_at)
SELECT gen_random_uuid(), 'w', 1, CASE WHEN i < 10 THEN 'ALIVE' ELSE 'DEAD' END, now() + interval '1 hour' FROM n WHERE i <= 20;
INSERT INTO jobs (job_id, client_id, type, work_kind, definition, state, max_attempts, auto_retry, event_seq, created_at, updated_at,
	run_at, queued_at,
  started_at, worker_id, fence, language, request_id)
SELECT uuid7(at), gen_random_uuid(), 'EXECUTE', 'SUCCESS_FAST', '{}', CASE WHEN i % 2 = 0 THEN 'RUNNING' ELSE 'ASSIGNED' END, 4, false, 4,
	at, at, at, at, at,
  (SELECT worker_id FROM workers ORDER BY worker_id OFFSET i % 20 LIMIT 1), 1, 'en', 'r' FROM n WHERE i <= 200;

-- Ids are in order, like those of the store, so busy has the lowest one. The planner multiplies the shares of rows below and above an id.
-- For a webhook in the middle it expects a quarter of all deliveries, and may then prefer to read the whole table.
INSERT INTO webhooks (webhook_id, client_id, url, events, description, content_mode, secret, created_at, updated_at, deleted_at)
SELECT CASE i WHEN 1 THEN 'busy' ELSE id END, CASE i WHEN 1 THEN 'busy' ELSE gen_random_uuid() END,
	'http://x.test', '{*}', '', 'binary', 'x', at, at,
  CASE WHEN i % 100 = 0 THEN at END FROM n WHERE i <= 5000;
INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, job_id, seq, event_id, event_name, created_at, state, attempts,
	settled_at, last_error, last_reason)
SELECT gen_random_uuid(), w.client_id, w.webhook_id, w.webhook_id, n.id, s, gen_random_uuid(), 'x', n.at,
	CASE WHEN i % 10 = 0 THEN 'FAILED' ELSE 'DELIVERED' END, 1, n.at,
  CASE WHEN i % 10 = 0 THEN 'TIMEOUT' END, CASE WHEN i % 10 = 0 THEN 'timeout after 10 s from 203.0.113.5:443' END
FROM n CROSS JOIN generate_series(1, 2) s
JOIN (SELECT *, row_number() OVER (ORDER BY webhook_id) - 1 AS nth FROM webhooks) w ON w.nth = CASE WHEN i % 4 = 0 THEN 0 ELSE i % 100 END;
INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, seq, event_id, event_name, created_at, next_attempt_at,
	claimed_until)
SELECT gen_random_uuid(), 'busy', 'busy', 'busy', 0, gen_random_uuid(), 'x', at, at,
	CASE WHEN i % 20 = 0 THEN now() + i * interval '1 s' END FROM n WHERE i <= 2000;
INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, seq, event_id, event_name, created_at, next_attempt_at)
SELECT gen_random_uuid(), client_id, webhook_id, webhook_id, 0, gen_random_uuid(), 'x', now(), now() FROM webhooks, generate_series(1, 2);
INSERT INTO delivery_attempts (delivery_id, number, started_at, duration_ms) SELECT delivery_id, 1, now(), 1 FROM deliveries
	WHERE attempts = 1;
INSERT INTO outcome_outbox SELECT id, 1, at, CASE WHEN i % 10 > 0 THEN at END FROM n;

INSERT INTO bulk_operations (bulk_id, client_id, operator, action, filter, rate, override, request_id, created_at, started_at, gathered_at,
	finished_at)
SELECT id, gen_random_uuid(), '', 'retry', '{}', 200, false, 'r', at, at, at, CASE WHEN i > 20 THEN at END FROM n WHERE i <= 2020;
INSERT INTO bulk_items (bulk_id, job_id, client_id, attempt, event_seq, result, ended_at)
SELECT n.id, m.id, gen_random_uuid(), 1, 5, CASE WHEN m.i % 2 = 0 THEN 'PENDING' ELSE 'SUCCEEDED' END, CASE WHEN m.i % 2 = 1 THEN n.at END
FROM n CROSS JOIN n m WHERE n.i <= 2020 AND m.i <= 10;

INSERT INTO schedules (schedule_id, client_id, name, cron, time_zone, jitter_ms, overlap, catch_up, catch_up_max, job, language, request_id,
	paused, created_at, updated_at, due_at, look_at)
SELECT id, md5((i % 50)::text)::uuid, '', '* * * * *', '', 0, 'skip', 'none', 1, '{}', 'en', 'r', i % 10 = 0, at, at,
	CASE WHEN i % 10 > 0 THEN now() + i * interval '10 s' END, CASE WHEN i % 10 > 0 THEN now() + i * interval '10 s' END
FROM n WHERE i <= 3000;

INSERT INTO erasures (erasure_id, client_id, operator, reason, request_id, started_at, finished_at, record, record_sha256)
SELECT id, gen_random_uuid(), 'ann', '', 'r', at, CASE WHEN i > 20 THEN at END, CASE WHEN i > 20 THEN '{}' END,
	CASE WHEN i > 20 THEN sha256('') END FROM n WHERE i <= 2020;
INSERT INTO clients (client_id) SELECT id FROM n WHERE i <= 2000;
INSERT INTO api_keys (key_id, client_id, secret_hash, issued_by, created_at, expires_at)
SELECT i, id, sha256(''), 'CREATED', at, at FROM n WHERE i <= 2000;

INSERT INTO testbed_faults (client_id, position, rule_id, operation, rule, seed)
SELECT n.id, m.i, gen_random_uuid(), CASE WHEN m.i % 2 = 0 THEN 'submitJob' END, '{"match":{},"effect":{"status":503}}', 1
FROM n CROSS JOIN n m WHERE n.i <= 200 AND m.i <= 50;
INSERT INTO testbed_sessions (session_id, client_id, profile, seed, rules, created_at, ended_at)
SELECT gen_random_uuid(), n.id, '', 1, '{}', now(), CASE WHEN m.i > 1 THEN now() END FROM n CROSS JOIN n m WHERE n.i <= 200 AND m.i <= 20;
INSERT INTO testbed_exchanges (client_id, session_id, number, exchange)
SELECT client_id, session_id, m.i, '{}' FROM testbed_sessions CROSS JOIN n m WHERE ended_at IS NULL AND m.i <= 50;
INSERT INTO testbed_requests (client_id, request_id, session_id)
SELECT client_id, session_id::text || m.i, session_id FROM testbed_sessions CROSS JOIN n m WHERE ended_at IS NULL AND m.i <= 50;

RESET session_replication_role;
ANALYZE;
