-- name: anyLabelAhead
-- Reports whether an event has a label that no transaction of this server can have given. Goes from client to client
-- in the indexes events_client and client_events_client and looks at the latest label of each: with millions of jobs,
-- all their rows are not read for this. Locks nothing.
WITH RECURSIVE job_labels AS (
  (SELECT client_id, tx FROM events ORDER BY client_id DESC, tx DESC LIMIT 1)
  UNION ALL
  SELECT e.* FROM job_labels CROSS JOIN LATERAL (
    SELECT client_id, tx FROM events WHERE client_id < job_labels.client_id ORDER BY client_id DESC, tx DESC LIMIT 1) e
), client_labels AS (
  (SELECT client_id, tx FROM client_events ORDER BY client_id DESC, tx DESC LIMIT 1)
  UNION ALL
  SELECT e.* FROM client_labels CROSS JOIN LATERAL (
    SELECT client_id, tx FROM client_events WHERE client_id < client_labels.client_id ORDER BY client_id DESC, tx DESC LIMIT 1) e
)
SELECT EXISTS (SELECT FROM job_labels WHERE tx >= pg_snapshot_xmax(pg_current_snapshot()))
  OR EXISTS (SELECT FROM client_labels WHERE tx >= pg_snapshot_xmax(pg_current_snapshot()))
