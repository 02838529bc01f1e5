-- name: auditBegin
-- Writes an operator's action before it happens.
-- Parameters: @id, @operator, @action, @target_type, @target_id, @request_id, @detail
INSERT INTO audit (audit_id, operator, action, target_type, target_id, request_id, detail)
VALUES (@id, @operator, @action, @target_type, @target_id, @request_id, @detail)

-- name: auditEnd
-- Completes an entry with the result of its action. Locks the entry, found by primary key. @target_id is set if the action created the
-- target.
-- Parameters: @id, @status, @target_id
UPDATE audit SET status = @status, target_id = coalesce(@target_id::text, target_id) WHERE audit_id = @id

-- name: auditList
-- Lists entries by primary key, the newest first. Locks nothing.
-- Parameters: @operator, @action, @target_id, @from, @to, @after, @from_id, @limit
WITH looked AS (
  SELECT * FROM audit WHERE audit_id < @after AND audit_id >= @from_id ORDER BY audit_id DESC LIMIT {{maxLooked}}
), judged AS (
  SELECT *, row_number() OVER (ORDER BY audit_id DESC) AS nth,
    ((@operator::text IS NULL OR operator = @operator) AND (@action::text IS NULL OR action = @action)
      AND (@target_id::text IS NULL OR target_id = @target_id)
      AND (@from::timestamptz IS NULL OR at >= @from) AND (@to::timestamptz IS NULL OR at < @to)) IS TRUE AS wanted FROM looked
)
SELECT nth = {{maxLooked}}, wanted, (SELECT to_json(r) FROM (SELECT audit_id, at, operator, action, target_type, target_id, request_id,
  status, detail) r)
FROM judged WHERE wanted OR nth = {{maxLooked}} ORDER BY audit_id DESC LIMIT @limit

-- name: logout
-- Stores a session of the console as ended. Also removes stored sessions with expired cookies.
-- Parameters: @session, @expires_at
WITH expired AS (
  DELETE FROM ended_sessions WHERE expires_at < pg_catalog.now()
)
INSERT INTO ended_sessions (session_id, expires_at) VALUES (@session, @expires_at) ON CONFLICT (session_id) DO NOTHING

-- name: loggedOut
-- Reports whether a session was ended, by primary key. Locks nothing.
-- Parameters: @session
SELECT EXISTS (SELECT FROM ended_sessions WHERE session_id = @session)
