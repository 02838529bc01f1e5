-- name: ownedSessions
-- Lists sessions of all clients, or of one, the latest first, along testbed_sessions_latest. Locks nothing.
-- Parameters: @client, @after, @limit
SELECT client_id, {{sessionColumns}} FROM testbed_sessions WHERE session_id < @after AND (@client::uuid IS NULL OR client_id = @client)
ORDER BY session_id DESC LIMIT @limit

-- name: ownerOfSession
-- Gives whose a session is, found by testbed_sessions_latest. Locks nothing. No row: there is none.
-- Parameters: @session
SELECT client_id FROM testbed_sessions WHERE session_id = @session

-- name: ownedFaults
-- Lists the rules of all clients, or of one, along the primary key. Locks nothing.
-- Parameters: @client, @limit
SELECT client_id, {{faultColumns}} FROM testbed_faults WHERE @client::uuid IS NULL OR client_id = @client ORDER BY client_id, position
LIMIT @limit

-- name: nextDue
-- Gives when the next job becomes due, by the head of jobs_waiting that lies ahead, or the next run of a schedule, by schedules_due. From
-- @end on times in run_at have a meaning of their own. Locks nothing. NULL: none does.
-- Parameters: @end
SELECT least((SELECT min(run_at) FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL AND run_at > now() AND run_at < @end),
  (SELECT min(look_at) FROM schedules WHERE look_at > now()))
