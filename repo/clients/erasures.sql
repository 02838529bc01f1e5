-- name: lockErasedClient
-- Locks a client before its erasure, found by primary key, so that its keys do not change. No row: the client does not exist.
-- Parameters: @client
SELECT client_id FROM clients WHERE client_id = @client FOR UPDATE

-- name: erasureOfClient
-- Reads the erasure of a client, found by the index erasures_one_of_a_client. Locks nothing. No row: the client is not erased.
-- Parameters: @client
SELECT {{erasureColumns}} FROM erasures WHERE client_id = @client

-- name: insertErasure
-- Stores an erasure. From its commit on, nothing new is stored for the client. Requests with its keys are refused, because the same
-- transaction revokes the keys. The trigger refuse_erased and the statement insertOwn refuse all other new rows of the client. Waits for a
-- transaction that is inserting the client's erasure. No row: the client already has an erasure.
-- Parameters: @erasure, @client, @operator, @reason, @request_id
INSERT INTO erasures (erasure_id, client_id, operator, reason, request_id, created_at)
VALUES (@erasure, @client, @operator, @reason, @request_id, clock_timestamp()) ON CONFLICT (client_id) DO NOTHING
RETURNING {{erasureColumns}}

-- name: revokeErasedKeys
-- Revokes all keys of a client, found by the index api_keys_client and locked in order of their ids.
-- Parameters: @client
WITH locked AS MATERIALIZED (SELECT key_id FROM api_keys WHERE client_id = @client ORDER BY key_id FOR NO KEY UPDATE)
UPDATE api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE key_id = ANY (ARRAY(SELECT key_id FROM locked))
RETURNING key_id

-- name: readErasure
-- Reads an erasure, found by primary key. Locks nothing. No row: the erasure does not exist.
-- Parameters: @erasure
SELECT {{erasureColumns}} FROM erasures WHERE erasure_id = @erasure

-- name: listErasures
-- Lists erasures, the newest first, using the primary key. Locks nothing.
-- Parameters: @before, @limit
SELECT {{erasureColumns}} FROM erasures WHERE erasure_id < @before ORDER BY erasure_id DESC LIMIT @limit

-- name: openErasures
-- Reads the open erasures, the oldest first, by the index erasures_open. Locks nothing.
-- Parameters: @limit
SELECT {{erasureColumns}} FROM erasures WHERE finished_at IS NULL ORDER BY erasure_id LIMIT @limit

-- name: lockErasure
-- Locks an unfinished erasure, found by primary key. Every step of an erasure holds this lock. For a short time, two processes may both act
-- as the leader, but only one of them can do a step. No row: the erasure is done, or another process works on it.
-- Parameters: @erasure
SELECT {{erasureColumns}} FROM erasures WHERE erasure_id = @erasure AND finished_at IS NULL FOR NO KEY UPDATE SKIP LOCKED

-- name: moveErasure
-- Writes the progress of an erasure, in the transaction that made the progress. Finds the row, which is already locked, by primary key.
-- Parameters: @erasure, @step, @position, @position_job, @removed, @remaining
UPDATE erasures SET since = CASE WHEN step = @step THEN since ELSE pg_current_xact_id() END, step = @step, position = @position,
  position_job = @position_job, removed = @removed, remaining = @remaining, started_at = coalesce(started_at, clock_timestamp())
WHERE erasure_id = @erasure
RETURNING {{erasureColumns}}

-- fragment: erasureColumns
-- The columns of an erasure, named like the fields of job.Erasure.
erasure_id AS id, client_id, operator, reason, request_id, created_at, started_at, finished_at, step, position,
  position_job, removed, remaining, coalesce(record, '') AS record, record_sha256 AS sha256
