-- +goose NO TRANSACTION
-- +goose Up

-- Each statement may be repeated: one that did not get its locks leaves an index that is not valid.

-- The key that asked for a key: null if it was the operator or nobody, and in the rows of programs that do not know the
-- column.
ALTER TABLE api_keys ADD COLUMN IF NOT EXISTS made_by text;

-- With the client and the time of queuing, so that what waits is counted by client in the index alone: there may be a
-- million rows of it. Neither makes an update touch an index that did not before: a client never changes, and the time
-- of queuing decides about jobs_scheduled.
DROP INDEX CONCURRENTLY IF EXISTS jobs_waiting_new;
CREATE INDEX CONCURRENTLY jobs_waiting_new ON jobs (run_at, job_id) INCLUDE (client_id, queued_at)
  WHERE worker_id IS NULL AND finished_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS jobs_waiting;
ALTER INDEX IF EXISTS jobs_waiting_new RENAME TO jobs_waiting;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS jobs_waiting_old;
CREATE INDEX CONCURRENTLY jobs_waiting_old ON jobs (run_at, job_id) WHERE worker_id IS NULL AND finished_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS jobs_waiting;
ALTER INDEX IF EXISTS jobs_waiting_old RENAME TO jobs_waiting;
ALTER TABLE api_keys DROP COLUMN IF EXISTS made_by;
