-- +goose Up

-- A version 7 UUID of the given moment (RFC 9562): 48 bits of milliseconds,
-- the rest random. Setting bits 52 and 53 turns version 4 into version 7.
-- +goose StatementBegin
CREATE FUNCTION uuid7(at timestamptz) RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT encode(set_bit(set_bit(overlay(
    uuid_send(gen_random_uuid())
    PLACING substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
    52, 1), 53, 1), 'hex')::uuid
$$;
-- +goose StatementEnd

-- What every event of a job tells of its scenario.
-- +goose StatementBegin
CREATE FUNCTION event_data(work_kind text, definition jsonb) RETURNS jsonb LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT jsonb_build_object('work_kind', work_kind,
    'duration_ms', definition -> 'duration_ms', 'expected_outcome', definition -> 'expected_outcome')
$$;
-- +goose StatementEnd

CREATE TABLE clients (
  client_id  uuid PRIMARY KEY,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE api_keys (
  key_id      text PRIMARY KEY,
  client_id   uuid NOT NULL REFERENCES clients,
  secret_hash bytea NOT NULL CONSTRAINT api_keys_hash_is_sha256 CHECK (length(secret_hash) = 32),
  created_at  timestamptz NOT NULL,
  expires_at  timestamptz NOT NULL,
  revoked_at  timestamptz,
  replaced_by text
);
CREATE INDEX api_keys_client ON api_keys (client_id);

CREATE TABLE workers (
  worker_id    uuid PRIMARY KEY,
  name         text NOT NULL,
  concurrency  int NOT NULL,
  state        text NOT NULL CONSTRAINT workers_state_known CHECK (state IN ('ALIVE', 'DEAD', 'STOPPED')),
  started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at   timestamptz NOT NULL
);

-- jobs: no index mentions state, so the step from ASSIGNED to RUNNING is an
-- update in place (HOT). The partial indexes use columns that say the same by the checks below:
-- waiting <=> worker_id and finished_at are null; CREATED <=> queued_at and finished_at are null.
CREATE TABLE jobs (
  job_id         uuid PRIMARY KEY,
  client_id      uuid NOT NULL, -- no foreign key: clients are never deleted, and the check would lock their rows
  batch_id       uuid,
  type           text NOT NULL CONSTRAINT jobs_type_known CHECK (type IN ('EXECUTE', 'DEFERRED', 'EMIT_EVENT')),
  work_kind      text NOT NULL,
  definition     jsonb, -- missing or damaged: the worker fails the job
  params         json,
  state          text NOT NULL,
  outcome        text,
  attempt        int NOT NULL DEFAULT 1,
  max_attempts   int NOT NULL,
  auto_retry     boolean NOT NULL,
  event_seq      int NOT NULL CONSTRAINT jobs_event_seq_positive CHECK (event_seq > 0),

  fence          bigint NOT NULL DEFAULT 0,
  worker_id      uuid,
  lease_expiries int NOT NULL DEFAULT 0,
  dispatch       int NOT NULL DEFAULT 0,
  dispatch_epoch bigint,

  created_at     timestamptz NOT NULL,
  updated_at     timestamptz NOT NULL,
  execution_at   timestamptz,
  run_at         timestamptz NOT NULL,
  queued_at      timestamptz,
  assigned_at    timestamptz,
  started_at     timestamptz,
  finished_at    timestamptz,

  failure_reason      text,
  failure_code        text,
  failure_retryable   boolean,
  failure_retry_after int,
  failure_stage       text,
  failure_detail      text,

  callback       text,
  correlation_id text,
  traceparent    text,
  language       text NOT NULL,
  request_id     text NOT NULL,

  CONSTRAINT jobs_state_known CHECK (state IN ('CREATED', 'QUEUED', 'ASSIGNED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELED')),
  CONSTRAINT jobs_final_has_outcome CHECK (outcome IS NOT DISTINCT FROM
    CASE state WHEN 'SUCCEEDED' THEN 'SUCCESS' WHEN 'FAILED' THEN 'FAILED' WHEN 'CANCELED' THEN 'CANCELED' END),
  CONSTRAINT jobs_final_has_finish CHECK ((outcome IS NULL) = (finished_at IS NULL)),
  CONSTRAINT jobs_held_has_worker CHECK ((state IN ('ASSIGNED', 'RUNNING')) = (worker_id IS NOT NULL)),
  CONSTRAINT jobs_created_not_queued CHECK (CASE state WHEN 'CREATED' THEN queued_at IS NULL WHEN 'CANCELED' THEN true ELSE queued_at IS NOT NULL END),
  CONSTRAINT jobs_run_has_start CHECK (state NOT IN ('RUNNING', 'SUCCEEDED', 'FAILED') OR started_at IS NOT NULL),
  CONSTRAINT jobs_failed_has_failure CHECK ((state = 'FAILED') = (failure_code IS NOT NULL)),
  CONSTRAINT jobs_created_has_execution_at CHECK (state <> 'CREATED' OR execution_at IS NOT NULL),
  CONSTRAINT jobs_deferred_has_execution_at CHECK ((type = 'DEFERRED') = (execution_at IS NOT NULL)),
  CONSTRAINT jobs_never_early CHECK (execution_at IS NULL OR (run_at >= execution_at AND (started_at IS NULL OR started_at >= execution_at))),
  CONSTRAINT jobs_attempt_in_range CHECK (attempt BETWEEN 1 AND max_attempts)
) WITH (fillfactor = 80);

CREATE INDEX jobs_waiting ON jobs (run_at, job_id) WHERE worker_id IS NULL AND finished_at IS NULL;
CREATE INDEX jobs_scheduled ON jobs (execution_at, job_id) WHERE queued_at IS NULL AND finished_at IS NULL;
CREATE INDEX jobs_held ON jobs (worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX jobs_ended ON jobs (finished_at) WHERE finished_at IS NOT NULL;

-- The pairs of events_transition_allowed are job.CanTransition and the lease
-- exception; a test compares them.
CREATE TABLE events (
  job_id      uuid NOT NULL, -- no foreign key: written in the statement that writes the job, deleted with it
  seq         int NOT NULL CONSTRAINT events_seq_positive CHECK (seq > 0),
  event_id    uuid NOT NULL,
  event_name  text NOT NULL,
  prev_state  text,
  next_state  text,
  attempt     int NOT NULL,
  occurred_at timestamptz NOT NULL,
  tx          xid8 NOT NULL DEFAULT pg_current_xact_id(),
  data        jsonb NOT NULL,
  PRIMARY KEY (job_id, seq),
  CONSTRAINT events_transition_allowed CHECK (CASE
    WHEN next_state IS NULL THEN prev_state IS NULL
    WHEN prev_state IS NULL THEN next_state = 'CREATED' AND seq = 1
    ELSE prev_state || '>' || next_state IN (
      'CREATED>QUEUED', 'CREATED>CANCELED', 'QUEUED>ASSIGNED', 'QUEUED>CANCELED',
      'ASSIGNED>RUNNING', 'ASSIGNED>CANCELED', 'RUNNING>SUCCEEDED', 'RUNNING>FAILED',
      'RUNNING>CANCELED', 'FAILED>QUEUED')
      OR (prev_state = 'ASSIGNED' AND next_state = 'QUEUED' AND event_name = 'job.lease_expired')
    END)
);

-- One report per finished attempt; it never changes. event_seq is the last
-- event of the attempt: the report's log ends there.
CREATE TABLE reports (
  job_id      uuid NOT NULL,
  attempt     int NOT NULL,
  outcome     text NOT NULL CONSTRAINT reports_outcome_known CHECK (outcome IN ('SUCCESS', 'FAILED', 'CANCELED')),
  started_at  timestamptz,
  finished_at timestamptz NOT NULL,
  duration_ms bigint NOT NULL CONSTRAINT reports_duration_positive CHECK (duration_ms >= 0),
  event_seq   int NOT NULL,
  worker_id   uuid,
  failure_reason      text,
  failure_code        text,
  failure_retryable   boolean,
  failure_retry_after int,
  failure_stage       text,
  failure_detail      text,
  PRIMARY KEY (job_id, attempt),
  CONSTRAINT reports_run_has_start CHECK (outcome = 'CANCELED' OR started_at IS NOT NULL),
  CONSTRAINT reports_failed_has_failure CHECK ((outcome = 'FAILED') = (failure_code IS NOT NULL))
);

CREATE TABLE results (
  job_id     uuid PRIMARY KEY,
  attempt    int NOT NULL,
  media_type text NOT NULL,
  size       int NOT NULL,
  sha256     bytea NOT NULL CONSTRAINT results_sha256_length CHECK (length(sha256) = 32),
  expires_at timestamptz NOT NULL,
  body       bytea NOT NULL,
  CONSTRAINT results_complete CHECK (length(body) = size)
);
ALTER TABLE results ALTER COLUMN body SET STORAGE EXTERNAL; -- bodies are noise: compressing them is wasted time
CREATE INDEX results_expiry ON results (expires_at);

CREATE TABLE idempotency_keys (
  client_id    uuid NOT NULL,
  endpoint     text NOT NULL,
  key          text NOT NULL,
  request_hash bytea NOT NULL,
  job_id       uuid NOT NULL,
  state        text NOT NULL,
  created_at   timestamptz NOT NULL,
  expires_at   timestamptz NOT NULL,
  PRIMARY KEY (client_id, endpoint, key)
);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

CREATE TABLE tombstones (
  job_id     uuid PRIMARY KEY,
  client_id  uuid NOT NULL,
  expired_at timestamptz NOT NULL
);
CREATE INDEX tombstones_expiry ON tombstones (expired_at);

-- One row: who leads, and the dispatch epoch.
CREATE TABLE maintenance_state (
  only_row          boolean PRIMARY KEY DEFAULT true CONSTRAINT maintenance_state_one_row CHECK (only_row),
  leader_id         uuid,
  leader_expires_at timestamptz NOT NULL DEFAULT '-infinity',
  epoch             bigint NOT NULL DEFAULT 1,
  redis_run_id      text NOT NULL DEFAULT ''
);
INSERT INTO maintenance_state DEFAULT VALUES;

-- +goose Down
DROP TABLE maintenance_state, tombstones, idempotency_keys, results, reports, events, jobs, workers, api_keys, clients;
DROP FUNCTION event_data(text, jsonb);
DROP FUNCTION uuid7(timestamptz);
