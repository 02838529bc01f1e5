WITH made AS MATERIALIZED (
  SELECT n, n * $3::interval AS age, uuid7(j.created_at - n * $3::interval) AS id,
    CASE n % 200 WHEN 0 THEN j.client_id ELSE md5((n % 200)::text)::uuid END AS client
  FROM generate_series($1::int, $2::int) AS n CROSS JOIN jobs AS j WHERE j.job_id = $4
), copied AS (
  INSERT INTO jobs SELECT c.* FROM made CROSS JOIN jobs AS t CROSS JOIN LATERAL jsonb_populate_record(t, jsonb_build_object(
    'job_id', id, 'client_id', client, 'request_id', id, 'created_at', t.created_at - age, 'updated_at', t.updated_at - age,
    'run_at', t.run_at - age, 'queued_at', t.queued_at - age, 'assigned_at', t.assigned_at - age, 'started_at', t.started_at - age,
    'finished_at', t.finished_at - age)) AS c WHERE t.job_id = $4
), log AS (
  INSERT INTO events SELECT c.* FROM made CROSS JOIN events AS t CROSS JOIN LATERAL jsonb_populate_record(t, jsonb_build_object(
    'job_id', id, 'client_id', client, 'event_id', uuid7(t.occurred_at - age), 'occurred_at', t.occurred_at - age)) AS c WHERE t.job_id = $4
), report AS (
  INSERT INTO reports SELECT c.* FROM made CROSS JOIN reports AS t CROSS JOIN LATERAL jsonb_populate_record(t, jsonb_build_object(
    'job_id', id, 'started_at', t.started_at - age, 'finished_at', t.finished_at - age)) AS c WHERE t.job_id = $4
)
INSERT INTO results SELECT c.* FROM made CROSS JOIN results AS t CROSS JOIN LATERAL jsonb_populate_record(t,
  jsonb_build_object('job_id', id, 'expires_at', t.expires_at - age)
  || CASE WHEN t.expires_at - age < now() THEN '{"body": null}'::jsonb ELSE '{}' END) AS c WHERE t.job_id = $4
