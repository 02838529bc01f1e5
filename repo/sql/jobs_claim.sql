-- fragment: stamped
-- Follows ready in a transition of jobs. Every transition has the same shape: input is the batch, as arrays; ready are
-- the rows that pass the guard, locked in job_id order; stamped is the same with the time of the event, taken after
-- the lock and never before the row's last change, so that an event log does not run backwards; and with the label of
-- the event, the later of this transaction and the label of the job's event before; changed is the guarded UPDATE; log
-- writes the events, numbered on from event_seq.
--
-- An item whose row is not in ready is an answer, not an error: the caller came too late, too early, or asked for what
-- is not its own.
--
-- Trigger: events_delivered on events writes the deliveries of each event, to the client's enabled webhooks and to the
-- job's callback, in the same transaction.
stamped AS MATERIALIZED (
  SELECT *, greatest(clock_timestamp(), updated_at) AS at, greatest(pg_current_xact_id(), event_tx) AS tx FROM ready
)

-- fragment: claimable
-- The waiting, due jobs of input whose worker is alive, locked.
SELECT j.job_id, j.client_id, j.state, j.event_seq - CASE j.state WHEN 'CREATED' THEN 0 ELSE 1 END AS before, j.event_tx, j.attempt,
    j.updated_at, event_data(j.work_kind, j.definition) AS data, j.callback IS NOT NULL AS called_back, i.worker, i.n
  FROM jobs j JOIN input i ON j.job_id = i.id
  WHERE j.attempt = i.attempt AND j.state IN ('CREATED', 'QUEUED') AND j.run_at <= clock_timestamp()
    AND EXISTS (SELECT FROM workers w WHERE w.worker_id = i.worker AND w.state = 'ALIVE' AND w.expires_at > clock_timestamp())
  ORDER BY j.job_id FOR NO KEY UPDATE OF j SKIP LOCKED

-- fragment: claimed
-- Follows ready in a claim.
{{stamped}}, changed AS (
  UPDATE jobs SET state = 'ASSIGNED', fence = fence + 1, worker_id = s.worker, assigned_at = s.at, updated_at = s.at,
    queued_at = coalesce(queued_at, s.at), event_tx = s.tx, event_seq = s.before + 2
  FROM stamped s WHERE jobs.job_id = s.job_id
  RETURNING s.state = 'CREATED' AS was_created, jobs.fence, jobs.queued_at, {{jobColumns}}
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data, called_back)
  SELECT s.job_id, s.client_id, s.before + e.step, (@event_ids::uuid[])[2 * s.n - 2 + e.step], e.name, e.prev, e.next, s.attempt, s.at,
    s.tx, s.data, s.called_back
  FROM stamped s JOIN (VALUES (1, 'job.queued', 'CREATED', 'QUEUED'), (2, 'job.assigned', 'QUEUED', 'ASSIGNED'))
    AS e(step, name, prev, next) ON e.step = 2 OR s.state = 'CREATED'
)

-- name: claimJobs
-- Moves waiting, due jobs to ASSIGNED and raises their fence. A job that was still CREATED passes through QUEUED as
-- well. Each step has its event.
--
-- Locks the job rows in job_id order, found by primary key, and skips those that another session has locked. No row:
-- not claimed, see claimedBefore and whyUnchanged. Trigger: events_delivered writes the deliveries. @event_ids has two
-- for each item.
-- Parameters: @ids, @attempts, @workers, @event_ids
WITH input AS MATERIALIZED (
  SELECT * FROM unnest(@ids::uuid[], @attempts::int[], @workers::uuid[]) WITH ORDINALITY AS i(id, attempt, worker, n)
), ready AS MATERIALIZED (
  {{claimable}}
), {{claimed}}
SELECT * FROM changed

-- name: lockClaims
-- Lets one transaction at a time claim, by an advisory lock: only so can jobs that are held be counted. Comes before
-- claimJobsWithin, as a statement of its own: that sees what others committed before they gave the lock up.
SELECT pg_advisory_xact_lock(hashtextextended('claims', 0))

-- fragment: throttled
-- Jobs whose time is one that never comes: the predicate of the index jobs_throttled.
worker_id IS NULL AND finished_at IS NULL AND queued_at IS NOT NULL AND run_at >= {{throttledUntil}}

-- name: claimJobsWithin
-- Claims like claimJobs, under the lock of lockClaims, so many jobs of a client that it does not hold more than @most
-- then, the oldest first. None is claimed while an older one of its client is throttled. The others that were QUEUED are
-- throttled: their time is one that never comes, until resumeThrottled gives them back the old one. One that was CREATED
-- stays as it is until it is QUEUED.
--
-- Counts what is held, of all clients, by the index jobs_held: a search by client would read all of its jobs. Looks for
-- older jobs in jobs_throttled.
-- Parameters: @ids, @attempts, @workers, @event_ids, @most
WITH input AS MATERIALIZED (
  SELECT * FROM unnest(@ids::uuid[], @attempts::int[], @workers::uuid[]) WITH ORDINALITY AS i(id, attempt, worker, n)
), due AS MATERIALIZED (
  {{claimable}}
), held AS MATERIALIZED (
  SELECT client_id, count(*) AS n FROM jobs WHERE worker_id IS NOT NULL GROUP BY client_id
), placed AS MATERIALIZED (
  SELECT due.*, coalesce(held.n, 0) + row_number() OVER (PARTITION BY due.client_id ORDER BY due.job_id) <= @most
    AND NOT EXISTS (SELECT FROM jobs WHERE {{throttled}} AND jobs.client_id = due.client_id AND jobs.job_id < due.job_id) AS fits
  FROM due LEFT JOIN held ON held.client_id = due.client_id
), ready AS MATERIALIZED (
  SELECT * FROM placed WHERE fits
), {{claimed}}, throttled AS (
  UPDATE jobs SET run_at = {{throttledUntil}} FROM placed p WHERE jobs.job_id = p.job_id AND NOT p.fits AND p.state = 'QUEUED'
)
SELECT * FROM changed

