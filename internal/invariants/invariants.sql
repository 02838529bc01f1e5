-- These rules hold at any moment. Rules that table constraints enforce are omitted. Each query returns violations. A violation is a job id
-- (NULL if the rule is not about a job) and details. The line above a query has the key of an invariant of the simulator, and describes the
-- violation.
--
-- Parameters:
-- @now is the service time.
-- @settled: all effects of changes before this time must be in the tables.
-- @skew is the largest difference between the clocks of two processes.
-- @follow is the longest time from a change to the end of its effects, such as a batch's completion.
-- @recent is the longest time that a transaction stays open.

-- accepted: a row refers to a job that does not exist
SELECT job_id AS job, what || ' without a job' AS detail FROM (
  SELECT job_id, 'an event' AS what FROM events UNION SELECT job_id, 'a report' FROM reports
  UNION SELECT job_id, 'a result' FROM results UNION SELECT job_id, 'an outcome to publish' FROM outcome_outbox
  UNION SELECT job_id, 'a delivery' FROM deliveries WHERE job_id IS NOT NULL) AS child
WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.job_id = child.job_id);

-- log: an event is out of order
SELECT job_id, format('event %s (%s) ', seq, event_name) || CASE
    WHEN seq <> n THEN format('should have seq %s', n)
    WHEN occurred_at < before THEN 'is earlier than the one before'
    ELSE format('is of attempt %s, expected %s', attempt, expected) END
FROM (SELECT *, row_number() OVER log AS n, lag(occurred_at) OVER log AS before,
    1 + count(*) FILTER (WHERE event_name = 'job.retried') OVER log AS expected
  FROM events WINDOW log AS (PARTITION BY job_id ORDER BY seq)) e
WHERE seq <> n OR occurred_at < before OR attempt <> expected;

-- log: an event records a state change that is not allowed
SELECT job_id, format('event %s (%s) leads from %s to %s, but the job was %s', seq, event_name, coalesce(prev_state, 'nothing'),
  coalesce(next_state, 'nothing'), coalesce(was, 'not there'))
FROM (SELECT *, lag(next_state) OVER (PARTITION BY job_id ORDER BY seq) AS was FROM events
  WHERE event_name NOT IN ('event.emitted', 'job.retries_exhausted') OR next_state IS NOT NULL) e
WHERE prev_state IS DISTINCT FROM was OR (coalesce(prev_state, ''), coalesce(next_state, ''), event_name) NOT IN (
  ('', 'CREATED', 'job.created'), ('CREATED', 'QUEUED', 'job.queued'), ('CREATED', 'CANCELED', 'job.canceled'),
  ('QUEUED', 'ASSIGNED', 'job.assigned'), ('QUEUED', 'CANCELED', 'job.canceled'), ('ASSIGNED', 'RUNNING', 'job.running'),
  ('ASSIGNED', 'CANCELED', 'job.canceled'), ('ASSIGNED', 'QUEUED', 'job.lease_expired'), ('RUNNING', 'SUCCEEDED', 'job.succeeded'),
  ('RUNNING', 'FAILED', 'job.failed'), ('RUNNING', 'CANCELED', 'job.canceled'), ('FAILED', 'QUEUED', 'job.retried'));

-- log: a job differs from its last event
SELECT job_id, format('the job is %s at attempt %s with event_seq %s, updated at %s; its log ends in %s at attempt %s with %s events at %s',
  j.state, j.attempt, j.event_seq, j.updated_at, e.state, e.attempt, coalesce(e.n, 0), e.at)
FROM jobs j LEFT JOIN (
  SELECT job_id, count(*) AS n, max(attempt) AS attempt, max(occurred_at) AS at,
    (array_agg(next_state ORDER BY seq DESC) FILTER (WHERE next_state IS NOT NULL))[1] AS state
  FROM events GROUP BY job_id) e USING (job_id)
WHERE (j.state, j.attempt, j.event_seq, j.updated_at) IS DISTINCT FROM (e.state, e.attempt, e.n, e.at);

