-- +goose NO TRANSACTION
-- +goose Up

-- Each statement may be repeated, and none holds a lock of another one's table while it waits.

-- Clients that are erased with all that belongs to them. A row stays for ever: it is the proof, and what keeps anything new from
-- being stored for the client. since is the transaction in which the step began; position, position_job: behind them the step
-- goes on. removed and remaining are numbers of rows by table.
CREATE TABLE IF NOT EXISTS erasures (
  erasure_id    uuid PRIMARY KEY,
  client_id     uuid NOT NULL CONSTRAINT erasures_one_of_a_client UNIQUE,
  operator      text NOT NULL,
  reason        text NOT NULL,
  request_id    text NOT NULL,
  created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  started_at    timestamptz,
  finished_at   timestamptz,
  step          text NOT NULL DEFAULT 'stop',
  since         xid8 NOT NULL DEFAULT pg_current_xact_id(),
  position      uuid,
  position_job  uuid,
  removed       jsonb NOT NULL DEFAULT '{}',
  remaining     jsonb NOT NULL DEFAULT '{}',
  record        text, -- canonical JSON
  record_sha256 bytea,
  CONSTRAINT erasures_done_with_proof CHECK (num_nulls(finished_at, record, record_sha256) IN (0, 3)),
  CONSTRAINT erasures_hash_is_sha256 CHECK (length(record_sha256) = 32),
  CONSTRAINT erasures_done_was_begun CHECK (finished_at IS NULL OR started_at IS NOT NULL)
);
CREATE INDEX IF NOT EXISTS erasures_open ON erasures (erasure_id) WHERE finished_at IS NULL;

-- Refuses new rows of clients that are erased. Each statement in here sees what was committed before it, and the transaction has
-- an id: whoever waits for all transactions that were there when a client's erasure was committed has seen its last row.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION refuse_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM erasures WHERE client_id = ANY (ARRAY(SELECT client_id FROM added))) THEN
    RAISE EXCEPTION 'the client is erased' USING ERRCODE = '23000', CONSTRAINT = 'client_not_erased';
  END IF;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE OR REPLACE TRIGGER api_keys_of_a_client AFTER INSERT ON api_keys REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_erased();
CREATE OR REPLACE TRIGGER webhooks_of_a_client AFTER INSERT ON webhooks REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_erased();
CREATE OR REPLACE TRIGGER batches_of_a_client AFTER INSERT ON batches REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_erased();
CREATE OR REPLACE TRIGGER bulk_operations_of_a_client AFTER INSERT ON bulk_operations REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_erased();

-- As before, and jobs of clients that are erased are refused with their first event: they have no trigger of their own. Their
-- other events, which end what is under way, go to nobody.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION deliver_events() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  clients uuid[];
  erased uuid[];
  callbacks boolean;
