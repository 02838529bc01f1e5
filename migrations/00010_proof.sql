-- +goose NO TRANSACTION
-- +goose Up

-- When the receiver of a webhook said that it wants events, and at which URL: a proof is of that URL, so it counts as long as the
-- webhook still has it. Null, as in the rows of programs that do not know the columns, is no proof; such a program may change the
-- URL of a webhook that has one.
ALTER TABLE webhooks ADD COLUMN IF NOT EXISTS proven_at timestamptz, ADD COLUMN IF NOT EXISTS proven_url text;

-- +goose Down
ALTER TABLE webhooks DROP COLUMN IF EXISTS proven_at, DROP COLUMN IF EXISTS proven_url;