-- log: a job's times differ from those of its events
SELECT DISTINCT job_id, 'assigned_at, queued_at or finished_at is not the time of the event'
FROM jobs j JOIN events e USING (job_id, attempt)
WHERE j.finished_at IS NOT NULL AND (event_name = 'job.assigned' AND occurred_at > assigned_at
  OR next_state = state AND occurred_at <> finished_at
  OR event_name = 'job.queued' AND j.attempt = 1 AND lease_expiries = 0 AND occurred_at <> queued_at);

-- log: two events have the same id
SELECT min(job_id::text)::uuid, format('event %s', event_id) FROM events GROUP BY event_id HAVING count(*) > 1;

-- final: an attempt has no end or several ends, or its report differs
WITH ended AS (
  SELECT job_id, attempt, count(*) FILTER (WHERE final) AS ends, max(CASE WHEN final THEN next_state END) AS state, max(seq) AS last
  FROM (SELECT *, next_state IN ('SUCCEEDED', 'FAILED', 'CANCELED') AS final FROM events) e GROUP BY job_id, attempt),
attempts AS (
  SELECT job_id, n AS attempt, n < attempt OR finished_at IS NOT NULL AS over, n < attempt AS retried
  FROM jobs, generate_series(1, attempt) n)
SELECT job_id, format('attempt %s: %s ends (%s), expected %s, and its report says %s with events up to %s', attempt,
  coalesce(ends, 0), e.state, coalesce(over::int, 0), coalesce(r.outcome, 'nothing'), r.event_seq)
FROM attempts FULL JOIN ended e USING (job_id, attempt) FULL JOIN reports r USING (job_id, attempt)
WHERE coalesce(over::int, 0) <> coalesce(ends, 0) OR retried AND e.state <> 'FAILED'
  OR r.outcome IS DISTINCT FROM CASE e.state WHEN 'SUCCEEDED' THEN 'SUCCESS' ELSE e.state END OR r.event_seq <> e.last;

-- final: a SUCCEEDED job has no result of its last attempt, or a job in another state has a result
SELECT job_id, format('the job is %s at attempt %s and has %s', state, j.attempt,
  coalesce('a result of attempt ' || r.attempt, 'no result'))
FROM jobs j LEFT JOIN results r USING (job_id)
WHERE CASE state WHEN 'SUCCEEDED' THEN j.attempt END IS DISTINCT FROM r.attempt;

-- final: a job's failure differs from its report
SELECT job_id, 'the failure or finished_at differ' FROM jobs j JOIN reports r USING (job_id, attempt)
WHERE j.finished_at IS NOT NULL
  AND (j.failure_reason, j.failure_code, j.failure_retryable, j.failure_retry_after, j.failure_stage, j.failure_detail, j.finished_at)
    IS DISTINCT FROM
    (r.failure_reason, r.failure_code, r.failure_retryable, r.failure_retry_after, r.failure_stage, r.failure_detail, r.finished_at);

-- final: a completed batch has no event or several, or an open batch has an event
SELECT NULL::uuid, format('batch %s, completed at %s, has %s events', batch_id, completed_at, coalesce(n, 0)) FROM batches b
LEFT JOIN (SELECT batch_id, client_id, count(*) AS n FROM client_events GROUP BY batch_id, client_id) e USING (batch_id, client_id)
WHERE (completed_at IS NOT NULL)::int <> coalesce(n, 0);

-- final: a batch is still open although all its jobs are finished
SELECT NULL::uuid, format('batch %s', batch_id) FROM batches b WHERE completed_at IS NULL AND created_at < @settled
AND NOT EXISTS (SELECT FROM jobs j WHERE j.batch_id = b.batch_id AND (finished_at IS NULL OR finished_at > @settled));

-- final: a batch's counts, event and items differ
SELECT NULL::uuid, format('batch %s', batch_id) FROM batches b JOIN client_events e USING (batch_id)
WHERE occurred_at <> completed_at OR succeeded + failed + canceled <> jsonb_array_length(items)
  OR NOT data @> jsonb_build_object('status', status, 'succeeded', succeeded, 'failed', failed, 'canceled', canceled,
    'total', jsonb_array_length(items));

-- final: an unpublished outcome has no report
SELECT job_id, format('attempt %s', attempt) FROM outcome_outbox o LEFT JOIN reports r USING (job_id, attempt) WHERE r.outcome IS NULL;

