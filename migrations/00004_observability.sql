-- +goose Up

-- A delivery goes on from the span that its job had when the event happened, as
-- in W3C Trace Context; null for an event of no job, and of one that is not
-- traced. No other table is locked: whoever has this one locked waits for
-- nothing that is locked here. The function of before fits the table as well,
-- and so do programs that do not know the column.
ALTER TABLE deliveries ADD COLUMN traceparent text;

-- As before, with the job's traceparent: it is looked up, by primary key, for
-- events that somebody gets.
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

-- +goose Down

-- Writers of events that are at work may have the function above in hand: they
-- are waited for before the column goes.
LOCK TABLE events IN SHARE ROW EXCLUSIVE MODE;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION deliver_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, url, job_id, seq, event_id, event_name, created_at, next_attempt_at)
  SELECT uuid7(e.occurred_at), e.client_id, w.webhook_id, w.webhook_id, NULL, e.job_id, e.seq, e.event_id, e.event_name, e.occurred_at, e.occurred_at
  FROM added e CROSS JOIN LATERAL (
    SELECT webhook_id, events FROM webhooks WHERE client_id = e.client_id AND deleted_at IS NULL AND disabled_at IS NULL OFFSET 0) w
  WHERE w.events && ARRAY['*', split_part(e.event_name, '.', 1) || '.*', e.event_name]
  UNION ALL
  SELECT uuid7(e.occurred_at), e.client_id, callback_endpoint(e.client_id, j.callback), NULL, j.callback,
    e.job_id, e.seq, e.event_id, e.event_name, e.occurred_at, e.occurred_at
  FROM added e CROSS JOIN LATERAL (SELECT callback FROM jobs WHERE job_id = e.job_id OFFSET 0) j
  WHERE j.callback IS NOT NULL AND (e.next_state IS NOT NULL OR e.event_name = 'event.emitted');
  RETURN NULL;
END
$$;
-- +goose StatementEnd
ALTER TABLE deliveries DROP COLUMN traceparent;
