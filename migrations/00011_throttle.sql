-- +goose NO TRANSACTION
-- +goose Up

-- Each statement may be repeated: one that did not get its locks leaves an index that is not valid.

-- Jobs that wait until their client runs fewer jobs: that time, which never comes, stands in run_at. Without such jobs
-- the index is empty, and no update touches it that did not touch jobs_waiting before.
DROP INDEX CONCURRENTLY IF EXISTS jobs_throttled;
CREATE INDEX CONCURRENTLY jobs_throttled ON jobs (client_id, job_id)
  WHERE worker_id IS NULL AND finished_at IS NULL AND queued_at IS NOT NULL AND run_at >= '2200-01-01 00:00:00+00';

-- +goose Down
-- The version before would let them wait for that time.
UPDATE jobs SET run_at = queued_at, dispatch = dispatch + 1, dispatch_epoch = NULL
  WHERE worker_id IS NULL AND finished_at IS NULL AND queued_at IS NOT NULL AND run_at >= '2200-01-01 00:00:00+00';
DROP INDEX CONCURRENTLY IF EXISTS jobs_throttled;
