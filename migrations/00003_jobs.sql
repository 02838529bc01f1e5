-- +goose Up

-- No index contains state, so the step from ASSIGNED to RUNNING is an update in place (HOT). Partial indexes test other columns instead. A
-- waiting job has no worker_id and no finished_at. A CREATED job has no queued_at and no finished_at.
CREATE TABLE jobs (
  job_id         uuid PRIMARY KEY,
  client_id      uuid NOT NULL, -- no foreign key, because its check would lock the client's row
  batch_id       uuid,
  schedule_id    uuid,
  scheduled_for  timestamptz, -- the run's due time; null if the job has no schedule, or if a client triggered the run
  type           text NOT NULL CONSTRAINT jobs_type_known CHECK (type IN ('EXECUTE', 'DEFERRED', 'EMIT_EVENT')),
  work_kind      text NOT NULL,
  definition     jsonb, -- if it is missing or damaged, the worker fails the job
  params         json,
  state          text NOT NULL,
  outcome        text,
  attempt        int NOT NULL DEFAULT 1,
  max_attempts   int NOT NULL,
  auto_retry     boolean NOT NULL,
  event_seq      int NOT NULL CONSTRAINT jobs_event_seq_positive CHECK (event_seq > 0), -- seq of the job's latest event
  event_tx       xid8 NOT NULL DEFAULT '0', -- tx of the job's latest event, see events

  fence          bigint NOT NULL DEFAULT 0,
  worker_id      uuid,
  lease_expiries int NOT NULL DEFAULT 0,
  dispatch       int NOT NULL DEFAULT 0,

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
  CONSTRAINT jobs_created_not_queued CHECK (
    CASE state WHEN 'CREATED' THEN queued_at IS NULL WHEN 'CANCELED' THEN true ELSE queued_at IS NOT NULL END),
  CONSTRAINT jobs_run_has_start CHECK (state NOT IN ('RUNNING', 'SUCCEEDED', 'FAILED') OR started_at IS NOT NULL),
  CONSTRAINT jobs_failed_has_failure CHECK ((state = 'FAILED') = (failure_code IS NOT NULL)),
  CONSTRAINT jobs_created_has_execution_at CHECK (state <> 'CREATED' OR execution_at IS NOT NULL),
  CONSTRAINT jobs_deferred_has_execution_at CHECK ((type = 'DEFERRED') = (execution_at IS NOT NULL)),
  CONSTRAINT jobs_never_early CHECK (
    execution_at IS NULL OR (run_at >= execution_at AND (started_at IS NULL OR started_at >= execution_at))),
  CONSTRAINT jobs_attempt_in_range CHECK (attempt BETWEEN 1 AND max_attempts)
)
-- A job moves through four indexes in its life. Each move leaves a dead entry in the old index, and scans read the dead entries until a
-- vacuum removes them. After a vacuum, index-only scans can also count waiting jobs without reading the table. Ended jobs stay for weeks,
-- so the table is large. The default scale factor (0.2) would delay a vacuum too long.
WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);

-- Includes client_id and queued_at, so that an index-only scan can count a million waiting jobs by client. The two columns cause no
-- additional index updates. client_id never changes. queued_at is part of the condition of jobs_scheduled, so a change of queued_at updates
-- indexes anyway.
CREATE INDEX jobs_waiting ON jobs (run_at, job_id) INCLUDE (client_id, queued_at) WHERE worker_id IS NULL AND finished_at IS NULL;
CREATE INDEX jobs_scheduled ON jobs (execution_at, job_id) WHERE queued_at IS NULL AND finished_at IS NULL;
CREATE INDEX jobs_held ON jobs (worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX jobs_ended ON jobs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_client ON jobs (client_id, job_id);
-- Waiting jobs of clients that are at their limit of running jobs. Their run_at is a time that never comes.
CREATE INDEX jobs_throttled ON jobs (client_id, job_id)
  WHERE worker_id IS NULL AND finished_at IS NULL AND queued_at IS NOT NULL AND run_at >= '2200-01-01 00:00:00+00';
-- Jobs that wait because their kind or client is paused.
CREATE INDEX jobs_paused ON jobs (job_id)
  WHERE worker_id IS NULL AND finished_at IS NULL AND queued_at IS NOT NULL
    AND run_at >= '2199-01-01 00:00:00+00' AND run_at < '2200-01-01 00:00:00+00';

CREATE INDEX jobs_batch ON jobs (batch_id, job_id) WHERE batch_id IS NOT NULL;
CREATE INDEX jobs_batch_open ON jobs (batch_id) WHERE batch_id IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_schedule ON jobs (schedule_id, job_id) WHERE schedule_id IS NOT NULL;
CREATE INDEX jobs_schedule_open ON jobs (schedule_id) WHERE schedule_id IS NOT NULL AND finished_at IS NULL;
-- schedule_id is the second column, so that the planner uses jobs_schedule to find the jobs of one schedule.
CREATE UNIQUE INDEX jobs_one_for_each_due_time ON jobs (scheduled_for, schedule_id) WHERE scheduled_for IS NOT NULL;

-- One report for each finished attempt. A report never changes. event_seq is the seq of the attempt's last event. The report shows the
-- job's events from the first one to event_seq.
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

-- When a result expires, body becomes null. The other columns stay.
CREATE TABLE results (
  job_id     uuid PRIMARY KEY,
  attempt    int NOT NULL,
  media_type text NOT NULL,
  size       int NOT NULL,
  sha256     bytea NOT NULL CONSTRAINT results_sha256_length CHECK (length(sha256) = 32),
  expires_at timestamptz NOT NULL,
  body       bytea,
  CONSTRAINT results_complete CHECK (length(body) = size)
);
ALTER TABLE results ALTER COLUMN body SET STORAGE EXTERNAL; -- bodies are random data, which cannot be compressed
CREATE INDEX results_expiry ON results (expires_at) WHERE body IS NOT NULL;

-- Removed jobs. The columns from `state` on are set only for jobs removed within 20 minutes of their end. The leader may still count these
-- jobs in the table `history`.
CREATE TABLE tombstones (
  job_id      uuid PRIMARY KEY,
  client_id   uuid NOT NULL,
  expired_at  timestamptz NOT NULL,
  state       text,
  attempt     int,
  run_at      timestamptz,
  started_at  timestamptz,
  finished_at timestamptz
);
CREATE INDEX tombstones_expiry ON tombstones (expired_at);
CREATE INDEX tombstones_ended ON tombstones (finished_at) WHERE finished_at IS NOT NULL;

-- +goose Down
DROP TABLE tombstones, results, reports, jobs;
