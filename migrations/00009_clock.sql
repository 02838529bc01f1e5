-- +goose NO TRANSACTION
-- +goose Up

-- When the last attempt was recorded, by Postgres' clock; null in what programs wrote that do not know the column. From it
-- on the wait for the next attempt counts.
ALTER TABLE deliveries ADD COLUMN IF NOT EXISTS tried_at timestamptz;

-- +goose Down
ALTER TABLE deliveries DROP COLUMN IF EXISTS tried_at;
