-- +goose NO TRANSACTION
-- +goose Up

-- Each statement may be repeated: one that did not get its locks leaves an index that is not valid.

-- made_by is the key that asked for a key: null if it was the operator or nobody, and in the rows of programs that do
-- not know the column. scope is what the key may do; such programs take every key for one that may do all.
ALTER TABLE api_keys
  ADD COLUMN IF NOT EXISTS made_by text,
  ADD COLUMN IF NOT EXISTS scope text NOT NULL DEFAULT 'all'
    CONSTRAINT api_keys_scope_known CHECK (scope IN ('read', 'submit', 'all'));

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
-- The version before would let them do all.
DELETE FROM api_keys WHERE scope <> 'all';
ALTER TABLE api_keys DROP COLUMN IF EXISTS made_by, DROP COLUMN IF EXISTS scope;
