-- name: ownedSessions
-- Lists the sessions of all clients, or of @client if it is set, the latest first, along testbed_sessions_latest. Locks nothing.
-- Parameters: @client, @after, @limit
SELECT client_id, {{sessionColumns}} FROM testbed_sessions WHERE session_id < @after AND (@client::uuid IS NULL OR client_id = @client)
ORDER BY session_id DESC LIMIT @limit

-- name: ownerOfSession
-- Returns the owner of a session, found by testbed_sessions_latest. Locks nothing. No row: the session does not exist.
-- Parameters: @session
SELECT client_id FROM testbed_sessions WHERE session_id = @session

-- name: ownedFaults
-- Lists the rules of all clients, or of @client if it is set, with the labels of their sessions. Uses the primary key. Locks nothing.
-- Parameters: @client, @limit
SELECT testbed_faults.client_id, coalesce(s.label, ''), {{faultColumns}} FROM testbed_faults
LEFT JOIN testbed_sessions s ON s.client_id = testbed_faults.client_id AND s.session_id = testbed_faults.session_id
WHERE @client::uuid IS NULL OR testbed_faults.client_id = @client
ORDER BY testbed_faults.client_id, testbed_faults.session_id, testbed_faults.position LIMIT @limit

-- name: nextDue
-- Returns the next time at which a job or a schedule is due. Reads the first future entry of jobs_waiting, and of schedules_due. Leaves
-- out paused jobs: their run_at is @end or later. Locks nothing. NULL: nothing is due later.
-- Parameters: @end
SELECT least((SELECT min(run_at) FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL AND run_at > now() AND run_at < @end),
  (SELECT min(look_at) FROM schedules WHERE look_at > now()))
