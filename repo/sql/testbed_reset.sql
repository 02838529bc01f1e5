-- name: forgetAnswers
-- Removes answers under the idempotency keys of a client, along the primary key. One with the status 0 is of a request that is under
-- way, such as the one that this is part of.
-- Parameters: @client, @limit
DELETE FROM idempotency_keys WHERE client_id = @client AND (endpoint, key) IN (SELECT endpoint, key FROM idempotency_keys
  WHERE client_id = @client AND answer_status IS DISTINCT FROM 0 ORDER BY client_id, endpoint, key LIMIT @limit FOR UPDATE SKIP LOCKED)

-- name: expireResult
-- Lets the result of a client's job expire now, found by primary key. One that has expired stays as it is. Trigger: none.
-- Parameters: @job, @client
UPDATE results SET expires_at = least(expires_at, clock_timestamp()) FROM jobs
WHERE results.job_id = @job AND jobs.job_id = @job AND jobs.client_id = @client
