-- name: nextLook
-- Gives how long it is until a schedule is to be looked at: the first row of the index schedules_due. Locks nothing. No row:
-- there is none.
SELECT look_at - now() FROM schedules WHERE look_at IS NOT NULL ORDER BY look_at LIMIT 1

-- name: dueSchedules
-- Reads the schedules that are to be looked at, in turns of their clients, each one's earliest first, of those that come first in the
-- index schedules_due. Whether an earlier run is not final is asked of the index jobs_schedule_open, where it matters. Locks nothing.
-- Parameters: @limit
SELECT now(), overlap <> 'allow' AND EXISTS (
  SELECT FROM jobs j WHERE j.schedule_id = schedules.schedule_id AND j.finished_at IS NULL), {{jumped}}, {{scheduleColumns}}
FROM (
  SELECT *, row_number() OVER (PARTITION BY client_id ORDER BY look_at) AS turn
  FROM (SELECT * FROM schedules WHERE look_at <= now() ORDER BY look_at LIMIT 10000) AS due
) AS schedules ORDER BY turn, look_at LIMIT @limit

-- name: advanceSchedules
-- Writes how far schedules have come, of those that are as they were read. Locks them, found by primary key, and skips those
-- that another transaction has locked. What it does not answer with was changed meanwhile.
-- Parameters: @schedules, @versions, @due_times, @look_times, @pending_times, @retrying, @runs, @missed, @skipped, @last_due_times,
--   @last_jobs, @errors
WITH locked AS MATERIALIZED (
  SELECT i.* FROM unnest(@schedules::uuid[], @versions::bigint[], @due_times::timestamptz[], @look_times::timestamptz[],
    @pending_times::timestamptz[], @retrying::boolean[], @runs::bigint[], @missed::bigint[], @skipped::bigint[],
    @last_due_times::timestamptz[], @last_jobs::uuid[], @errors::jsonb[])
  AS i(schedule_id, version, due_at, look_at, pending_for, retrying, runs, missed, skipped, last_due_at, last_job_id, last_error)
  CROSS JOIN LATERAL (SELECT FROM schedules s WHERE s.schedule_id = i.schedule_id AND s.version = i.version FOR UPDATE SKIP LOCKED) AS l
)
UPDATE schedules s SET due_at = i.due_at, look_at = i.look_at, pending_for = i.pending_for, retrying = i.retrying, runs = i.runs,
  missed = i.missed, skipped = i.skipped, last_due_at = i.last_due_at, last_job_id = i.last_job_id, last_error = i.last_error,
  version = s.version + 1
FROM locked i WHERE s.schedule_id = i.schedule_id
RETURNING s.schedule_id

-- name: deferSchedules
-- Has schedules looked at again later, found by primary key: what could not be done about them may be done then. One that was
-- changed meanwhile stays as it is.
-- Parameters: @schedules, @versions, @wait
UPDATE schedules s SET look_at = now() + @wait::interval, version = s.version + 1
FROM unnest(@schedules::uuid[], @versions::bigint[]) AS i(schedule_id, version)
WHERE s.schedule_id = i.schedule_id AND s.version = i.version AND s.look_at IS NOT NULL
