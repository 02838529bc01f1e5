-- name: anyLabelAhead
-- Reports whether an event has a label that no transaction of this server can have given. Goes from client to client
-- in the indexes events_client and client_events_client and looks at the latest label of each: with millions of jobs,
-- all their rows are not read for this. Locks nothing.
WITH RECURSIVE told AS (
  (SELECT client_id, tx FROM events ORDER BY client_id DESC, tx DESC LIMIT 1)
  UNION ALL
  SELECT e.* FROM told CROSS JOIN LATERAL (
    SELECT client_id, tx FROM events WHERE client_id < told.client_id ORDER BY client_id DESC, tx DESC LIMIT 1) e
), others AS (
  (SELECT client_id, tx FROM client_events ORDER BY client_id DESC, tx DESC LIMIT 1)
  UNION ALL
  SELECT e.* FROM others CROSS JOIN LATERAL (
    SELECT client_id, tx FROM client_events WHERE client_id < others.client_id ORDER BY client_id DESC, tx DESC LIMIT 1) e
)
SELECT EXISTS (SELECT FROM told WHERE tx >= pg_snapshot_xmax(pg_current_snapshot()))
  OR EXISTS (SELECT FROM others WHERE tx >= pg_snapshot_xmax(pg_current_snapshot()))
