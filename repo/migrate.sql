-- name: anyFutureTx
-- Reports whether an event has a tx that this server has not assigned yet. Reads only the highest tx of each client, from the indexes
-- events_client and client_events_client. Locks nothing.
WITH RECURSIVE job_tx AS (
  (SELECT client_id, tx FROM events ORDER BY client_id DESC, tx DESC LIMIT 1)
  UNION ALL
  SELECT e.* FROM job_tx CROSS JOIN LATERAL (
    SELECT client_id, tx FROM events WHERE client_id < job_tx.client_id ORDER BY client_id DESC, tx DESC LIMIT 1) e
), client_tx AS (
  (SELECT client_id, tx FROM client_events ORDER BY client_id DESC, tx DESC LIMIT 1)
  UNION ALL
  SELECT e.* FROM client_tx CROSS JOIN LATERAL (
    SELECT client_id, tx FROM client_events WHERE client_id < client_tx.client_id ORDER BY client_id DESC, tx DESC LIMIT 1) e
)
SELECT EXISTS (SELECT FROM job_tx WHERE tx >= pg_snapshot_xmax(pg_current_snapshot()))
  OR EXISTS (SELECT FROM client_tx WHERE tx >= pg_snapshot_xmax(pg_current_snapshot()))

-- name: migratorLacks
-- Returns a privilege that migrations need and the user lacks, or ''. Migrations need a schema for new tables, the privilege CREATE on this
-- schema, and ownership of ForgeRun's existing tables and functions. Locks nothing.
SELECT CASE
  WHEN current_schema() IS NULL THEN 'a schema to create tables in (none of the search_path ' || current_setting('search_path') || ' is there)'
  WHEN NOT has_schema_privilege(current_schema(), 'CREATE') THEN 'CREATE on schema ' || quote_ident(current_schema())
  ELSE coalesce((SELECT 'ownership of ' || what FROM (
    SELECT 'table ' || relname AS what, relowner AS owner FROM pg_class
      WHERE relnamespace = quote_ident(current_schema())::regnamespace AND relname IN ('goose_db_version', 'jobs', 'testbed_clock')
    UNION ALL
    SELECT 'function ' || proname, proowner FROM pg_proc
      WHERE pronamespace = quote_ident(current_schema())::regnamespace
        AND proname IN ('schema_since', 'testbed_move', 'testbed_moment')) ours
    WHERE NOT pg_has_role(owner, 'USAGE') LIMIT 1), '')
END

-- name: schemaVersion
-- Reads the schema version, and whether the schema is older than version 0.1.0. Such a schema has no function schema_since. Locks nothing.
SELECT coalesce(max(version_id), 0), count(*) FILTER (WHERE version_id > 0) > 0 AND to_regprocedure('schema_since()') IS NULL
FROM goose_db_version WHERE is_applied

-- name: renumberEvents
-- Sets the tx of all events to 1, which is lower than the id of any new transaction. Replaces the key that signs positions. Reads whole
-- tables, which the caller must have locked.
WITH renumbered_events AS (
  UPDATE events SET tx = '1' WHERE tx <> '1'
), renumbered_client_events AS (
  UPDATE client_events SET tx = '1' WHERE tx <> '1'
), renumbered_jobs AS (
  UPDATE jobs SET event_tx = '1' WHERE event_tx <> '1'
)
UPDATE maintenance_state SET cursor_key = DEFAULT
