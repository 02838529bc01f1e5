-- +goose NO TRANSACTION
-- +goose Up

-- Each statement may be repeated, and none holds a lock of another one's table while it waits.

-- What submits jobs at times. look_at is when the leader has something to do about a row: its due time and what jitter
-- adds, or another try. version rises with each change: a step of the leader is written of the row as it was read, or not at all.
-- pending_for is a due time that waits for the end of an earlier run.
CREATE TABLE IF NOT EXISTS schedules (
  schedule_id  uuid PRIMARY KEY,
  client_id    uuid NOT NULL,
  name         text NOT NULL,
  cron         text,
  time_zone    text NOT NULL,
  interval_ms  bigint CONSTRAINT schedules_interval_in_range CHECK (interval_ms >= 1000),
  jitter_ms    bigint NOT NULL CONSTRAINT schedules_jitter_in_range CHECK (jitter_ms >= 0),
  start_at     timestamptz,
  end_at       timestamptz,
  overlap      text NOT NULL CONSTRAINT schedules_overlap_known CHECK (overlap IN ('allow', 'skip', 'queue_one')),
  catch_up     text NOT NULL CONSTRAINT schedules_catch_up_known CHECK (catch_up IN ('none', 'last', 'all')),
  catch_up_max int NOT NULL CONSTRAINT schedules_catch_up_in_range CHECK (catch_up_max BETWEEN 1 AND 1000),
  job          json NOT NULL,
  language     text NOT NULL,
  request_id   text NOT NULL,
  paused       boolean NOT NULL,
  created_at   timestamptz NOT NULL,
  updated_at   timestamptz NOT NULL,
  version      bigint NOT NULL DEFAULT 1,
  due_at       timestamptz,
  look_at      timestamptz,
  pending_for  timestamptz,
  retrying     boolean NOT NULL DEFAULT false,
  runs         bigint NOT NULL DEFAULT 0,
  missed       bigint NOT NULL DEFAULT 0,
  skipped      bigint NOT NULL DEFAULT 0,
  last_due_at  timestamptz,
  last_job_id  uuid,
  last_error   jsonb,
  CONSTRAINT schedules_one_timetable CHECK (num_nonnulls(cron, interval_ms) = 1),
  CONSTRAINT schedules_paused_rests CHECK (NOT paused OR num_nonnulls(due_at, look_at) = 0),
  CONSTRAINT schedules_active_is_looked_at CHECK (paused OR (num_nonnulls(due_at, pending_for) > 0) = (look_at IS NOT NULL)),
  CONSTRAINT schedules_retries_due_time CHECK (NOT retrying OR due_at IS NOT NULL)
) WITH (fillfactor = 60);
CREATE INDEX IF NOT EXISTS schedules_client ON schedules (client_id, schedule_id);
CREATE INDEX IF NOT EXISTS schedules_due ON schedules (look_at) WHERE look_at IS NOT NULL;
CREATE OR REPLACE TRIGGER schedules_of_a_client AFTER INSERT ON schedules REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_erased();

-- The schedule that a job is of, and the due time that it stands for; null for a run that was triggered.
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS schedule_id uuid, ADD COLUMN IF NOT EXISTS scheduled_for timestamptz;
-- Other jobs have no row in these indexes. An index that was not completed is made anew.
DROP INDEX CONCURRENTLY IF EXISTS jobs_schedule;
CREATE INDEX CONCURRENTLY jobs_schedule ON jobs (schedule_id, job_id) WHERE schedule_id IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS jobs_schedule_open;
CREATE INDEX CONCURRENTLY jobs_schedule_open ON jobs (schedule_id) WHERE schedule_id IS NOT NULL AND finished_at IS NULL;
-- It begins with the time, so that it is not taken for a search of the jobs of one schedule.
DROP INDEX CONCURRENTLY IF EXISTS jobs_one_for_each_due_time;
CREATE UNIQUE INDEX CONCURRENTLY jobs_one_for_each_due_time ON jobs (scheduled_for, schedule_id) WHERE scheduled_for IS NOT NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS jobs_one_for_each_due_time;
DROP INDEX CONCURRENTLY IF EXISTS jobs_schedule_open;
DROP INDEX CONCURRENTLY IF EXISTS jobs_schedule;
ALTER TABLE jobs DROP COLUMN IF EXISTS scheduled_for, DROP COLUMN IF EXISTS schedule_id;
DROP TABLE IF EXISTS schedules;
