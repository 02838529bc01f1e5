-- +goose Up

-- A client's stream of events is ordered by (tx, job_id, seq). tx is the larger of the transaction's id and the tx of the job's previous
-- event (jobs.event_tx). So the stream never shows a job's events out of order.
CREATE TABLE events (
  job_id      uuid NOT NULL, -- no foreign key: a job is inserted with its first event, and deleted with all its events
  client_id   uuid NOT NULL,
  seq         int NOT NULL CONSTRAINT events_seq_positive CHECK (seq > 0),
  event_id    uuid NOT NULL,
  event_name  text NOT NULL,
  prev_state  text,
  next_state  text,
  attempt     int NOT NULL,
  occurred_at timestamptz NOT NULL,
  tx          xid8 NOT NULL DEFAULT pg_current_xact_id(),
  called_back boolean, -- whether the job has a callback; if null, deliver_events looks it up in jobs
  data        jsonb NOT NULL,
  PRIMARY KEY (job_id, seq),
  CONSTRAINT events_transition_allowed CHECK (CASE
    WHEN next_state IS NULL THEN prev_state IS NULL
    WHEN prev_state IS NULL THEN next_state = 'CREATED' AND seq = 1
    ELSE prev_state || '>' || next_state IN (
      'CREATED>QUEUED', 'CREATED>CANCELED', 'QUEUED>ASSIGNED', 'QUEUED>CANCELED',
      'ASSIGNED>RUNNING', 'ASSIGNED>CANCELED', 'RUNNING>SUCCEEDED', 'RUNNING>FAILED',
      'RUNNING>CANCELED', 'FAILED>QUEUED')
      OR (prev_state = 'ASSIGNED' AND next_state = 'QUEUED' AND event_name = 'job.lease_expired')
    END)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE INDEX events_client ON events (client_id, tx, job_id, seq);

-- Events without a job.
CREATE TABLE client_events (
  event_id    uuid PRIMARY KEY,
  client_id   uuid NOT NULL,
  event_name  text NOT NULL,
  occurred_at timestamptz NOT NULL,
  tx          xid8 NOT NULL DEFAULT pg_current_xact_id(),
  batch_id    uuid, -- the batch of a batch.completed event
  webhook_id  uuid, -- the webhook of a webhook.test or webhook.disabled event
  data        jsonb NOT NULL
);
CREATE INDEX client_events_client ON client_events (client_id, tx, event_id);
CREATE INDEX client_events_age ON client_events (occurred_at);

-- +goose Down
DROP TABLE client_events, events;
