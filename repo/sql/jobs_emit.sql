-- name: emitEvent
-- Adds event.emitted to the log of a RUNNING job, under its lease, if the attempt has emitted @before events: one that is
-- asked for twice, because an answer was lost, is written once. Those are counted in the statement's snapshot, so it
-- writes nothing, and says null, if another transaction changed the row between the snapshot and the lock.
--
-- Locks the job row, found by primary key, and changes no column that an index has; counts the job's own events by
-- primary key. No row: the claim is no longer current. Trigger: events_delivered writes the deliveries.
-- Parameters: @job, @attempt, @fence, @before, @event_id, @emit, @due
WITH ready AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.event_seq, j.event_tx, j.attempt, j.updated_at, j.callback IS NOT NULL AS called_back,
    event_data(j.work_kind, j.definition) AS data, @due::timestamptz AS due
  FROM jobs j
  WHERE j.job_id = @job AND j.state = 'RUNNING' AND j.attempt = @attempt AND j.fence = @fence
  FOR NO KEY UPDATE OF j
), {{stamped}}, seen AS MATERIALIZED (
  SELECT (SELECT event_seq FROM jobs WHERE job_id = @job) AS seq,
    (SELECT count(*) FROM events WHERE job_id = @job AND attempt = @attempt AND event_name = 'event.emitted') AS emitted
), fresh AS MATERIALIZED (
  SELECT stamped.* FROM stamped, seen WHERE seen.seq = stamped.event_seq AND seen.emitted = @before
), changed AS (
  UPDATE jobs SET updated_at = f.at, event_seq = f.event_seq + 1, event_tx = f.tx FROM fresh f WHERE jobs.job_id = f.job_id
), log AS (
  INSERT INTO events (job_id, client_id, occurred_at, tx, called_back, seq, event_id, event_name, attempt, data)
  SELECT job_id, client_id, at, tx, called_back, event_seq + 1, @event_id, 'event.emitted', attempt, data || @emit::jsonb FROM fresh
)
SELECT CASE WHEN seen.seq = stamped.event_seq THEN EXISTS (SELECT FROM fresh) END FROM stamped, seen
