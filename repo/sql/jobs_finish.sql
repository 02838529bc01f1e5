-- name: finishJobs
-- Moves RUNNING jobs to SUCCEEDED or FAILED under their lease; with a retry wait, on to QUEUED as the next attempt.
-- Writes state, events, report and result in one statement.
--
-- Locks the job rows in job_id order, found by primary key, and skips those that another session has locked. No row:
-- nothing was written for that item, see whyUnchanged.
--
-- The events of an attempt's end, in order: event.emitted, the final one, job.retries_exhausted, job.retried; the
-- report's log ends before job.retried, which belongs to the next attempt. @event_ids are those of the final events.
--
-- Triggers: events_delivered on events writes the deliveries to webhooks and the callback; reports_published on
-- reports writes outcome_outbox if the session has forgerun.outcome_stream on.
-- Parameters: @ids, @attempts, @fences, @states, @reasons, @codes, @retryables, @retry_afters, @stages, @details,
--   @retry_waits, @exhausted, @emits, @media_types, @sha256s, @bodies, @result_ttl, @event_ids
WITH input AS MATERIALIZED (
  SELECT * FROM unnest(@ids::uuid[], @attempts::int[], @fences::bigint[], @states::text[],
    @reasons::text[], @codes::text[], @retryables::boolean[], @retry_afters::int[], @stages::text[], @details::text[],
    @retry_waits::interval[], @exhausted::boolean[], @emits::jsonb[],
    @media_types::text[], @sha256s::bytea[], @bodies::bytea[], @event_ids::uuid[])
  AS i(id, attempt, fence, next, reason, code, retryable, retry_after, stage, detail,
    retry_wait, exhausted, emit, media_type, sha256, body, event_id)
), ready AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.batch_id, j.event_seq, j.event_tx, j.attempt AS number, j.started_at, j.updated_at, j.worker_id,
    j.work_kind, j.traceparent, i.*, event_data(j.work_kind, j.definition) AS data, j.callback IS NOT NULL AS called_back,
    CASE WHEN i.emit IS NULL THEN 0 ELSE 1 END AS emitted
  FROM jobs j JOIN input i ON j.job_id = i.id
  WHERE j.state = 'RUNNING' AND j.attempt = i.attempt AND j.fence = i.fence
  ORDER BY j.job_id FOR NO KEY UPDATE OF j SKIP LOCKED
), {{stamped}}, numbered AS MATERIALIZED (
  SELECT *, event_seq + emitted + 1 + CASE WHEN exhausted THEN 1 ELSE 0 END AS last_seq,
    (extract(epoch FROM at - started_at) * 1000)::bigint AS duration_ms, at + retry_wait AS retry_at
  FROM stamped
), changed AS (
  UPDATE jobs SET updated_at = s.at, worker_id = NULL, event_tx = s.tx,
    event_seq = s.last_seq + CASE WHEN s.retry_at IS NULL THEN 0 ELSE 1 END,
    state = CASE WHEN s.retry_at IS NULL THEN s.next ELSE 'QUEUED' END,
    outcome = CASE WHEN s.retry_at IS NULL THEN CASE s.next WHEN 'SUCCEEDED' THEN 'SUCCESS' ELSE 'FAILED' END END,
    finished_at = CASE WHEN s.retry_at IS NULL THEN s.at END,
    started_at = CASE WHEN s.retry_at IS NULL THEN jobs.started_at END,
    failure_reason = CASE WHEN s.retry_at IS NULL THEN s.reason END,
    failure_code = CASE WHEN s.retry_at IS NULL THEN s.code END,
    failure_retryable = CASE WHEN s.retry_at IS NULL THEN s.retryable END,
    failure_retry_after = CASE WHEN s.retry_at IS NULL THEN s.retry_after END,
    failure_stage = CASE WHEN s.retry_at IS NULL THEN s.stage END,
    failure_detail = CASE WHEN s.retry_at IS NULL THEN s.detail END,
    attempt = CASE WHEN s.retry_at IS NULL THEN s.number ELSE s.number + 1 END,
    run_at = coalesce(s.retry_at, jobs.run_at),
    queued_at = CASE WHEN s.retry_at IS NULL THEN jobs.queued_at ELSE s.at END,
    dispatch = CASE WHEN s.retry_at IS NULL THEN jobs.dispatch ELSE 0 END,
    dispatch_epoch = CASE WHEN s.retry_at IS NULL THEN jobs.dispatch_epoch END
  FROM numbered s WHERE jobs.job_id = s.job_id
), report AS (
  INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq, worker_id,
    failure_reason, failure_code, failure_retryable, failure_retry_after, failure_stage, failure_detail)
  SELECT job_id, number, CASE next WHEN 'SUCCEEDED' THEN 'SUCCESS' ELSE 'FAILED' END, started_at, at, duration_ms, last_seq, worker_id,
    reason, code, retryable, retry_after, stage, detail
  FROM numbered
), result AS (
  INSERT INTO results (job_id, attempt, media_type, size, sha256, expires_at, body)
  SELECT job_id, number, media_type, length(body), sha256, at + @result_ttl::interval, body FROM numbered WHERE body IS NOT NULL
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data, called_back)
  SELECT s.job_id, s.client_id, e.seq, coalesce(e.id, uuid7(s.at)), e.name, e.prev, e.next, e.attempt, s.at, s.tx,
    coalesce(s.data || e.extra, s.data), s.called_back
  FROM numbered s CROSS JOIN LATERAL (VALUES
    (s.emit IS NOT NULL, s.event_seq + 1, 'event.emitted', NULL, NULL, s.number, s.emit, NULL),
    (true, s.event_seq + s.emitted + 1, CASE s.next WHEN 'SUCCEEDED' THEN 'job.succeeded' ELSE 'job.failed' END,
      'RUNNING', s.next, s.number,
      CASE WHEN s.code IS NOT NULL THEN jsonb_build_object('code', s.code, 'reason', s.reason) END, s.event_id),
    (s.exhausted, s.last_seq, 'job.retries_exhausted', NULL, NULL, s.number, NULL, NULL),
    (s.retry_at IS NOT NULL, s.last_seq + 1, 'job.retried', 'FAILED', 'QUEUED', s.number + 1, NULL, NULL)
  ) AS e(present, seq, name, prev, next, attempt, extra, id) WHERE e.present
)
SELECT job_id, client_id, batch_id, work_kind, duration_ms, retry_at, coalesce(traceparent, '') FROM numbered
