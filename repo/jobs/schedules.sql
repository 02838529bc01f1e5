-- name: lockClientsSchedules
-- Lets one transaction at a time add a schedule for a client, by an advisory lock: only so can they be counted.
-- Parameters: @client
SELECT pg_advisory_xact_lock(hashtextextended('schedules of ' || @client::text, 0))

-- name: countSchedules
-- Counts a client's schedules by the index schedules_client, and gives the time.
-- Parameters: @client
SELECT count(*)::int, clock_timestamp() FROM schedules WHERE client_id = @client

-- name: insertSchedule
-- Writes a schedule. Trigger: schedules_of_a_client.
-- Parameters: @schedule, @client, @request_id, @created_at, @name, @cron, @time_zone, @interval_ms, @jitter_ms, @start_at, @end_at,
--   @overlap, @catch_up, @catch_up_max, @job, @language, @paused, @due_at, @look_at
INSERT INTO schedules (schedule_id, client_id, request_id, created_at, updated_at, name, cron, time_zone, interval_ms, jitter_ms,
  start_at, end_at, overlap, catch_up, catch_up_max, job, language, paused, due_at, look_at)
VALUES (@schedule, @client, @request_id, @created_at, @created_at, @name, @cron, @time_zone, @interval_ms, @jitter_ms,
  @start_at, @end_at, @overlap, @catch_up, @catch_up_max, @job, @language, @paused, @due_at, @look_at)
RETURNING {{scheduleColumns}}

-- name: readSchedule
-- Reads a schedule, found by primary key; with null for the client anybody's. Locks nothing. No row: there is none, or it is
-- not the client's.
-- Parameters: @schedule, @client
SELECT {{scheduleColumns}} FROM schedules WHERE schedule_id = @schedule AND (@client::uuid IS NULL OR client_id IS NOT DISTINCT
  FROM @client)

-- name: lockSchedule
-- Reads a schedule as readSchedule does, locks it, and gives the time.
-- Parameters: @schedule, @client
SELECT clock_timestamp() AS now, {{scheduleColumns}} FROM schedules WHERE schedule_id = @schedule
  AND (@client::uuid IS NULL OR client_id IS NOT DISTINCT FROM @client) FOR UPDATE

-- name: updateSchedule
-- Writes what a client or operator may change of a schedule, and what follows from it. The caller has locked it.
-- Parameters: @schedule, @name, @cron, @time_zone, @interval_ms, @jitter_ms, @start_at, @end_at, @overlap, @catch_up,
--   @catch_up_max, @job, @language, @paused, @due_at, @look_at, @pending_for, @retrying
UPDATE schedules SET name = @name, cron = @cron, time_zone = @time_zone, interval_ms = @interval_ms, jitter_ms = @jitter_ms,
  start_at = @start_at, end_at = @end_at, overlap = @overlap, catch_up = @catch_up, catch_up_max = @catch_up_max, job = @job,
  language = @language, paused = @paused, due_at = @due_at, look_at = @look_at, pending_for = @pending_for, retrying = @retrying,
  updated_at = clock_timestamp(), version = version + 1
WHERE schedule_id = @schedule RETURNING {{scheduleColumns}}

-- name: deleteSchedule
-- Removes a schedule, found by primary key; its jobs stay. No row: the client has no such schedule.
-- Parameters: @schedule, @client
DELETE FROM schedules WHERE schedule_id = @schedule AND client_id IS NOT DISTINCT FROM @client

-- name: listSchedules
-- Lists a client's schedules, the newest first, along the index schedules_client. Locks nothing.
-- Parameters: @client, @before, @limit
SELECT {{scheduleColumns}} FROM schedules WHERE client_id = @client AND schedule_id < @before
ORDER BY client_id DESC, schedule_id DESC LIMIT @limit

-- name: listAllSchedules
-- Lists the schedules of all clients, the newest first, along the primary key. Locks nothing.
-- Parameters: @before, @limit
SELECT {{scheduleColumns}} FROM schedules WHERE schedule_id < @before ORDER BY schedule_id DESC LIMIT @limit

-- name: nextLook
-- Gives how long it is until a schedule is to be looked at: the first row of the index schedules_due. Locks nothing. No row:
-- there is none.
SELECT look_at - now() FROM schedules WHERE look_at IS NOT NULL ORDER BY look_at LIMIT 1

-- name: dueSchedules
-- Reads the schedules that are to be looked at, in turns of their clients, each one's earliest first, of those that come first in the
-- index schedules_due. Whether an earlier run is not final is asked of the index jobs_schedule_open, where it matters.
-- jumped is until when the clock of a test bed jumped over due times: to where it was moved last, or to now if it does not run at
-- the rate of Postgres' clock; null if it was never moved. Locks nothing.
-- Parameters: @limit
SELECT now() AS now, overlap <> 'allow' AND EXISTS (
  SELECT FROM jobs j WHERE j.schedule_id = schedules.schedule_id AND j.finished_at IS NULL) AS busy, (
  SELECT CASE WHEN rate = 1 AND NOT frozen THEN service_at ELSE now() END FROM testbed_clock ORDER BY number DESC LIMIT 1) AS jumped,
  {{scheduleColumns}}
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