-- name: startJobs
-- Moves ASSIGNED jobs to RUNNING under their lease, while their worker is alive. Changes no column that an index has,
-- neither as a key nor in its condition, so that the row is updated in place (HOT).
--
-- Locks the job rows in job_id order, found by primary key, and skips those that another session has locked. No row:
-- not started, see whyUnchanged. Trigger: events_delivered writes the deliveries.
-- Parameters: @ids, @attempts, @fences, @event_ids
WITH input AS MATERIALIZED (
  SELECT * FROM unnest(@ids::uuid[], @attempts::int[], @fences::bigint[], @event_ids::uuid[]) AS i(id, attempt, fence, event_id)
), ready AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.event_seq, j.event_tx, j.attempt, j.updated_at, event_data(j.work_kind, j.definition) AS data,
    j.callback IS NOT NULL AS called_back, i.event_id
  FROM jobs j JOIN input i ON j.job_id = i.id
  WHERE j.state = 'ASSIGNED' AND j.attempt = i.attempt AND j.fence = i.fence
    AND EXISTS (SELECT FROM workers w WHERE w.worker_id = j.worker_id AND w.state = 'ALIVE' AND w.expires_at > clock_timestamp())
  ORDER BY j.job_id FOR NO KEY UPDATE OF j SKIP LOCKED
), {{stamped}}, changed AS (
  UPDATE jobs SET state = 'RUNNING', started_at = s.at, updated_at = s.at, event_tx = s.tx, event_seq = s.event_seq + 1
  FROM stamped s WHERE jobs.job_id = s.job_id
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data, called_back)
  SELECT job_id, client_id, event_seq + 1, event_id, 'job.running', 'ASSIGNED', 'RUNNING', attempt, at, tx, data, called_back FROM stamped
)
SELECT job_id, at FROM stamped

-- name: claimedBefore
-- Finds the unclaimed jobs that the same worker holds already: the answer to their claim was lost. Locks nothing;
-- finds the jobs by primary key: compared with IS NOT DISTINCT FROM, the worker is of no use to the index jobs_held.
-- Parameters: @ids, @attempts, @workers
SELECT false, jobs.fence, jobs.queued_at, {{jobColumns}}
FROM unnest(@ids::uuid[], @attempts::int[], @workers::uuid[]) AS i(id, attempt, worker) JOIN jobs ON jobs.job_id = i.id
WHERE jobs.state IN ('ASSIGNED', 'RUNNING') AND jobs.attempt = i.attempt AND jobs.worker_id IS NOT DISTINCT FROM i.worker

-- name: whyUnchanged
-- Says why steps got no row: what the guards of claimJobs, startJobs and finishJobs look at, as it is now. The worker
-- is the one that claims, or with null the one that holds the job. Locks nothing; finds the jobs by primary key. No
-- row: the job does not exist.
-- Parameters: @ids, @workers
SELECT j.job_id, j.state, j.attempt, j.fence, j.started_at, greatest(j.run_at - clock_timestamp(), interval '0'),
  j.run_at >= {{throttledUntil}},
  EXISTS (SELECT FROM workers w WHERE w.worker_id = coalesce(i.worker, j.worker_id) AND w.state = 'ALIVE'
    AND w.expires_at > clock_timestamp())
FROM unnest(@ids::uuid[], @workers::uuid[]) AS i(id, worker) JOIN jobs j ON j.job_id = i.id

-- name: releaseJobs
-- Moves ASSIGNED jobs back to QUEUED under their lease. Locks the job rows in job_id order, found by primary key. No
-- row: the lease is not current. Trigger: events_delivered writes the deliveries.
-- Parameters: @ids, @attempts, @fences, @waits
WITH input AS MATERIALIZED (
  SELECT * FROM unnest(@ids::uuid[], @attempts::int[], @fences::bigint[], @waits::interval[]) AS i(id, attempt, fence, wait)
), ready AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.event_seq, j.event_tx, j.attempt, j.updated_at, j.work_kind, j.definition, i.wait
  FROM jobs j JOIN input i ON j.job_id = i.id
  WHERE j.state = 'ASSIGNED' AND j.attempt = i.attempt AND j.fence = i.fence
  ORDER BY j.job_id FOR NO KEY UPDATE OF j
), {{stamped}}, changed AS (
  UPDATE jobs SET state = 'QUEUED', worker_id = NULL, assigned_at = NULL, run_at = s.at + s.wait, queued_at = s.at, updated_at = s.at,
    lease_expiries = lease_expiries + 1, dispatch = dispatch + 1, dispatch_epoch = NULL,
    event_seq = s.event_seq + 1, event_tx = s.tx
  FROM stamped s WHERE jobs.job_id = s.job_id
  RETURNING {{taskColumns}}
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data)
  SELECT job_id, client_id, event_seq + 1, uuid7(at), 'job.lease_expired', 'ASSIGNED', 'QUEUED', attempt, at, tx,
    event_data(work_kind, definition) FROM stamped
)
SELECT * FROM changed