-- early: a job was queued or started too early
SELECT job_id, format('event %s (%s) came %s before execution_at', seq, event_name, execution_at - occurred_at)
FROM events JOIN jobs USING (job_id)
WHERE next_state IN ('QUEUED', 'ASSIGNED', 'RUNNING') AND occurred_at < execution_at
UNION ALL SELECT job_id, 'the job started before run_at' FROM jobs WHERE started_at < run_at AND lease_expiries = 0;

-- fence: a job's number of claims or lost leases differs from its events
SELECT job_id, format('the job was claimed %s times and lost %s leases, its fence is %s and it counts %s', claims, lost, fence,
  lease_expiries)
FROM jobs JOIN (SELECT job_id, count(*) FILTER (WHERE next_state = 'ASSIGNED') AS claims,
    count(*) FILTER (WHERE event_name = 'job.lease_expired') AS lost FROM events GROUP BY job_id) e USING (job_id)
WHERE (claims, lost) <> (fence, lease_expiries);

-- fence: an attempt's times differ from those of its last claim
WITH claim AS (
  SELECT job_id, attempt, max(occurred_at) FILTER (WHERE next_state = 'RUNNING') AS started,
    max(occurred_at) FILTER (WHERE next_state IN ('SUCCEEDED', 'FAILED', 'CANCELED')) AS finished
  FROM events GROUP BY job_id, attempt)
SELECT job_id, format('the report of attempt %s is from %s to %s, the attempt was from %s to %s', attempt, started_at, finished_at,
  started, finished) FROM reports JOIN claim USING (job_id, attempt) WHERE (started_at, finished_at) IS DISTINCT FROM (started, finished)
UNION ALL SELECT job_id, format('the job has started_at %s, its last claim started at %s', started_at, started)
FROM jobs JOIN claim USING (job_id, attempt) WHERE started_at <> started;

-- duration: a report's duration differs from its times
SELECT job_id, format('attempt %s took %s, its report says %s ms', attempt, finished_at - started_at, duration_ms) FROM reports
WHERE finished_at < started_at
  OR abs(extract(epoch FROM finished_at - coalesce(started_at, finished_at)) * 1000 - duration_ms) > 1;

-- answers: a result's hash does not match its body
SELECT job_id, format('a result of %s bytes', size) FROM results WHERE sha256(body) <> sha256;

-- key: the resource of an idempotency key does not exist
SELECT NULL::uuid, format('key %s of client %s', key, client_id) FROM idempotency_keys k
WHERE (resource_id IS NOT NULL AND endpoint IN ('jobs', 'batch', 'webhooks') OR answer_status NOT BETWEEN 200 AND 299)
  AND NOT EXISTS (SELECT FROM jobs WHERE job_id = k.resource_id) AND NOT EXISTS (SELECT FROM batches WHERE batch_id = k.resource_id)
  AND NOT EXISTS (SELECT FROM webhooks WHERE webhook_id = k.resource_id)
  AND NOT EXISTS (SELECT FROM tombstones WHERE job_id = k.resource_id);

-- key: two idempotency keys have the same resource
SELECT job_id, format('%s keys for %s', count(*), resource_id) FROM idempotency_keys LEFT JOIN jobs ON job_id = resource_id
WHERE expires_at > @now GROUP BY resource_id, job_id HAVING count(resource_id) > 1;

-- key: an idempotency key has a different client than its resource, or was created after it
SELECT j.job_id, format('key %s for %s', key, resource_id) FROM idempotency_keys k
LEFT JOIN jobs j ON j.job_id = resource_id LEFT JOIN batches b ON b.batch_id = resource_id
WHERE coalesce(j.client_id, b.client_id) <> k.client_id OR k.created_at > coalesce(j.created_at, b.created_at) + @skew::interval
  OR expires_at <= k.created_at;

-- stream: an event has a different client than its job, or its transaction id is out of order
SELECT job_id, format('event %s (%s)', seq, event_name)
FROM (SELECT *, lag(tx) OVER (PARTITION BY job_id ORDER BY seq) AS before FROM events) e JOIN jobs j USING (job_id)
WHERE e.client_id <> j.client_id OR before > tx OR seq = event_seq AND tx <> event_tx;

