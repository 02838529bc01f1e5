-- +goose Up

-- Fault rules that clients of a test bed have set for their own traffic. `seen` is the number of requests that matched the rule. `applied`
-- is the number of requests that got the fault. Only a service with FORGERUN_TESTBED reads the table.
CREATE TABLE testbed_faults (
  client_id  uuid NOT NULL,
  session_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000', -- the rule's session if the session has a label, otherwise zero
  position   int NOT NULL,
  rule_id    uuid NOT NULL,
  operation  text, -- null for all
  from_at    timestamptz,
  until_at   timestamptz,
  nth        bigint, -- number of the matching request that gets the fault; null if the rule may affect several requests
  rule       json NOT NULL,
  seed       bigint NOT NULL,
  seen       bigint NOT NULL DEFAULT 0,
  applied    bigint NOT NULL DEFAULT 0,
  first_at   timestamptz, -- when the rule first applied
  subject    text, -- set by the first affected request of a rule with "same"; the rule then ignores requests with other subjects
  PRIMARY KEY (client_id, session_id, position),
  CONSTRAINT testbed_faults_counted CHECK (applied BETWEEN 0 AND seen)
) WITH (fillfactor = 50);
CREATE TRIGGER testbed_faults_of_a_client AFTER INSERT ON testbed_faults REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_erased();

-- Sessions that record and judge the traffic of a test bed's client. A client has at most one open session for each label, and at most one
-- without a label. Only a service with FORGERUN_TESTBED reads these tables.
CREATE TABLE testbed_sessions (
  client_id  uuid NOT NULL,
  session_id uuid NOT NULL,
  label      text NOT NULL DEFAULT '',
  profile    text NOT NULL,
  seed       bigint NOT NULL,
  rules      text[] NOT NULL,
  exchanges  int NOT NULL DEFAULT 0, -- exchanges beyond the limit are counted but not stored
  bytes      bigint NOT NULL DEFAULT 0, -- total size of all counted exchanges
  created_at timestamptz NOT NULL,
  ended_at   timestamptz,
  PRIMARY KEY (client_id, session_id),
  CONSTRAINT testbed_sessions_end_after_beginning CHECK (ended_at >= created_at)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX testbed_sessions_open ON testbed_sessions (client_id, label) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX testbed_sessions_latest ON testbed_sessions (session_id); -- operators list sessions of all clients, the latest first
CREATE TRIGGER testbed_sessions_of_a_client AFTER INSERT ON testbed_sessions REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_erased();

-- The requests of a client in a session, with the responses. Exchanges are recorded only in existing sessions. An erasure therefore removes
-- the sessions first.
CREATE TABLE testbed_exchanges (
  client_id  uuid NOT NULL,
  session_id uuid NOT NULL,
  number     int NOT NULL,
  exchange   json NOT NULL,
  PRIMARY KEY (client_id, session_id, number)
);

-- Maps requests to their sessions. Requests of a session without a label have no row. Jobs and batches belong to the session of the
-- request that created them.
CREATE TABLE testbed_requests (
  client_id  uuid NOT NULL,
  request_id text NOT NULL,
  session_id uuid NOT NULL,
  PRIMARY KEY (client_id, request_id)
);
CREATE INDEX testbed_requests_session ON testbed_requests (client_id, session_id);

-- The clock of a test bed. Each row is a move of the clock, and the latest one applies. The service's time was service_at when Postgres'
-- clock showed real_at. Since then the service's time runs at `rate`, or stands still if frozen. Without a row, the service uses Postgres'
-- clock.
CREATE TABLE testbed_clock (
  number     bigint PRIMARY KEY,
  real_at    timestamptz NOT NULL,
  service_at timestamptz NOT NULL,
  rate       float8 NOT NULL,
  frozen     boolean NOT NULL,
  CONSTRAINT testbed_clock_rate CHECK (rate BETWEEN 0.1 AND 3600)
);

-- Connections of a test bed search this schema before pg_catalog, so they use the functions below. Moving the clock replaces these
-- functions by functions with constants. Postgres inlines the new functions, and makes new plans for cached statements. Other connections
-- search pg_catalog first, so they use the functions of Postgres.
CREATE FUNCTION now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
  AS 'SELECT pg_catalog.now()';
CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
  AS 'SELECT pg_catalog.clock_timestamp()';

-- The time to record for an event. `due` is when the event was due, or null. The result is `due` if the clock jumped past `due`, or if the
-- clock runs faster or slower than Postgres' clock. Otherwise the result is the current time.
CREATE FUNCTION testbed_moment(due timestamptz) RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
  AS 'SELECT pg_catalog.clock_timestamp()';

-- Moves the clock forward by `jump`. It also sets the clock's rate to new_rate, or freezes the clock. The move takes effect `wait` after
-- the call, and must be committed by then. Until the commit, statements use the old functions. A late commit could set the clock back,
-- because the old functions may already have returned later times. One call does everything, so that the commit follows soon after the
-- clock is read.
-- +goose StatementBegin
CREATE FUNCTION testbed_move(next bigint, jump interval, wait interval, old_rate float8, new_rate float8, new_frozen boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  own text := (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'testbed_clock'::regclass);
  effective float8 := CASE WHEN new_frozen THEN 0 ELSE new_rate END;
  real_then timestamptz := pg_catalog.clock_timestamp() + wait;
  service_then timestamptz := clock_timestamp() + wait * old_rate + jump;
  passed text := format('(pg_catalog.%%s() - timestamptz %L) * float8 %L', real_then, effective);
  shown text := CASE effective WHEN 0 THEN '' WHEN 1 THEN format(' + (pg_catalog.%%s() - timestamptz %L)', real_then)
    ELSE ' + ' || passed END;
  replaced text := 'CREATE OR REPLACE FUNCTION ' || own || '.%s RETURNS timestamptz LANGUAGE sql %s PARALLEL SAFE AS %L';
  body text;
BEGIN
  INSERT INTO testbed_clock VALUES (next, real_then, service_then, new_rate, new_frozen);
  body := format('SELECT timestamptz %L', service_then) || format(shown, 'now');
  EXECUTE format(replaced, 'now()', 'STABLE', body);
  body := format('timestamptz %L', service_then) || format(shown, 'clock_timestamp');
  EXECUTE format(replaced, 'clock_timestamp()', 'VOLATILE', 'SELECT ' || body);
  EXECUTE format(replaced, 'testbed_moment(due timestamptz)', 'VOLATILE',
    format('SELECT CASE WHEN due <= timestamptz %L THEN least(due, ', CASE effective WHEN 1 THEN service_then ELSE 'infinity' END)
    || body || ') ELSE ' || body || ' END');
END
$$;
-- +goose StatementEnd

-- +goose Down
-- Without a schema, now() and clock_timestamp() would mean the functions of pg_catalog.
-- +goose StatementBegin
DO $$
DECLARE own text := (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'testbed_clock'::regclass);
BEGIN
  EXECUTE format('DROP FUNCTION %1$s.now(), %1$s.clock_timestamp()', own);
END
$$;
-- +goose StatementEnd
DROP FUNCTION testbed_moment(timestamptz), testbed_move(bigint, interval, interval, float8, float8, boolean);
DROP TABLE testbed_clock, testbed_requests, testbed_exchanges, testbed_sessions, testbed_faults;
