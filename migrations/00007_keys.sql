-- +goose Up

-- What a request with an idempotency key was answered, without secrets. Null in the
-- rows of submissions, which are answered from the job or batch that they name, and
-- in those of programs that do not know the columns.
ALTER TABLE idempotency_keys
  ALTER COLUMN resource_id DROP NOT NULL,
  ADD COLUMN answer_status smallint,
  ADD COLUMN answer_header jsonb,
  ADD COLUMN answer_body bytea,
  ADD CONSTRAINT idempotency_keys_stand_for_something CHECK (resource_id IS NOT NULL OR answer_status IS NOT NULL) NOT VALID;

-- used_at is when a key first authenticated a request. Keys that are there already
-- count as used: nobody knows. issued_by says by what action a key was made; null,
-- as programs write it that do not know the column, is treated like a rotation.
ALTER TABLE api_keys
  ADD COLUMN used_at timestamptz DEFAULT now(),
  ADD COLUMN issued_by text,
  ADD CONSTRAINT api_keys_issue_known CHECK (issued_by IN ('CREATED', 'RENEWED', 'ROTATED')) NOT VALID;
ALTER TABLE api_keys ALTER COLUMN used_at DROP DEFAULT;

-- +goose Down
ALTER TABLE api_keys DROP COLUMN issued_by, DROP COLUMN used_at;
DELETE FROM idempotency_keys WHERE answer_status IS NOT NULL AND endpoint <> 'webhooks';
DELETE FROM idempotency_keys WHERE resource_id IS NULL;
ALTER TABLE idempotency_keys
  DROP CONSTRAINT idempotency_keys_stand_for_something,
  DROP COLUMN answer_body, DROP COLUMN answer_header, DROP COLUMN answer_status,
  ALTER COLUMN resource_id SET NOT NULL;
