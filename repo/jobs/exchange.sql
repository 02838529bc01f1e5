-- fragment: stepJobs
-- Moves each job one step, to the next state. A claim moves it to ASSIGNED and raises the fence. A start moves it to RUNNING. A finish
-- moves it to SUCCEEDED or FAILED. With a retry wait, the job then becomes QUEUED for the next attempt. A finish also writes the report and
-- the result. A claim takes a job only if the job waits, is due, and is not paused. A CREATED job passes through QUEUED. Starts and
-- finishes must have the current fence. The worker of a claim or a start must be alive.
--
-- Every transition of jobs has the same form, here and in cancelJobs, retryJobs, releaseJobs, queueDue and emitEvent. `input` contains the
-- items, which are passed as arrays. `ready` contains the rows that meet the conditions, locked in job_id order. `stamped` adds the time
-- and the tx of the event. The time is taken after the lock and is never before the row's last change. `tx` is the larger of this
-- transaction's id and the tx of the job's previous event, so that events stay in order. `changed` updates the jobs. `log` writes the
-- events, numbered from event_seq on. An item without a row in `ready` is no error: the caller came too late or too early, or does not own
-- the job.
--
-- testbed_moment normally returns the current time. If a test bed's clock may have skipped the due time of a transition, testbed_moment
-- returns that due time: run_at for a claim, updated_at for a start, ended_at for a finish. Only workers of a test bed send ended_at.
-- finished_at is never before ended_at. A worker learns later than Postgres that the clock was slowed down. So an ended_at from a worker
-- can be ahead of Postgres' time.
--
-- One statement handles all three steps, because each statement has a fixed cost, which equals the cost of about forty rows. A start
-- changes no column that an index uses as a key or condition, so its row is updated in place (HOT).
--
-- Locks the job rows, found by primary key, and skips jobs that another session has locked. No row: nothing was written for that item, see
-- claimedBefore and whyUnchanged.
--
-- The events of an attempt's end, in order: event.emitted, the final event, job.retries_exhausted, job.retried. job.retried belongs to the
-- next attempt, so it is not in the report. @event_ids are the ids of job.assigned, job.running, job.succeeded and job.failed.
--
-- Two triggers run: events_delivered (table events) writes the deliveries to webhooks and to the callback. reports_published (table
-- reports) writes outcome_outbox if the setting forgerun.outcome_stream is on.
--
-- stepWithin limits the claims of each client: it replaces {{within}} by {{withinLimit}}, which uses @most. The statement step replaces
-- {{within}} by nothing.
-- Parameters: @ids, @attempts, @nexts, @fences, @workers, @event_ids, @reasons, @codes, @retryables, @retry_afters, @stages,
--   @details, @retry_waits, @exhausted, @emits, @media_types, @sha256s, @bodies, @ended_times, @result_ttl, @most
WITH input AS MATERIALIZED (
  SELECT * FROM unnest(@ids::uuid[], @attempts::int[], @nexts::text[], @fences::bigint[], @workers::uuid[], @event_ids::uuid[],
    @reasons::text[], @codes::text[], @retryables::boolean[], @retry_afters::int[], @stages::text[], @details::text[],
    @retry_waits::interval[], @exhausted::boolean[], @emits::jsonb[],
    @media_types::text[], @sha256s::bytea[], @bodies::bytea[], @ended_times::timestamptz[])
  AS i(id, number, next, fence, worker, event_id, reason, code, retryable, retry_after, stage, detail,
    retry_wait, exhausted, emit, media_type, sha256, body, ended_at)
), {{candidates}} AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.state AS prev, j.event_tx, j.started_at, j.updated_at, j.run_at, j.worker_id, i.*,
    event_data(j.work_kind, j.definition) AS data, j.callback IS NOT NULL AS called_back, i.retry_wait IS NOT NULL AS retried,
    i.next IN ('SUCCEEDED', 'FAILED') AS ends,
    j.event_seq + 1 + CASE WHEN j.state = 'CREATED' OR i.emit IS NOT NULL THEN 1 ELSE 0 END AS seq
  FROM jobs j JOIN input i ON j.job_id = i.id
  WHERE j.attempt = i.number AND CASE i.next
      WHEN 'ASSIGNED' THEN j.state IN ('CREATED', 'QUEUED') AND j.run_at <= clock_timestamp()
        AND NOT EXISTS (SELECT FROM pauses p WHERE {{pausesJob}}
          OR p.mode = 'PAUSE' AND p.scope = 'ALL' OR p.scope = 'WORKER' AND p.target = i.worker::text)
      WHEN 'RUNNING' THEN j.state = 'ASSIGNED' AND j.fence = i.fence
      ELSE j.state = 'RUNNING' AND j.fence = i.fence END
    AND (i.next NOT IN ('ASSIGNED', 'RUNNING') OR EXISTS (SELECT FROM workers w
      WHERE w.worker_id = coalesce(i.worker, j.worker_id) AND w.state = 'ALIVE' AND w.expires_at > pg_catalog.clock_timestamp()))
  ORDER BY j.job_id FOR NO KEY UPDATE OF j SKIP LOCKED
), {{within}} stamped AS MATERIALIZED (
  SELECT *, greatest(pg_current_xact_id(), event_tx) AS tx, greatest(updated_at,
    testbed_moment(CASE next WHEN 'ASSIGNED' THEN run_at WHEN 'RUNNING' THEN updated_at ELSE ended_at END),
    CASE WHEN next NOT IN ('ASSIGNED', 'RUNNING') THEN ended_at END) AS at
  FROM ready
), changed AS (
  UPDATE jobs SET updated_at = s.at, event_tx = s.tx, event_seq = s.seq + s.exhausted::int + s.retried::int,
    state = CASE WHEN s.retried THEN 'QUEUED' ELSE s.next END,
    fence = jobs.fence + CASE s.next WHEN 'ASSIGNED' THEN 1 ELSE 0 END,
    worker_id = CASE s.next WHEN 'ASSIGNED' THEN s.worker WHEN 'RUNNING' THEN jobs.worker_id END,
    assigned_at = CASE s.next WHEN 'ASSIGNED' THEN s.at ELSE jobs.assigned_at END,
    started_at = CASE WHEN s.next = 'RUNNING' THEN s.at WHEN NOT s.retried THEN jobs.started_at END,
    queued_at = CASE WHEN s.retried THEN s.at ELSE coalesce(jobs.queued_at, s.at) END,
    finished_at = CASE WHEN s.ends AND NOT s.retried THEN s.at END,
    outcome = CASE WHEN s.ends AND NOT s.retried THEN CASE s.next WHEN 'SUCCEEDED' THEN 'SUCCESS' ELSE 'FAILED' END END,
    failure_reason = CASE WHEN NOT s.retried THEN s.reason END,
    failure_code = CASE WHEN NOT s.retried THEN s.code END,
    failure_retryable = CASE WHEN NOT s.retried THEN s.retryable END,
    failure_retry_after = CASE WHEN NOT s.retried THEN s.retry_after END,
    failure_stage = CASE WHEN NOT s.retried THEN s.stage END,
    failure_detail = CASE WHEN NOT s.retried THEN s.detail END,
    attempt = s.number + s.retried::int,
    run_at = coalesce(s.at + s.retry_wait, jobs.run_at),
    dispatch = CASE WHEN s.retried THEN 0 ELSE jobs.dispatch END
  FROM stamped s WHERE jobs.job_id = s.job_id
  RETURNING s.next, s.job_id, s.client_id, jobs.batch_id, jobs.work_kind, coalesce(jobs.traceparent, ''),
    s.at, (extract(epoch FROM s.at - s.started_at) * 1000)::bigint, s.at + s.retry_wait, s.prev = 'CREATED', jobs.fence,
      jobs.queued_at, {{stepColumns}}
), report AS (
  INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq, worker_id,
    failure_reason, failure_code, failure_retryable, failure_retry_after, failure_stage, failure_detail)
  SELECT job_id, number, CASE next WHEN 'SUCCEEDED' THEN 'SUCCESS' ELSE 'FAILED' END, started_at, at, (extract(epoch
    FROM s.at - s.started_at) * 1000)::bigint,
    seq + exhausted::int, worker_id, reason, code, retryable, retry_after, stage, detail
  FROM stamped s WHERE ends
), result AS (
  INSERT INTO results (job_id, attempt, media_type, size, sha256, expires_at, body)
  SELECT job_id, number, media_type, length(body), sha256, at + @result_ttl::interval, body FROM stamped WHERE body IS NOT NULL
), log AS (
  INSERT INTO events (job_id, client_id, occurred_at, tx, called_back, seq, event_id, event_name, prev_state, next_state, attempt, data)
  SELECT s.job_id, s.client_id, s.at, s.tx, s.called_back, seq - 1, uuid7(at), 'job.queued', 'CREATED', 'QUEUED', number, data
    FROM stamped s WHERE prev = 'CREATED'
  UNION ALL
  SELECT s.job_id, s.client_id, s.at, s.tx, s.called_back, seq - 1, uuid7(at), 'event.emitted', NULL, NULL, number, data || emit
    FROM stamped s WHERE emit IS NOT NULL
  UNION ALL
  SELECT s.job_id, s.client_id, s.at, s.tx, s.called_back, seq, event_id, 'job.' || lower(next),
    CASE prev WHEN 'CREATED' THEN 'QUEUED' ELSE prev END, next, number,
    CASE WHEN code IS NULL THEN data ELSE data || jsonb_build_object('code', code, 'reason', reason) END FROM stamped s
  UNION ALL
  SELECT s.job_id, s.client_id, s.at, s.tx, s.called_back, seq + 1, uuid7(at), 'job.retries_exhausted', NULL, NULL, number, data
    FROM stamped s WHERE exhausted
  UNION ALL
  SELECT s.job_id, s.client_id, s.at, s.tx, s.called_back, seq + 1 + exhausted::int, uuid7(at), 'job.retried', 'FAILED', 'QUEUED',
    number + 1, data FROM stamped s
    WHERE retried
)
SELECT * FROM changed

