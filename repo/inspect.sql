-- name: inspectServer
-- Reads facts about the server. The number of usable connections excludes connections that are reserved for superusers and, since version
-- 16, for other privileged users. The number respects the limits of the user and the database, which do not apply to a superuser.
SELECT current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery(),
  current_setting('server_encoding'),
  (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend'),
  least(current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
      - coalesce(current_setting('reserved_connections', true)::int, 0),
    CASE WHEN rolconnlimit >= 0 AND NOT rolsuper THEN rolconnlimit END,
    CASE WHEN datconnlimit >= 0 AND NOT rolsuper THEN datconnlimit END)
FROM pg_roles, pg_database WHERE rolname = current_user AND datname = current_database()

-- name: inspectPrivileges
-- Lists the privileges that the user lacks, such as "INSERT on jobs". Finds the tables by the search path, like the store. ForgeRun's
-- tables have the same schema and owner as the table jobs.
SELECT p.privilege || ' on ' || t.relname FROM pg_class j JOIN pg_class t ON t.relnamespace = j.relnamespace AND t.relowner = j.relowner
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) WITH ORDINALITY AS p(privilege, nth)
WHERE j.oid = to_regclass('jobs') AND t.relkind = 'r' AND (t.relname <> 'goose_db_version' OR p.privilege = 'SELECT')
  AND NOT has_table_privilege(t.oid, p.privilege) ORDER BY t.relname, p.nth

-- name: inspectTransactions
-- Finds the oldest writing or prepared transaction, in any database of the server. Until it ends, events that were committed after its
-- start may be held back from clients. Only users who may read all statistics see the times of other users' sessions.
SELECT pid, who, place, what, age FROM (
  SELECT pid, usename::text AS who, coalesce(datname::text, '') AS place, application_name AS what,
    pg_catalog.clock_timestamp() - xact_start AS age
    FROM pg_stat_activity WHERE backend_xid IS NOT NULL
  UNION ALL
  SELECT 0, owner::text, database::text, gid, clock_timestamp() - prepared FROM pg_prepared_xacts
) writing WHERE age > interval '1 second' ORDER BY age DESC LIMIT 1

-- name: inspectState
-- Reads the state of the processes that share the database. Finds jobs by the indexes jobs_held, jobs_waiting and jobs_ended. Locks
-- nothing. A blocked leader renews its lease once a second, with a duration of zero. So if the lease has just expired, the leader is
-- blocked. Looks for jobs with a queued_at in the future, among the first 10,000 waiting jobs that are not due yet.
SELECT w.alive, w.slots, w.held,
  coalesce((SELECT now() - run_at FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL AND run_at <= now() ORDER BY run_at, job_id
    LIMIT 1), '0'),
  EXISTS (SELECT FROM jobs WHERE finished_at > now() - interval '1 minute' AND state <> 'CANCELED')
    OR EXISTS (SELECT FROM jobs WHERE worker_id IS NOT NULL AND started_at > now() - interval '1 minute'),
  m.leader_expires_at > pg_catalog.clock_timestamp() - interval '3 seconds',
  m.leader_expires_at BETWEEN pg_catalog.clock_timestamp() - interval '3 seconds' AND pg_catalog.clock_timestamp(),
  EXISTS (SELECT FROM webhooks WHERE deleted_at IS NULL),
  EXISTS (SELECT FROM workers WHERE heartbeat_at > pg_catalog.clock_timestamp() + interval '1 s')
    OR NOT EXISTS (SELECT FROM testbed_clock) AND EXISTS (SELECT FROM (SELECT run_at, queued_at FROM jobs
      WHERE worker_id IS NULL AND finished_at IS NULL AND run_at > now() + interval '1 s' ORDER BY run_at, job_id LIMIT 10000) w
      WHERE queued_at > now() + interval '1 s' AND run_at >= queued_at)
FROM maintenance_state m, (SELECT count(*)::int AS alive, coalesce(sum(concurrency), 0)::int AS slots,
    coalesce(sum((SELECT count(*) FROM jobs WHERE jobs.worker_id = workers.worker_id)), 0)::int AS held
  FROM workers WHERE state = 'ALIVE' AND expires_at > pg_catalog.clock_timestamp()) w

-- name: inspectSigningKeys
-- Reads the published keys. Locks nothing.
SELECT kid, public_key AS public, private_key AS sealed FROM signing_keys
WHERE retires_at IS NULL OR retires_at > pg_catalog.clock_timestamp()
