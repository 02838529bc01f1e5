-- +goose Up

-- What operators did through the operator API: written before it is done, and completed afterwards. An entry without a status
-- is of a process that died in between: it may have been done. Ids are those of the time, so that the newest are found by key.
CREATE TABLE audit (
  audit_id    uuid PRIMARY KEY,
  at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  operator    text NOT NULL,
  action      text NOT NULL,
  target_type text NOT NULL,
  target_id   text,
  request_id  text NOT NULL,
  status      int, -- HTTP
  detail      jsonb NOT NULL
);

-- +goose Down
DROP TABLE audit;
