-- +goose Up

-- One row: the leader, and the key that signs the cursors of lists in all processes.
CREATE TABLE maintenance_state (
  only_row          boolean PRIMARY KEY DEFAULT true CONSTRAINT maintenance_state_one_row CHECK (only_row),
  leader_id         uuid,
  leader_expires_at timestamptz NOT NULL DEFAULT '-infinity',
  cursor_key        bytea NOT NULL DEFAULT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
);
INSERT INTO maintenance_state DEFAULT VALUES;

CREATE TABLE workers (
  worker_id    uuid PRIMARY KEY,
  name         text NOT NULL,
  concurrency  int NOT NULL,
  state        text NOT NULL CONSTRAINT workers_state_known CHECK (state IN ('ALIVE', 'DEAD', 'STOPPED')),
  started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at   timestamptz NOT NULL
);

-- `active` is an upper bound for the number of unfinished jobs, and `queued` for the number of QUEUED jobs. The bounds do not include the
-- capacity in headroom_leases (see below) that is not used yet. From time to time, the jobs are counted and the counts replace the bounds.
-- Each number that is added to a bound is also added to reported_active or reported_queued. These totals never decrease. Their growth
-- during a count shows how many jobs the count may have missed. Transactions that change headroom or headroom_leases lock this row first.
CREATE TABLE headroom (
  only_row        boolean PRIMARY KEY DEFAULT true CONSTRAINT headroom_one_row CHECK (only_row),
  active          bigint NOT NULL DEFAULT 0,
  queued          bigint NOT NULL DEFAULT 0,
  reported_active bigint NOT NULL DEFAULT 0,
  reported_queued bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO headroom DEFAULT VALUES;

-- A lease lets a process store a number of jobs before it must renew the lease. A statement that stores jobs locks its process's lease. If
-- the lease is gone, the statement stores nothing. A process that needs a larger lease removes expired leases that are not locked.
CREATE TABLE headroom_leases (
  lease_id   uuid PRIMARY KEY,
  process_id uuid NOT NULL,
  active     bigint NOT NULL,
  queued     bigint NOT NULL,
  expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The history for operators in buckets of ten seconds and of one minute, written by the leader. The waiting and running times (wait_ms,
-- run_ms) are null if no job ended in the bucket. A bucket can be computed again as long as its jobs exist.
CREATE TABLE history (
  width       int NOT NULL CONSTRAINT history_width_known CHECK (width IN (10, 60)), -- in seconds
  at          timestamptz NOT NULL, -- beginning of the bucket
  submitted   int NOT NULL,
  succeeded   int NOT NULL,
  failed      int NOT NULL,
  canceled    int NOT NULL,
  retried     int NOT NULL, -- retries of the jobs that ended in the bucket
  wait_ms_p50 bigint,
  wait_ms_p99 bigint,
  run_ms_p50  bigint,
  run_ms_p99  bigint,
  PRIMARY KEY (width, at)
);

-- Outcomes for the Redis stream. A row stays until its outcome is in the stream and a crash of Redis can no longer lose the outcome. Only
-- database sessions with the setting forgerun.outcome_stream write to this table.
CREATE TABLE outcome_outbox (
  job_id       uuid NOT NULL,
  attempt      int NOT NULL,
  finished_at  timestamptz NOT NULL,
  published_at timestamptz,
  PRIMARY KEY (job_id, attempt)
)
-- A row is removed within minutes of its insertion, so the table needs frequent vacuums.
WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE INDEX outcome_outbox_waiting ON outcome_outbox (finished_at, job_id) WHERE published_at IS NULL;
CREATE INDEX outcome_outbox_published ON outcome_outbox (published_at) WHERE published_at IS NOT NULL;
-- +goose StatementBegin
CREATE FUNCTION publish_outcomes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO outcome_outbox (job_id, attempt, finished_at) SELECT job_id, attempt, finished_at FROM added;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER reports_published AFTER INSERT ON reports REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT WHEN (current_setting('forgerun.outcome_stream', true) = 'on') EXECUTE FUNCTION publish_outcomes();

-- +goose Down
DROP TRIGGER reports_published ON reports;
DROP FUNCTION publish_outcomes();
DROP TABLE outcome_outbox, history, headroom_leases, headroom, workers, maintenance_state;
