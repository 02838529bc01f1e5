-- +goose Up

-- Subscriptions of clients. A deleted or disabled webhook keeps its row, so that its deliveries can still be read. Secrets are encrypted
-- with the master key. proven_at is when the receiver at proven_url confirmed that it wants events. This proof is valid only while url
-- equals proven_url.
CREATE TABLE webhooks (
  webhook_id           uuid PRIMARY KEY,
  client_id            uuid NOT NULL,
  url                  text NOT NULL,
  proven_url           text,
  proven_at            timestamptz,
  events               text[] NOT NULL CONSTRAINT webhooks_events_given CHECK (cardinality(events) > 0),
  description          text NOT NULL,
  content_mode         text NOT NULL CONSTRAINT webhooks_content_mode_known CHECK (content_mode IN ('binary', 'structured')),
  secret               bytea NOT NULL,
  old_secrets          bytea[] NOT NULL DEFAULT '{}', -- the newest first
  old_secrets_until    timestamptz[] NOT NULL DEFAULT '{}',
  created_at           timestamptz NOT NULL,
  updated_at           timestamptz NOT NULL,
  deleted_at           timestamptz,
  disabled_at          timestamptz,
  disabled_reason      text CONSTRAINT webhooks_disabled_reason_known CHECK (disabled_reason IN ('OWNER', 'GONE', 'FAILING')),
  consecutive_failures int NOT NULL DEFAULT 0,
  failing_since        timestamptz,
  CONSTRAINT webhooks_disabled_has_reason CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL)),
  CONSTRAINT webhooks_old_secrets_end CHECK (cardinality(old_secrets) = cardinality(old_secrets_until)),
  CONSTRAINT webhooks_failing_since CHECK ((consecutive_failures > 0) = (failing_since IS NOT NULL))
);
CREATE INDEX webhooks_client ON webhooks (client_id, webhook_id) WHERE deleted_at IS NULL;
CREATE INDEX webhooks_enabled ON webhooks (client_id, webhook_id) WHERE deleted_at IS NULL AND disabled_at IS NULL;
CREATE INDEX webhooks_deleted ON webhooks (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE TRIGGER webhooks_of_a_client AFTER INSERT ON webhooks REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_erased();

-- A delivery sends one event to one endpoint. An endpoint is a webhook, or the origin of callback URLs (see callback_endpoint). Every
-- endpoint gets a fair share of the sending capacity. A delivery is waiting (PENDING, not claimed), being sent (PENDING, claimed), or
-- settled. `dispatch` is the number of claims so far. If `dispatch` has changed since a sender claimed the delivery, the sender has lost
-- the claim. The sender's writes then change nothing.
CREATE TABLE deliveries (
  delivery_id     uuid PRIMARY KEY,
  client_id       uuid NOT NULL,
  endpoint_id     uuid NOT NULL,
  webhook_id      uuid, -- null for a callback
  url             text, -- the callback's URL; null for a webhook
  job_id          uuid, -- null for an event without a job
  seq             int NOT NULL, -- 0 for an event without a job
  event_id        uuid NOT NULL,
  event_name      text NOT NULL,
  created_at      timestamptz NOT NULL,
  state           text NOT NULL DEFAULT 'PENDING' CONSTRAINT deliveries_state_known CHECK (state IN ('PENDING', 'DELIVERED', 'FAILED')),
  attempts        int NOT NULL DEFAULT 0,
  resent_at       int NOT NULL DEFAULT 0, -- attempts made before the last redelivery; they do not count towards the limit
  dispatch        int NOT NULL DEFAULT 0,
  next_attempt_at timestamptz,
  claimed_until   timestamptz,
  tried_at        timestamptz, -- when the last attempt was recorded (Postgres' clock); the wait for the next one begins then
  settled_at      timestamptz,
  last_status     int, -- HTTP
  last_error      text, -- class of the error
  last_reason     text, -- details of the error and the receiver's address; null if there are none
  traceparent     text, -- of the job's span when the event happened; null without a job or a trace
  CONSTRAINT deliveries_one_target CHECK ((webhook_id IS NULL) = (url IS NOT NULL)),
  CONSTRAINT deliveries_pending_has_time CHECK ((state = 'PENDING') = (next_attempt_at IS NOT NULL)),
  CONSTRAINT deliveries_settled_has_time CHECK ((state = 'PENDING') = (settled_at IS NULL)),
  CONSTRAINT deliveries_claimed_pending CHECK (claimed_until IS NULL OR state = 'PENDING'),
  CONSTRAINT deliveries_delivered_no_error CHECK (state <> 'DELIVERED' OR last_error IS NULL),
  CONSTRAINT deliveries_failed_has_error CHECK (state <> 'FAILED' OR last_error IS NOT NULL)
)
-- Each row is written a few times and then only read. Every write leaves a dead index entry. By default, a vacuum would remove dead entries
-- too late, after a fifth of the table has changed.
WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE INDEX deliveries_waiting ON deliveries (client_id, endpoint_id, next_attempt_at)
  WHERE state = 'PENDING' AND claimed_until IS NULL;
CREATE INDEX deliveries_claimed ON deliveries (claimed_until) WHERE claimed_until IS NOT NULL;
CREATE INDEX deliveries_webhook ON deliveries (webhook_id, delivery_id) WHERE webhook_id IS NOT NULL;
CREATE INDEX deliveries_job ON deliveries (job_id, delivery_id) WHERE job_id IS NOT NULL;
CREATE INDEX deliveries_failed ON deliveries (webhook_id, delivery_id) WHERE state = 'FAILED' AND webhook_id IS NOT NULL;
-- A row has a webhook_id exactly if its url is null. The condition names url, so that the planner uses deliveries_webhook to search by
-- webhook alone.
CREATE UNIQUE INDEX deliveries_once ON deliveries (event_id, webhook_id) WHERE url IS NULL;

CREATE TABLE delivery_attempts (
  delivery_id     uuid NOT NULL,
  number          int NOT NULL,
  started_at      timestamptz NOT NULL,
  duration_ms     bigint NOT NULL,
  error           text, -- class of the error; null when it was delivered
  reason          text, -- as deliveries.last_reason
  status          int,
  response_header json, -- not jsonb, which refuses some values that a receiver may send
  response_body   bytea, -- its beginning
  body_truncated  boolean NOT NULL DEFAULT false,
  PRIMARY KEY (delivery_id, number)
);

-- Keys that sign deliveries (RFC 9421). The private part is encrypted with the master key.
CREATE TABLE signing_keys (
  kid         text PRIMARY KEY, -- RFC 7638 thumbprint
  public_key  bytea NOT NULL CONSTRAINT signing_keys_ed25519 CHECK (length(public_key) = 32),
  private_key bytea NOT NULL,
  created_at  timestamptz NOT NULL,
  signs_from  timestamptz NOT NULL,
  retires_at  timestamptz
);

-- Writes deliveries of new events for the client's webhooks. Also writes deliveries of state changes and emitted events for the job's
-- callback. OFFSET 0 makes the planner look each client up in the index.
-- +goose StatementBegin
CREATE FUNCTION deliver_events() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  clients uuid[];
  callbacks boolean;
BEGIN
  SELECT array_agg(DISTINCT client_id),
    bool_or(called_back IS NOT FALSE AND (next_state IS NOT NULL OR event_name = 'event.emitted'))
    INTO clients, callbacks FROM added;
  IF EXISTS (SELECT FROM webhooks WHERE client_id = ANY (clients) AND deleted_at IS NULL AND disabled_at IS NULL) THEN
    INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, url, job_id, seq, event_id, event_name,
      created_at, next_attempt_at, traceparent)
    SELECT uuid7(e.occurred_at), e.client_id, w.webhook_id, w.webhook_id, NULL, e.job_id, e.seq, e.event_id, e.event_name,
      e.occurred_at, e.occurred_at, (SELECT traceparent FROM jobs WHERE job_id = e.job_id)
    FROM added e CROSS JOIN LATERAL (
      SELECT webhook_id, events FROM webhooks WHERE client_id = e.client_id AND deleted_at IS NULL AND disabled_at IS NULL OFFSET 0) w
    WHERE w.events && ARRAY['*', split_part(e.event_name, '.', 1) || '.*', e.event_name];
  END IF;
  IF callbacks THEN
    INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, url, job_id, seq, event_id, event_name,
      created_at, next_attempt_at, traceparent)
    SELECT uuid7(e.occurred_at), e.client_id, callback_endpoint(e.client_id, j.callback), NULL, j.callback,
      e.job_id, e.seq, e.event_id, e.event_name, e.occurred_at, e.occurred_at, j.traceparent
    FROM added e CROSS JOIN LATERAL (SELECT callback, traceparent FROM jobs WHERE job_id = e.job_id OFFSET 0) j
    WHERE e.called_back IS NOT FALSE AND j.callback IS NOT NULL AND (e.next_state IS NOT NULL OR e.event_name = 'event.emitted');
  END IF;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER events_delivered AFTER INSERT ON events REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION deliver_events();

