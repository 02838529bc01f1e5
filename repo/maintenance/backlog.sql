-- name: countLoad
-- Counts entries of the indexes jobs_waiting, jobs_scheduled and jobs_held. The conditions are exactly the predicates of these partial
-- indexes, so the scans are index-only. They read the table only for rows changed since the last vacuum. QUEUED jobs are the waiting jobs
-- minus the CREATED jobs. Each count stops at @limit. If more than @limit jobs wait, the number of QUEUED jobs is too small. This does no
-- harm, because no new jobs are accepted then.
-- Parameters: @limit
SELECT waiting.n + held.n, greatest(waiting.n - created.n, 0), reported_active, reported_queued FROM headroom,
  (SELECT count(*) AS n FROM (SELECT FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL LIMIT @limit) w) waiting,
  (SELECT count(*) AS n FROM (SELECT FROM jobs WHERE queued_at IS NULL AND finished_at IS NULL LIMIT @limit) c) created,
  (SELECT count(*) AS n FROM (SELECT FROM jobs WHERE worker_id IS NOT NULL LIMIT @limit) h) held

-- name: countLoadByClient
-- Counts waiting jobs in the index jobs_waiting, and held jobs in the index jobs_held. Locks nothing. Waiting jobs without queued_at are
-- CREATED.
-- Parameters: @limit, @few
SELECT client_id, count(*)::int, count(queued_at)::int FROM (
  (SELECT client_id, queued_at FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL LIMIT @limit)
  UNION ALL
  (SELECT client_id, NULL FROM jobs WHERE worker_id IS NOT NULL LIMIT @limit)
) unfinished GROUP BY client_id HAVING count(*) > @few

-- name: readBacklog
-- Counts jobs in the indexes jobs_scheduled, jobs_waiting and jobs_held. Counts deliveries in deliveries_waiting and deliveries_claimed.
-- Counts webhooks in webhooks_client. Locks nothing. For jobs and deliveries, the conditions are exactly the predicates of the indexes, so
-- the scans are index-only. The caller subtracts `created` from `waiting` to get the QUEUED jobs.
-- Parameters: @after_client, @after_endpoint, @looked, @limit
{{walkEndpoints}}
SELECT created.n, waiting.n, held.assigned, held.running,
  coalesce((SELECT now() - run_at FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL AND run_at <= now() ORDER BY run_at, job_id
    LIMIT 1), '0'),
  alive.n, alive.slots,
  least(unsent.n + sending.n, @limit), coalesce((SELECT now() - min(next_attempt_at) FROM walk WHERE next_attempt_at <= now()), '0'),
    hooks.disabled
FROM
  (SELECT count(*) AS n FROM (SELECT FROM jobs WHERE queued_at IS NULL AND finished_at IS NULL LIMIT @limit) j) created,
  (SELECT count(*) AS n FROM (SELECT FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL LIMIT @limit) j) waiting,
  (SELECT count(*) FILTER (WHERE state = 'ASSIGNED') AS assigned, count(*) FILTER (WHERE state = 'RUNNING') AS running
    FROM (SELECT state FROM jobs WHERE worker_id IS NOT NULL ORDER BY worker_id LIMIT @limit) j) held,
  (SELECT count(*) AS n, coalesce(sum(concurrency), 0) AS slots FROM workers WHERE state = 'ALIVE'
    AND expires_at > pg_catalog.now()) alive,
  (SELECT count(*) AS n FROM (SELECT FROM deliveries WHERE state = 'PENDING' AND claimed_until IS NULL LIMIT @limit) d) unsent,
  (SELECT count(*) AS n FROM (SELECT FROM deliveries WHERE claimed_until IS NOT NULL ORDER BY claimed_until LIMIT @limit) d) sending,
  (SELECT count(*) FILTER (WHERE disabled_reason <> 'OWNER') AS disabled
    FROM (SELECT disabled_reason FROM webhooks WHERE deleted_at IS NULL ORDER BY client_id, webhook_id LIMIT @limit) w) hooks

-- name: liveWorkers
-- Counts workers with a valid lease. Locks nothing.
SELECT count(*)::int FROM workers WHERE state = 'ALIVE' AND expires_at > pg_catalog.clock_timestamp()
