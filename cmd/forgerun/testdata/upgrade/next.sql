-- +goose NO TRANSACTION
-- An example of the next migration. It only adds, and its statements can be repeated.

-- +goose Up
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS note text;
CREATE TABLE IF NOT EXISTS job_notes (job_id uuid PRIMARY KEY, note text NOT NULL);
DROP INDEX CONCURRENTLY IF EXISTS jobs_request;
CREATE INDEX CONCURRENTLY jobs_request ON jobs (request_id);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS jobs_request;
DROP TABLE IF EXISTS job_notes;
ALTER TABLE jobs DROP COLUMN IF EXISTS note;