-- Writes the deliveries of events without a job. Skips webhook.test: the statement that writes this event also writes its delivery.
-- +goose StatementBegin
CREATE FUNCTION deliver_client_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, seq, event_id, event_name, created_at, next_attempt_at)
  SELECT uuid7(e.occurred_at), e.client_id, w.webhook_id, w.webhook_id, 0, e.event_id, e.event_name, e.occurred_at, e.occurred_at
  FROM added e CROSS JOIN LATERAL (
    SELECT webhook_id, events FROM webhooks WHERE client_id = e.client_id AND deleted_at IS NULL AND disabled_at IS NULL OFFSET 0) w
  WHERE e.event_name <> 'webhook.test' AND w.webhook_id IS DISTINCT FROM e.webhook_id
    AND w.events && ARRAY['*', split_part(e.event_name, '.', 1) || '.*', e.event_name];
  RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER client_events_delivered AFTER INSERT ON client_events REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION deliver_client_events();

-- A job's removal also removes its deliveries and their attempts. A DELETE that waits for locks does not see deliveries that are written
-- during the wait. The triggers run after the wait, so they see all deliveries. Deliveries are locked in order of their ids.
-- +goose StatementBegin
CREATE FUNCTION remove_deliveries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM deliveries WHERE job_id = ANY (ARRAY(SELECT job_id FROM removed)) ORDER BY delivery_id FOR UPDATE;
  DELETE FROM deliveries WHERE job_id = ANY (ARRAY(SELECT job_id FROM removed));
  RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER jobs_undelivered AFTER DELETE ON jobs REFERENCING OLD TABLE AS removed
  FOR EACH STATEMENT EXECUTE FUNCTION remove_deliveries();
-- +goose StatementBegin
CREATE FUNCTION remove_attempts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM delivery_attempts WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM removed));
  RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER deliveries_forgotten AFTER DELETE ON deliveries REFERENCING OLD TABLE AS removed
  FOR EACH STATEMENT EXECUTE FUNCTION remove_attempts();

-- +goose Down
DROP TRIGGER jobs_undelivered ON jobs;
DROP TRIGGER events_delivered ON events;
DROP TRIGGER client_events_delivered ON client_events;
DROP TABLE signing_keys, delivery_attempts, deliveries, webhooks;
DROP FUNCTION remove_attempts(), remove_deliveries(), deliver_client_events(), deliver_events();
