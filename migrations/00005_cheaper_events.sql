-- +goose Up

-- Whether the job of an event has a callback. Null, as programs write it that do
-- not know the column: nobody looked, so the trigger does.
ALTER TABLE events ADD COLUMN called_back boolean;

-- As before, but a statement whose events nobody gets, which is most of them,
-- is done after one look at its clients and none at its jobs.
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

-- +goose Down

-- Writers of events that are at work may have the function above in hand: they
-- are waited for before the column goes.
LOCK TABLE events IN SHARE ROW EXCLUSIVE MODE;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION deliver_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, url, job_id, seq, event_id, event_name, created_at, next_attempt_at, traceparent)
  SELECT uuid7(e.occurred_at), e.client_id, w.webhook_id, w.webhook_id, NULL, e.job_id, e.seq, e.event_id, e.event_name, e.occurred_at, e.occurred_at,
    (SELECT traceparent FROM jobs WHERE job_id = e.job_id)
  FROM added e CROSS JOIN LATERAL (
    SELECT webhook_id, events FROM webhooks WHERE client_id = e.client_id AND deleted_at IS NULL AND disabled_at IS NULL OFFSET 0) w
  WHERE w.events && ARRAY['*', split_part(e.event_name, '.', 1) || '.*', e.event_name]
  UNION ALL
  SELECT uuid7(e.occurred_at), e.client_id, callback_endpoint(e.client_id, j.callback), NULL, j.callback,
    e.job_id, e.seq, e.event_id, e.event_name, e.occurred_at, e.occurred_at, j.traceparent
  FROM added e CROSS JOIN LATERAL (SELECT callback, traceparent FROM jobs WHERE job_id = e.job_id OFFSET 0) j
  WHERE j.callback IS NOT NULL AND (e.next_state IS NOT NULL OR e.event_name = 'event.emitted');
  RETURN NULL;
END
$$;
-- +goose StatementEnd
ALTER TABLE events DROP COLUMN called_back;
