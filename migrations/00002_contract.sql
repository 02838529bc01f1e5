-- +goose Up

-- A client's stream of events is ordered by (tx, job_id, seq). event_tx is the
-- label of the job's latest event: the next one gets the later of it and its
-- own transaction, so the stream never shows a job's events out of order.
ALTER TABLE jobs ADD COLUMN event_tx xid8 NOT NULL DEFAULT '0';
ALTER TABLE events ADD COLUMN client_id uuid;
-- Labels that were given before may run backwards within a job.
UPDATE events e SET client_id = j.client_id, tx = l.tx
  FROM jobs j, (SELECT job_id, seq, max(tx::text::bigint) OVER (PARTITION BY job_id ORDER BY seq)::text::xid8 AS tx FROM events) l
  WHERE l.job_id = e.job_id AND l.seq = e.seq AND j.job_id = e.job_id;
UPDATE jobs j SET event_tx = e.tx FROM events e WHERE e.job_id = j.job_id AND e.seq = j.event_seq;
ALTER TABLE events ALTER COLUMN client_id SET NOT NULL;
CREATE INDEX events_client ON events (client_id, tx, job_id, seq);

-- Events that belong to no job.
CREATE TABLE client_events (
  event_id    uuid PRIMARY KEY,
  client_id   uuid NOT NULL,
  event_name  text NOT NULL,
  occurred_at timestamptz NOT NULL,
  tx          xid8 NOT NULL DEFAULT pg_current_xact_id(),
  batch_id    uuid, -- of batch.completed
  data        jsonb NOT NULL
);
CREATE INDEX client_events_client ON client_events (client_id, tx, event_id);
CREATE INDEX client_events_age ON client_events (occurred_at);

-- items is the answer to the request, accepted and refused ones in its order;
-- it never changes. The outcome is taken once.
CREATE TABLE batches (
  batch_id       uuid PRIMARY KEY,
  client_id      uuid NOT NULL,
  created_at     timestamptz NOT NULL,
  correlation_id text,
  language       text NOT NULL,
  request_id     text NOT NULL,
  items          jsonb NOT NULL,
  refused        int NOT NULL,
  status         text,
  completed_at   timestamptz,
  succeeded      int,
  failed         int,
  canceled       int,
  failures       jsonb,
  CONSTRAINT batches_status_known CHECK (status IN ('COMPLETED', 'COMPLETED_WITH_ERRORS', 'FAILED', 'CANCELLED')),
  CONSTRAINT batches_outcome_complete CHECK (num_nulls(status, completed_at, succeeded, failed, canceled, failures) IN (0, 6))
);
CREATE INDEX batches_open ON batches (batch_id) WHERE completed_at IS NULL;
CREATE INDEX batches_ended ON batches (completed_at) WHERE completed_at IS NOT NULL;

CREATE INDEX jobs_client ON jobs (client_id, job_id);
CREATE INDEX jobs_batch ON jobs (batch_id, job_id) WHERE batch_id IS NOT NULL;
CREATE INDEX jobs_batch_open ON jobs (batch_id) WHERE batch_id IS NOT NULL AND finished_at IS NULL;

-- An expired result loses its body, and keeps what it was and when it expired.
ALTER TABLE results ALTER COLUMN body DROP NOT NULL;
DROP INDEX results_expiry;
CREATE INDEX results_expiry ON results (expires_at) WHERE body IS NOT NULL;

-- A key stands for what the request made: a job or a batch.
ALTER TABLE idempotency_keys RENAME COLUMN job_id TO resource_id;
ALTER TABLE idempotency_keys ALTER COLUMN state DROP NOT NULL; -- of the job

-- Signs the cursors of lists, alike in all processes.
ALTER TABLE maintenance_state ADD COLUMN cursor_key bytea NOT NULL
  DEFAULT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

-- +goose Down
ALTER TABLE maintenance_state DROP COLUMN cursor_key;
DELETE FROM idempotency_keys WHERE state IS NULL;
ALTER TABLE idempotency_keys ALTER COLUMN state SET NOT NULL;
ALTER TABLE idempotency_keys RENAME COLUMN resource_id TO job_id;
DROP INDEX results_expiry;
DELETE FROM results WHERE body IS NULL;
CREATE INDEX results_expiry ON results (expires_at);
ALTER TABLE results ALTER COLUMN body SET NOT NULL;
DROP INDEX jobs_batch_open, jobs_batch, jobs_client;
DROP TABLE batches, client_events;
DROP INDEX events_client;
ALTER TABLE events DROP COLUMN client_id;
ALTER TABLE jobs DROP COLUMN event_tx;