-- fragment: withinLimit
-- Accepts all starts and finishes. It accepts the claims of each client's oldest jobs, until workers hold @most jobs of the client. No
-- claim is accepted while an older job of the client is throttled. If the claim of a QUEUED job is not accepted, the job is throttled: its
-- run_at becomes a time that never comes. resumeThrottled makes throttled jobs due again. A CREATED job above the limit stays as it is
-- until it is QUEUED.
--
-- Counts the held jobs of all clients by the index jobs_held, because a search for one client would read all jobs of that client. Looks for
-- older throttled jobs in the index jobs_throttled.
held AS MATERIALIZED (
  SELECT client_id, count(*) AS n FROM jobs WHERE worker_id IS NOT NULL GROUP BY client_id
), placed AS MATERIALIZED (
  SELECT c.*, c.next <> 'ASSIGNED'
    OR coalesce(held.n, 0) + row_number() OVER (PARTITION BY c.client_id, c.next = 'ASSIGNED' ORDER BY c.job_id) <= @most
      AND NOT EXISTS (SELECT FROM jobs WHERE {{throttled}} AND jobs.client_id = c.client_id AND jobs.job_id < c.job_id) AS fits
  FROM {{candidates}} c LEFT JOIN held ON held.client_id = c.client_id
), ready AS MATERIALIZED (
  SELECT * FROM placed WHERE fits
), throttled AS (
  UPDATE jobs SET run_at = {{throttledUntil}} FROM placed p WHERE jobs.job_id = p.job_id AND NOT p.fits AND p.prev = 'QUEUED'
),

