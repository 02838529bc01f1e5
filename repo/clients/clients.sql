-- fragment: keyColumns
-- The columns of an API key, read by scanKey.
key_id, client_id, secret_hash, created_at, expires_at, revoked_at, coalesce(replaced_by, ''),
  used_at, issued_by, coalesce(made_by, ''), scope

-- name: insertClient
-- Parameters: @client
INSERT INTO clients (client_id, created_at) VALUES (@client, clock_timestamp()) RETURNING created_at

-- name: readKey
-- Reads a key by primary key. Locks nothing. No row: there is no such key.
-- Parameters: @key
SELECT {{keyColumns}} FROM api_keys WHERE key_id = @key

-- name: useKey
-- Records the first use of a key, found by primary key. No row: the key was used before, or is gone.
-- Parameters: @key
UPDATE api_keys SET used_at = clock_timestamp() WHERE key_id = @key AND used_at IS NULL

-- name: lockClient
-- Locks a client by primary key, before a change of its keys. The outer query reads the clock after the inner query has the lock. A single
-- query would read the clock before it waits for the lock. No row: there is no such client.
-- Parameters: @client
WITH locked AS MATERIALIZED (SELECT client_id, created_at FROM clients WHERE client_id = @client FOR NO KEY UPDATE)
SELECT client_id, created_at, clock_timestamp() FROM locked

-- name: keysOfClient
-- Reads all keys of a locked client by the index api_keys_client, the newest first.
-- Parameters: @client
SELECT {{keyColumns}} FROM api_keys WHERE client_id = @client ORDER BY created_at DESC, key_id

-- name: insertKey
-- Stores a key of a locked client.
-- Parameters: @key, @client, @secret_hash, @created_at, @expires_at, @issued_by, @made_by, @scope
INSERT INTO api_keys (key_id, client_id, secret_hash, created_at, expires_at, issued_by, made_by, scope)
VALUES (@key, @client, @secret_hash, @created_at, @expires_at, @issued_by, @made_by, @scope)

-- name: changeKey
-- Changes an API key, found by primary key, and makes all processes drop it from their caches. The caller has locked the client.
-- Parameters: @key, @expires_at, @revoked_at, @replaced_by
WITH gone AS (
  UPDATE api_keys SET expires_at = @expires_at, revoked_at = @revoked_at, replaced_by = @replaced_by WHERE key_id = @key RETURNING key_id
)
{{forgetGone}}

-- fragment: forgetGone
-- The last part of a statement. It makes all processes drop the keys of the CTE `gone` from their caches.
SELECT pg_notify('{{revocationChannel}}', key_id) FROM gone
