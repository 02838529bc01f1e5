-- +goose Up

CREATE TABLE clients (
  client_id  uuid PRIMARY KEY,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  name       text CONSTRAINT clients_name_length CHECK (length(name) BETWEEN 1 AND 100) -- given by operators
);

-- Erasures of clients with all their data. Rows are never removed: they prove the erasure, and refuse_erased needs them. The column `since`
-- has the id of the transaction in which the current step began. The step continues after the row that `position` and `position_job` name.
-- The columns `removed` and `remaining` have the number of rows for each table.
CREATE TABLE erasures (
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
CREATE INDEX erasures_open ON erasures (erasure_id) WHERE finished_at IS NULL;

-- Refuses new rows of erased clients. Submissions do not need the check: they need an API key, and the transaction that stores the erasure
-- revokes the client's keys. The check sees every committed erasure. Only transactions that were already running at the erasure's commit
-- can still add rows.
-- +goose StatementBegin
CREATE FUNCTION refuse_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM erasures WHERE client_id = ANY (ARRAY(SELECT client_id FROM added))) THEN
    RAISE EXCEPTION 'the client is erased' USING ERRCODE = '23000', CONSTRAINT = 'client_not_erased';
  END IF;
  RETURN NULL;
END
$$;
-- +goose StatementEnd

-- used_at is when a key first authenticated a request. made_by is the API key that requested this key. It is null if an operator or a
-- registration created the key.
CREATE TABLE api_keys (
  key_id      text PRIMARY KEY,
  client_id   uuid NOT NULL REFERENCES clients,
  secret_hash bytea NOT NULL CONSTRAINT api_keys_hash_is_sha256 CHECK (length(secret_hash) = 32),
  scope       text NOT NULL DEFAULT 'all' CONSTRAINT api_keys_scope_known CHECK (scope IN ('read', 'submit', 'all')),
  issued_by   text NOT NULL CONSTRAINT api_keys_issue_known CHECK (issued_by IN ('CREATED', 'RENEWED', 'ROTATED')),
  made_by     text,
  created_at  timestamptz NOT NULL,
  expires_at  timestamptz NOT NULL,
  used_at     timestamptz,
  revoked_at  timestamptz,
  replaced_by text
);
CREATE INDEX api_keys_client ON api_keys (client_id);
CREATE TRIGGER api_keys_of_a_client AFTER INSERT ON api_keys REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_erased();

-- An idempotency key with the result of its first request: a job (with its state), a batch, or a response without secrets. A repeated
-- request gets its response from this row.
CREATE TABLE idempotency_keys (
  client_id     uuid NOT NULL,
  endpoint      text NOT NULL,
  key           text NOT NULL,
  request_hash  bytea NOT NULL,
  resource_id   uuid,
  state         text,
  answer_status smallint,
  answer_header jsonb,
  answer_body   bytea,
  created_at    timestamptz NOT NULL,
  expires_at    timestamptz NOT NULL,
  PRIMARY KEY (client_id, endpoint, key),
  CONSTRAINT idempotency_keys_stand_for_something CHECK (resource_id IS NOT NULL OR answer_status IS NOT NULL)
);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

-- +goose Down
DROP TABLE idempotency_keys, api_keys, erasures, clients;
DROP FUNCTION refuse_erased();
