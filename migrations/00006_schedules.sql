-- +goose Up

-- Schedules submit jobs at set times. look_at is when the leader processes the row next: due_at plus jitter, or a retry after an error.
-- version increases with each change. The leader submits jobs and updates the row in one transaction. If version has changed since the
-- leader read the row, the leader changes nothing. pending_for is the due time of a run that waits until an earlier run ends.
CREATE TABLE schedules (
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
CREATE INDEX schedules_client ON schedules (client_id, schedule_id);
CREATE INDEX schedules_due ON schedules (look_at) WHERE look_at IS NOT NULL;
CREATE TRIGGER schedules_of_a_client AFTER INSERT ON schedules REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_erased();

-- +goose Down
DROP TABLE schedules;