BEGIN
  SELECT array_agg(DISTINCT client_id),
    bool_or(called_back IS NOT FALSE AND (next_state IS NOT NULL OR event_name = 'event.emitted'))
    INTO clients, callbacks FROM added;
  SELECT coalesce(array_agg(client_id), '{}') INTO erased FROM erasures WHERE client_id = ANY (clients);
  IF cardinality(erased) > 0 AND EXISTS (SELECT FROM added WHERE client_id = ANY (erased) AND next_state = 'CREATED') THEN
    RAISE EXCEPTION 'the client is erased' USING ERRCODE = '23000', CONSTRAINT = 'client_not_erased';
  END IF;
  IF EXISTS (SELECT FROM webhooks WHERE client_id = ANY (clients) AND deleted_at IS NULL AND disabled_at IS NULL) THEN
    INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, url, job_id, seq, event_id, event_name, created_at, next_attempt_at, traceparent)
    SELECT uuid7(e.occurred_at), e.client_id, w.webhook_id, w.webhook_id, NULL, e.job_id, e.seq, e.event_id, e.event_name, e.occurred_at, e.occurred_at,
      (SELECT traceparent FROM jobs WHERE job_id = e.job_id)
    FROM added e CROSS JOIN LATERAL (
      SELECT webhook_id, events FROM webhooks WHERE client_id = e.client_id AND deleted_at IS NULL AND disabled_at IS NULL OFFSET 0) w
    WHERE w.events && ARRAY['*', split_part(e.event_name, '.', 1) || '.*', e.event_name] AND e.client_id <> ALL (erased);
  END IF;
  IF callbacks THEN
    INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, url, job_id, seq, event_id, event_name, created_at, next_attempt_at, traceparent)
    SELECT uuid7(e.occurred_at), e.client_id, callback_endpoint(e.client_id, j.callback), NULL, j.callback,
      e.job_id, e.seq, e.event_id, e.event_name, e.occurred_at, e.occurred_at, j.traceparent
    FROM added e CROSS JOIN LATERAL (SELECT callback, traceparent FROM jobs WHERE job_id = e.job_id OFFSET 0) j
    WHERE e.called_back IS NOT FALSE AND j.callback IS NOT NULL AND (e.next_state IS NOT NULL OR e.event_name = 'event.emitted')
      AND e.client_id <> ALL (erased);
  END IF;
  RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION deliver_events() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  clients uuid[];
  callbacks boolean;
BEGIN
  SELECT array_agg(DISTINCT client_id),
    bool_or(called_back IS NOT FALSE AND (next_state IS NOT NULL OR event_name = 'event.emitted'))
    INTO clients, callbacks FROM added;
  IF EXISTS (SELECT FROM webhooks WHERE client_id = ANY (clients) AND deleted_at IS NULL AND disabled_at IS NULL) THEN
    INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, url, job_id, seq, event_id, event_name, created_at, next_attempt_at, traceparent)
    SELECT uuid7(e.occurred_at), e.client_id, w.webhook_id, w.webhook_id, NULL, e.job_id, e.seq, e.event_id, e.event_name, e.occurred_at, e.occurred_at,
      (SELECT traceparent FROM jobs WHERE job_id = e.job_id)
    FROM added e CROSS JOIN LATERAL (
      SELECT webhook_id, events FROM webhooks WHERE client_id = e.client_id AND deleted_at IS NULL AND disabled_at IS NULL OFFSET 0) w
    WHERE w.events && ARRAY['*', split_part(e.event_name, '.', 1) || '.*', e.event_name];
  END IF;
  IF callbacks THEN
    INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, url, job_id, seq, event_id, event_name, created_at, next_attempt_at, traceparent)
    SELECT uuid7(e.occurred_at), e.client_id, callback_endpoint(e.client_id, j.callback), NULL, j.callback,
      e.job_id, e.seq, e.event_id, e.event_name, e.occurred_at, e.occurred_at, j.traceparent
    FROM added e CROSS JOIN LATERAL (SELECT callback, traceparent FROM jobs WHERE job_id = e.job_id OFFSET 0) j
    WHERE e.called_back IS NOT FALSE AND j.callback IS NOT NULL AND (e.next_state IS NOT NULL OR e.event_name = 'event.emitted');
  END IF;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS bulk_operations_of_a_client ON bulk_operations;
DROP TRIGGER IF EXISTS batches_of_a_client ON batches;
DROP TRIGGER IF EXISTS webhooks_of_a_client ON webhooks;
DROP TRIGGER IF EXISTS api_keys_of_a_client ON api_keys;
DROP FUNCTION IF EXISTS refuse_erased();
-- Writers of events that are at work may have the function of before in hand, which reads the table: they are waited for.
-- +goose StatementBegin
DO $$
BEGIN
  LOCK TABLE events IN SHARE ROW EXCLUSIVE MODE;
  DROP TABLE IF EXISTS erasures;
END
$$;
-- +goose StatementEnd
