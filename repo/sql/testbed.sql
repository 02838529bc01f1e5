-- name: removeFaults
-- Removes the rules of a client, or the one with the given id, by primary key. Gives their ids.
-- Parameters: @client, @rule
DELETE FROM testbed_faults WHERE client_id = @client AND (@rule::uuid IS NULL OR rule_id = @rule) RETURNING rule_id

-- name: insertFaults
-- Stores the rules of a client, who has none: the transaction has removed them and holds the lock of lockFaults.
-- Parameters: @client, @seed, @rules, @ids
INSERT INTO testbed_faults (client_id, position, rule_id, operation, from_at, until_at, nth, rule, seed)
SELECT @client, position, id, rule->'match'->>'operation', (rule->'match'->>'from')::timestamptz, (rule->'match'->>'until')::timestamptz,
  CASE WHEN rule->'match'->'times' IS NULL AND rule->'match'->'for' IS NULL THEN (rule->'match'->>'nth')::bigint END, rule, @seed
FROM unnest(@rules::json[], @ids::uuid[]) WITH ORDINALITY AS r(rule, id, position)

-- name: lockFaults
-- Lets one transaction at a time replace the rules of a client, by an advisory lock.
-- Parameters: @client
SELECT pg_advisory_xact_lock(hashtextextended('testbed faults ' || @client::text, 0))

-- name: listFaults
-- Lists the rules of a client in their order, along the primary key. Locks nothing.
-- Parameters: @client
SELECT {{faultColumns}} FROM testbed_faults WHERE client_id = @client ORDER BY position

-- name: countFaults
-- Counts a request, or an attempt to deliver, for the rules that are about it and may still apply, and gives those in their order:
-- requests that come together each get a number of their own. Finds the rules along the primary key, and locks them in that order.
-- No row: there is no such rule.
-- Parameters: @client, @operation
WITH about AS MATERIALIZED (
  SELECT client_id, position FROM testbed_faults
  WHERE client_id = @client AND (operation = @operation OR operation IS NULL AND @operation <> 'delivery')
    AND (from_at IS NULL OR from_at <= clock_timestamp()) AND (until_at IS NULL OR until_at > clock_timestamp())
    AND (nth IS NULL OR seen < nth)
  ORDER BY client_id, position FOR NO KEY UPDATE
), counted AS (
  UPDATE testbed_faults f SET seen = f.seen + 1 FROM about WHERE f.client_id = about.client_id AND f.position = about.position
  RETURNING f.rule_id, f.position, f.rule, f.seed, f.seen, f.applied, f.first_at
)
SELECT {{faultColumns}} FROM counted AS testbed_faults ORDER BY position

-- name: applyFault
-- Counts that a rule had its effect. Finds it by primary key. No row: it was removed or replaced meanwhile.
-- Parameters: @client, @position, @rule
UPDATE testbed_faults SET applied = applied + 1, first_at = coalesce(first_at, clock_timestamp())
WHERE client_id = @client AND position = @position AND rule_id = @rule RETURNING rule_id
