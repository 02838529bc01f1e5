-- +goose Up

-- Actions of operators through the operator API. An entry is written before the action and completed afterwards. If the process dies in
-- between, status stays null: the action may or may not have happened. Ids are ordered by time, so the newest entries are found by primary
-- key.
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

-- Pauses by operators. Every claim of jobs reads this table, so a committed pause applies to all processes. The table has few rows.
CREATE TABLE pauses (
  pause_id   uuid PRIMARY KEY,
  scope      text NOT NULL,
  target     text NOT NULL, -- the work kind, or the id of the client or worker; '' for all
  mode       text NOT NULL,
  operator   text NOT NULL,
  reason     text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  CONSTRAINT pauses_scope_known CHECK (scope IN ('ALL', 'KIND', 'CLIENT', 'WORKER')),
  CONSTRAINT pauses_mode_known CHECK (mode IN ('PAUSE', 'DRAIN') AND (scope <> 'WORKER' OR mode = 'DRAIN')),
  CONSTRAINT pauses_target_named CHECK ((target = '') = (scope = 'ALL')),
  CONSTRAINT pauses_once UNIQUE (scope, target, mode)
);

-- Console sessions that ended by a logout. A row stays until the session's cookies have expired.
CREATE TABLE ended_sessions (
  session_id text PRIMARY KEY,
  expires_at timestamptz NOT NULL
);
CREATE INDEX ended_sessions_expires ON ended_sessions (expires_at);

-- +goose Down
DROP TABLE ended_sessions, pauses, audit;
