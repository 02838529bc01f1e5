-- name: reserveKey
-- Takes a new or expired idempotency key, and locks its row. storeAnswer writes the answer in the same transaction. Waits for a
-- transaction that is inserting the same key. No row changed: the key is taken.
-- Parameters: @client, @endpoint, @key, @request_hash, @key_window
INSERT INTO idempotency_keys AS k (client_id, endpoint, key, request_hash, answer_status, created_at, expires_at)
SELECT @client, @endpoint, @key, @request_hash, 0, at, at + @key_window::interval FROM (VALUES (clock_timestamp())) AS v(at)
ON CONFLICT (client_id, endpoint, key) DO UPDATE SET request_hash = excluded.request_hash, resource_id = NULL, answer_status = 0,
  answer_header = NULL, answer_body = NULL, created_at = excluded.created_at, expires_at = excluded.expires_at
  WHERE k.expires_at <= clock_timestamp()

-- name: storeAnswer
-- Writes the answer to a request under the key that the same transaction has taken. Finds the row, which is already locked, by primary key.
-- Parameters: @client, @endpoint, @key, @resource, @status, @header, @body
UPDATE idempotency_keys SET resource_id = @resource, answer_status = @status, answer_header = @header, answer_body = @body
WHERE client_id = @client AND endpoint = @endpoint AND key = @key

-- name: findAnswer
-- Reads the answer of an idempotency key, by primary key. Locks nothing. No row: the key is free or has expired.
-- Parameters: @client, @endpoint, @key
SELECT request_hash, resource_id, coalesce(answer_status, 0), answer_header, answer_body
FROM idempotency_keys WHERE client_id = @client AND endpoint = @endpoint AND key = @key AND expires_at > clock_timestamp()
