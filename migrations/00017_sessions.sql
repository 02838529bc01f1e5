-- +goose Up

-- Times in which the traffic of a client of a test bed is recorded and judged; a client has one open at most. Only a service with
-- FORGERUN_TESTBED reads these tables.
CREATE TABLE testbed_sessions (
  client_id  uuid NOT NULL,
  session_id uuid NOT NULL,
  profile    text NOT NULL,
  seed       bigint NOT NULL,
  rules      text[] NOT NULL,
  exchanges  int NOT NULL DEFAULT 0, -- that there were, also those beyond what is kept
  created_at timestamptz NOT NULL,
  ended_at   timestamptz,
  PRIMARY KEY (client_id, session_id),
  CONSTRAINT testbed_sessions_end_after_beginning CHECK (ended_at >= created_at)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX testbed_sessions_open ON testbed_sessions (client_id) WHERE ended_at IS NULL;
CREATE TRIGGER testbed_sessions_of_a_client AFTER INSERT ON testbed_sessions REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_erased();

-- The requests of a client in a session, with what it got. An erasure removes sessions first: nothing is recorded without one.
CREATE TABLE testbed_exchanges (
  client_id  uuid NOT NULL,
  session_id uuid NOT NULL,
  number     int NOT NULL,
  exchange   json NOT NULL,
  PRIMARY KEY (client_id, session_id, number)
);

-- +goose Down
DROP TABLE testbed_exchanges;
DROP TABLE testbed_sessions;
