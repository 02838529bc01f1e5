-- Rows for each table that can have a client's data, with jobs of two kinds. {client} and {jobs} are replaced.
INSERT INTO clients (client_id) VALUES ('{client}');
INSERT INTO api_keys (key_id, client_id, secret_hash, issued_by, created_at, expires_at)
SELECT 'k' || n || '{client}', '{client}', sha256(''), 'CREATED', now(), now() + interval '1 day' FROM generate_series(1, 2) n;
INSERT INTO webhooks (webhook_id, client_id, url, events, description, content_mode, secret, created_at, updated_at, deleted_at)
SELECT gen_random_uuid(), '{client}', 'http://x.test', '{*}', 'd', 'binary', 'x', now(), now(), CASE WHEN n = 2 THEN now() END
	FROM generate_series(1, 2) n;
INSERT INTO batches (batch_id, client_id, created_at, language, request_id, items, refused)
SELECT gen_random_uuid(), '{client}', now(), 'en', 'r', '[]', 0 FROM generate_series(1, 2);
INSERT INTO jobs (job_id, client_id, batch_id, type, work_kind, definition, state, outcome, max_attempts, auto_retry, event_seq,
	created_at, updated_at, run_at, queued_at, started_at, finished_at, callback, language, request_id)
SELECT uuid7(now()), '{client}', (SELECT batch_id FROM batches WHERE client_id = '{client}' LIMIT 1), 'EXECUTE', 'SUCCESS_FAST', '{}',
	CASE WHEN n % 2 = 0 THEN 'SUCCEEDED' ELSE 'QUEUED' END, CASE WHEN n % 2 = 0 THEN 'SUCCESS' END, 4, false, 2, now(), now(), now(), now(),
	CASE WHEN n % 2 = 0 THEN now() END, CASE WHEN n % 2 = 0 THEN now() END, 'http://x.test/callback', 'en', 'r'
FROM generate_series(1, {jobs}) n;
INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, data)
SELECT job_id, client_id, 1, gen_random_uuid(), 'job.created', NULL, 'CREATED', 1, now(), '{}' FROM jobs WHERE client_id = '{client}';
INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq)
SELECT job_id, 1, 'SUCCESS', now(), now(), 0, 2 FROM jobs WHERE client_id = '{client}' AND finished_at IS NOT NULL;
INSERT INTO results (job_id, attempt, media_type, size, sha256, expires_at, body)
SELECT job_id, 1, 'text/plain', 4, sha256('abcd'), now() + interval '1 day', 'abcd' FROM reports JOIN jobs USING (job_id)
	WHERE client_id = '{client}';
INSERT INTO outcome_outbox (job_id, attempt, finished_at) SELECT job_id, 1, now() FROM jobs WHERE client_id = '{client}';
INSERT INTO tombstones (job_id, client_id, expired_at) VALUES (gen_random_uuid(), '{client}', now());
INSERT INTO client_events (event_id, client_id, event_name, occurred_at, data) VALUES (gen_random_uuid(), '{client}', 'batch.completed',
	now(), '{}');
INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, seq, event_id, event_name, created_at, state, settled_at)
SELECT gen_random_uuid(), client_id, webhook_id, webhook_id, 0, gen_random_uuid(), 'batch.completed', now(), 'DELIVERED', now()
	FROM webhooks WHERE client_id = '{client}';
INSERT INTO delivery_attempts (delivery_id, number, started_at, duration_ms) SELECT delivery_id, 1, now(), 1 FROM deliveries
	WHERE client_id = '{client}';
INSERT INTO idempotency_keys (client_id, endpoint, key, request_hash, resource_id, created_at, expires_at)
SELECT owner::uuid, 'jobs', '{client}', 'h', '{client}', now(), now() + interval '1 day'
	FROM unnest(ARRAY['{client}', '00000000-0000-0000-0000-000000000000']) owner;
INSERT INTO testbed_faults (client_id, position, rule_id, rule, seed)
SELECT '{client}', n, gen_random_uuid(), '{"match":{},"effect":{"status":503}}', 1 FROM generate_series(1, 2) n;
INSERT INTO testbed_sessions (session_id, client_id, profile, seed, rules, created_at, ended_at)
SELECT gen_random_uuid(), '{client}', '', 1, '{}', now(), now() FROM generate_series(1, 2) n;
INSERT INTO testbed_exchanges (client_id, session_id, number, exchange)
SELECT client_id, session_id, n, '{}' FROM testbed_sessions, generate_series(1, 3) n WHERE client_id = '{client}';
INSERT INTO testbed_requests (client_id, request_id, session_id) SELECT '{client}', n, gen_random_uuid() FROM generate_series(1, 2) n;
INSERT INTO bulk_operations (bulk_id, client_id, operator, action, filter, rate, override, request_id, gathered_at, total)
SELECT gen_random_uuid(), '{client}', '', 'retry', '{}', 1, false, 'r', now(), 1;
INSERT INTO schedules (schedule_id, client_id, name, cron, time_zone, jitter_ms, overlap, catch_up, catch_up_max, job, language, request_id,
	paused, created_at, updated_at)
SELECT gen_random_uuid(), '{client}', 'n', '* * * * *', '', 0, 'allow', 'none', 1, '{"type":"EXECUTE"}', 'en', 'r', n = 1, now(), now()
	FROM generate_series(1, 2) n;
INSERT INTO bulk_items (bulk_id, job_id, client_id, attempt, event_seq)
SELECT bulk_id, gen_random_uuid(), '{client}', 1, 1 FROM bulk_operations WHERE client_id = '{client}' OR operator = 'ann';