-- name: lockClaims
-- Takes an advisory lock, so that only one transaction at a time counts the jobs that workers hold and claims more. stepWithin runs after
-- this statement. So it sees everything that earlier holders of the lock have committed.
SELECT pg_advisory_xact_lock(hashtextextended('claims', 'jobs'::regclass::oid::bigint))

-- name: claimedBefore
-- Finds the jobs that the claiming worker already holds. The answer to its earlier claim may have been lost. Locks nothing. Finds the jobs
-- by primary key. IS NOT DISTINCT FROM stops the planner from using the index jobs_held instead.
-- Parameters: @ids, @attempts, @workers
SELECT false, jobs.fence, jobs.queued_at, {{jobColumns}}
FROM unnest(@ids::uuid[], @attempts::int[], @workers::uuid[]) AS i(id, attempt, worker) JOIN jobs ON jobs.job_id = i.id
WHERE jobs.state IN ('ASSIGNED', 'RUNNING') AND jobs.attempt = i.attempt AND jobs.worker_id IS NOT DISTINCT FROM i.worker

-- name: whyUnchanged
-- Reads the values that the conditions of stepJobs check, to explain steps without a row. For a claim, @workers has the worker that tried
-- to claim. For a start or a finish, the entry is null, and the statement checks the worker that holds the job. Locks nothing; finds the
-- jobs by primary key. No row: the job does not exist.
-- Parameters: @ids, @workers
SELECT j.job_id, j.state, j.attempt, j.fence, j.started_at, greatest(j.run_at - clock_timestamp(), interval '0'),
  j.run_at >= {{throttledUntil}},
  j.run_at >= {{pausedUntil}} AND j.run_at < {{throttledUntil}}, EXISTS (SELECT FROM pauses p WHERE {{pausesJob}}),
  EXISTS (SELECT FROM pauses p WHERE p.mode = 'PAUSE' AND p.scope = 'ALL' OR p.scope = 'WORKER' AND p.target = i.worker::text),
  EXISTS (SELECT FROM workers w WHERE w.worker_id = coalesce(i.worker, j.worker_id) AND w.state = 'ALIVE'
    AND w.expires_at > pg_catalog.clock_timestamp())
