-- +goose Up

-- What clients of a test bed have asked to be done to their own traffic: the rules of each in their order, with how many
-- requests each was about, and on how many it had its effect. Only a service with FORGERUN_TESTBED reads it.
CREATE TABLE testbed_faults (
  client_id uuid NOT NULL,
  position  int NOT NULL,
  rule_id   uuid NOT NULL,
  operation text, -- null: all
  from_at   timestamptz,
  until_at  timestamptz,
  rule      json NOT NULL,
  seed      bigint NOT NULL,
  seen      bigint NOT NULL DEFAULT 0,
  applied   bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (client_id, position),
  CONSTRAINT testbed_faults_counted CHECK (applied BETWEEN 0 AND seen)
) WITH (fillfactor = 50);
CREATE TRIGGER testbed_faults_of_a_client AFTER INSERT ON testbed_faults REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_erased();

-- +goose Down
DROP TABLE testbed_faults;