-- stream: an event's data differs from its job
SELECT job_id, format('event %s (%s)', seq, event_name) FROM events JOIN jobs USING (job_id)
WHERE NOT data ? 'work_kind' OR event_name <> 'event.emitted' AND (data -> 'work_kind' IS DISTINCT FROM to_jsonb(work_kind)
  OR definition IS NOT NULL AND data -> 'duration_ms' IS DISTINCT FROM definition -> 'duration_ms');

-- delivery: a state change has no delivery to the job's callback
SELECT job_id, format('event %s (%s)', e.seq, e.event_name) FROM events e JOIN jobs j USING (job_id)
LEFT JOIN deliveries d USING (job_id, event_id)
WHERE callback IS NOT NULL AND (next_state IS NOT NULL OR e.event_name = 'event.emitted')
GROUP BY job_id, e.seq, e.event_name HAVING count(*) FILTER (WHERE url = callback) <> 1;

-- delivery: an event has no delivery to a subscribed webhook
SELECT e.job_id, format('event %s (%s) and webhook %s', e.seq, e.event_name, w.webhook_id) FROM events e JOIN webhooks w USING (client_id)
LEFT JOIN deliveries d ON d.webhook_id = w.webhook_id AND d.event_id = e.event_id
WHERE w.created_at + @recent::interval < e.occurred_at AND w.updated_at = w.created_at AND w.disabled_at IS NULL AND w.deleted_at IS NULL
  AND w.events && ARRAY['*', split_part(e.event_name, '.', 1) || '.*', e.event_name] AND d.delivery_id IS NULL;

-- delivery: a delivery differs from its event
SELECT d.job_id, format('delivery %s of event %s (%s)', delivery_id, d.seq, d.event_name) FROM deliveries d
LEFT JOIN events e USING (job_id, seq) LEFT JOIN client_events c ON c.event_id = d.event_id
WHERE (d.event_id, d.event_name) IS DISTINCT FROM (coalesce(e.event_id, c.event_id), coalesce(e.event_name, c.event_name));

-- delivery: a delivery's target differs from its webhook or job
SELECT d.job_id, format('delivery %s', delivery_id)
FROM deliveries d LEFT JOIN jobs j USING (job_id) LEFT JOIN webhooks w USING (webhook_id)
WHERE d.url IS DISTINCT FROM CASE WHEN d.webhook_id IS NULL THEN callback END
  OR d.webhook_id IS NOT NULL AND (endpoint_id <> d.webhook_id OR w.webhook_id IS NULL) OR settled_at < d.created_at - interval '1 s';

-- foreign: a delivery has a different client than its event or webhook
SELECT d.job_id, format('delivery %s', delivery_id) FROM deliveries d LEFT JOIN jobs j USING (job_id)
LEFT JOIN webhooks w USING (webhook_id) LEFT JOIN client_events c USING (event_id)
WHERE d.client_id <> coalesce(j.client_id, c.client_id) OR w.client_id <> d.client_id;

-- delivery: a delivery's number of attempts differs from the recorded attempts
SELECT d.job_id, format('delivery %s counts %s attempts, %s up to number %s are recorded', delivery_id, attempts, coalesce(n, 0), last)
FROM deliveries d FULL JOIN (SELECT delivery_id, count(*) AS n, max(number) AS last FROM delivery_attempts GROUP BY delivery_id) a
USING (delivery_id) WHERE attempts IS DISTINCT FROM coalesce(n, 0) OR last <> n;

-- delivery: a delivery differs from its last attempt
SELECT d.job_id, format('delivery %s is %s with status %s and error %s, its last attempt has %s and %s', delivery_id, state, last_status,
  last_error, status, error)
FROM deliveries d LEFT JOIN delivery_attempts a USING (delivery_id) WHERE (a.number = d.attempts OR a.number IS NULL)
AND (state = 'DELIVERED' AND (status IS NULL OR status NOT BETWEEN 200 AND 299 OR error IS NOT NULL)
  OR a.number IS NOT NULL AND (last_status IS DISTINCT FROM status
    OR last_error IS DISTINCT FROM error AND coalesce(last_error, '') NOT IN ('WEBHOOK_DISABLED', 'WEBHOOK_DELETED')
    OR tried_at NOT BETWEEN started_at - @skew::interval AND started_at + @follow::interval));