FROM unnest(@ids::uuid[], @workers::uuid[]) AS i(id, worker) JOIN jobs j ON j.job_id = i.id

-- name: resumeThrottled
-- Makes throttled jobs due again, the oldest of each client first. For each client, stops as soon as @most jobs are held by workers or
-- resumed. A due job counts as resumed if it is older than all throttled jobs of the client.
--
-- Walks the index jobs_throttled from client to client. If there are throttled jobs, counts the jobs that workers hold by jobs_held.
-- Counts resumed jobs among the first @looked entries of jobs_waiting. Locks changed rows in the order of jobs_throttled, and skips rows
-- that another transaction has locked. Raises dispatch, which is part of the name of a job's task. So the new task has a new name, even
-- if Redis still has a task with the old name.
-- Parameters: @most, @looked, @limit
WITH RECURSIVE clients AS (
  (SELECT client_id, job_id FROM jobs WHERE {{throttled}} ORDER BY client_id, job_id LIMIT 1)
  UNION ALL
  SELECT n.client_id, n.job_id FROM clients c CROSS JOIN LATERAL (
    SELECT client_id, job_id FROM jobs WHERE {{throttled}} AND jobs.client_id > c.client_id ORDER BY client_id, job_id LIMIT 1) n
), held AS MATERIALIZED (
  SELECT client_id, count(*) AS n FROM jobs WHERE worker_id IS NOT NULL AND EXISTS (SELECT FROM clients) GROUP BY client_id
), waiting AS MATERIALIZED (
  SELECT client_id, job_id FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL AND run_at <= now() AND EXISTS (SELECT FROM clients)
  ORDER BY run_at, job_id LIMIT @looked
), places AS MATERIALIZED (
  SELECT c.client_id, @most::int - coalesce((SELECT n FROM held WHERE held.client_id = c.client_id), 0)
    - (SELECT count(*) FROM waiting w WHERE w.client_id = c.client_id AND w.job_id < c.job_id) AS free
  FROM clients c
), chosen AS MATERIALIZED (
  SELECT t.job_id FROM places p CROSS JOIN LATERAL (
    SELECT job_id FROM jobs WHERE {{throttled}} AND jobs.client_id = p.client_id ORDER BY jobs.client_id, jobs.job_id
      LIMIT greatest(p.free, 0) FOR NO KEY UPDATE SKIP LOCKED) t
  LIMIT @limit
)
UPDATE jobs SET run_at = queued_at, dispatch = dispatch + 1 FROM chosen c WHERE jobs.job_id = c.job_id
RETURNING {{taskColumns}}

-- name: parkJobs
-- Parks QUEUED jobs that a pause stops: their run_at becomes a time that never comes. resumeJobs makes them due again. Locks the jobs in
-- job_id order, found by primary key, and skips jobs that another transaction has locked.
-- Parameters: @ids
WITH stopped AS MATERIALIZED (
  SELECT j.job_id FROM jobs j WHERE j.job_id = ANY (@ids::uuid[]) AND j.state = 'QUEUED' AND j.run_at <= clock_timestamp()
    AND EXISTS (SELECT FROM pauses p WHERE {{pausesJob}})
  ORDER BY j.job_id FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE jobs SET run_at = {{pausedUntil}} FROM stopped s WHERE jobs.job_id = s.job_id

-- name: step of stepJobs
-- {{candidates}} => ready
-- {{within}} =>

-- name: stepWithin of stepJobs
-- {{candidates}} => due
-- {{within}} => {{withinLimit}}

-- fragment: stepColumns of jobColumns
-- With the client's data only if a claim needs it.
-- jobs.definition => CASE s.next WHEN 'ASSIGNED' THEN jobs.definition END
-- jobs.params => CASE s.next WHEN 'ASSIGNED' THEN jobs.params END
