-- +goose NO TRANSACTION
-- +goose Up

-- Each statement may be repeated: one that did not get its locks leaves an index that is not valid.

-- What operators have stopped. Claims look at it, so that it holds in all processes from its commit on; it is empty where
-- nothing is stopped, and never long.
CREATE TABLE IF NOT EXISTS pauses (
  pause_id   uuid PRIMARY KEY,
  scope      text NOT NULL,
  target     text NOT NULL, -- the work kind, or the id of the client or worker; '' of all
  mode       text NOT NULL,
  operator   text NOT NULL,
  reason     text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  CONSTRAINT pauses_scope_known CHECK (scope IN ('ALL', 'KIND', 'CLIENT', 'WORKER')),
  CONSTRAINT pauses_mode_known CHECK (mode IN ('PAUSE', 'DRAIN') AND (scope <> 'WORKER' OR mode = 'DRAIN')),
  CONSTRAINT pauses_target_named CHECK ((target = '') = (scope = 'ALL')),
  CONSTRAINT pauses_once UNIQUE (scope, target, mode)
);

-- Jobs that wait until their kind or client goes on: that time, which never comes, stands in run_at. Without such jobs the
-- index is empty, and no update touches it that did not touch jobs_waiting before.
DROP INDEX CONCURRENTLY IF EXISTS jobs_paused;
CREATE INDEX CONCURRENTLY jobs_paused ON jobs (job_id)
  WHERE worker_id IS NULL AND finished_at IS NULL AND queued_at IS NOT NULL
    AND run_at >= '2199-01-01 00:00:00+00' AND run_at < '2200-01-01 00:00:00+00';

-- +goose Down
-- The version before would let them wait for that time.
UPDATE jobs SET run_at = queued_at, dispatch = dispatch + 1, dispatch_epoch = NULL
  WHERE worker_id IS NULL AND finished_at IS NULL AND queued_at IS NOT NULL
    AND run_at >= '2199-01-01 00:00:00+00' AND run_at < '2200-01-01 00:00:00+00';
DROP INDEX CONCURRENTLY IF EXISTS jobs_paused;
DROP TABLE IF EXISTS pauses;
