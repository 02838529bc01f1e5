-- name: findUnused
-- Walks clients by primary key, and returns whether each is unused. An unused client is older than @keep, and has no jobs and no
-- webhooks. Its keys were never used and are older than @keep. A client without keys counts as unused only if it is younger than
-- @keys_kept, because used keys of an older client may already have been removed. Reads api_keys, jobs and webhooks by their indexes on
-- the client. Locks nothing.
-- Parameters: @after, @look, @keep, @keys_kept
WITH looked AS MATERIALIZED (SELECT client_id, created_at FROM clients
  WHERE client_id > coalesce(@after::uuid, '00000000-0000-0000-0000-000000000000') ORDER BY client_id LIMIT @look)
SELECT client_id, l.created_at <= now() - @keep::interval
  AND NOT EXISTS (SELECT FROM api_keys k WHERE k.client_id = l.client_id
    AND (k.used_at IS NOT NULL OR k.created_at > now() - @keep::interval) OFFSET 0)
  AND (l.created_at > now() - @keys_kept::interval OR EXISTS (SELECT FROM api_keys k WHERE k.client_id = l.client_id OFFSET 0))
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.client_id = l.client_id OFFSET 0)
  AND NOT EXISTS (SELECT FROM webhooks w WHERE w.client_id = l.client_id AND w.deleted_at IS NULL OFFSET 0)
FROM looked l ORDER BY client_id

-- name: lockUnused
-- Locks clients by primary key, and skips clients that another transaction has locked.
-- Parameters: @ids
SELECT client_id FROM clients WHERE client_id = ANY (@ids::uuid[]) ORDER BY client_id FOR UPDATE SKIP LOCKED

-- name: lockUnusedKeys
-- Locks the keys of clients, found by the index api_keys_client, in order of their ids. Returns the clients that have a used key or a key
-- younger than @keep.
-- Parameters: @ids, @keep
WITH locked AS MATERIALIZED (
  SELECT client_id, used_at, created_at FROM api_keys WHERE client_id = ANY (@ids::uuid[]) ORDER BY key_id FOR UPDATE
)
SELECT client_id FROM locked WHERE used_at IS NOT NULL OR created_at > now() - @keep::interval

-- name: removeUnusedKeys
-- Removes the locked keys of clients, by the index api_keys_client.
-- Parameters: @ids
WITH gone AS (DELETE FROM api_keys WHERE client_id = ANY (@ids::uuid[]) RETURNING key_id)
{{forgetGone}}

-- name: removeUnused
-- Parameters: @ids
DELETE FROM clients WHERE client_id = ANY (@ids::uuid[])
