-- name: lockClientsSchedules
-- Takes an advisory lock, so that only one transaction at a time counts a client's schedules and adds one.
-- Parameters: @client
SELECT pg_advisory_xact_lock(hashtextextended('schedules of ' || @client::text, 0))

-- name: countSchedules
-- Counts a client's schedules by the index schedules_client, and returns the time.
-- Parameters: @client
SELECT count(*)::int, clock_timestamp() FROM schedules WHERE client_id = @client

-- name: insertSchedule
-- Writes a schedule. If the client was erased, the trigger schedules_of_a_client refuses the schedule.
-- Parameters: @schedule, @client, @request_id, @created_at, @name, @cron, @time_zone, @interval_ms, @jitter_ms, @start_at, @end_at,
--   @overlap, @catch_up, @catch_up_max, @job, @language, @paused, @due_at, @look_at
INSERT INTO schedules (schedule_id, client_id, request_id, created_at, updated_at, name, cron, time_zone, interval_ms, jitter_ms,
  start_at, end_at, overlap, catch_up, catch_up_max, job, language, paused, due_at, look_at)
VALUES (@schedule, @client, @request_id, @created_at, @created_at, @name, @cron, @time_zone, @interval_ms, @jitter_ms,
  @start_at, @end_at, @overlap, @catch_up, @catch_up_max, @job, @language, @paused, @due_at, @look_at)
RETURNING {{scheduleColumns}}

-- name: readSchedule
-- Reads a schedule of a client, or of any client if @client is null, found by primary key. Locks nothing. No row: the schedule does not
-- exist, or is not the client's.
-- Parameters: @schedule, @client
SELECT {{scheduleColumns}} FROM schedules WHERE schedule_id = @schedule AND (@client::uuid IS NULL OR client_id IS NOT DISTINCT
  FROM @client)

-- name: lockSchedule
-- Reads a schedule like readSchedule, locks it, and returns the time.
-- Parameters: @schedule, @client
SELECT clock_timestamp() AS now, {{scheduleColumns}} FROM schedules WHERE schedule_id = @schedule
  AND (@client::uuid IS NULL OR client_id IS NOT DISTINCT FROM @client) FOR UPDATE

-- name: updateSchedule
-- Writes the values of a schedule that a client can change, and the values that depend on them. The caller has locked the schedule.
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
-- Lists a client's schedules, the newest first, using the index schedules_client. Locks nothing.
-- Parameters: @client, @before, @limit
SELECT {{scheduleColumns}} FROM schedules WHERE client_id = @client AND schedule_id < @before
ORDER BY client_id DESC, schedule_id DESC LIMIT @limit

-- name: listAllSchedules
-- Lists the schedules of all clients, the newest first, using the primary key. Locks nothing.
-- Parameters: @before, @limit
SELECT {{scheduleColumns}} FROM schedules WHERE schedule_id < @before ORDER BY schedule_id DESC LIMIT @limit

-- name: nextLook
-- Returns the time until a schedule must be checked next, from the first row of the index schedules_due. Locks nothing. No row: no
-- schedule needs a check.
SELECT look_at - now() FROM schedules WHERE look_at IS NOT NULL ORDER BY look_at LIMIT 1

-- name: dueSchedules
-- Reads the schedules that must be checked now, from the first rows of the index schedules_due. The result alternates between clients; the
-- earliest schedule of each client comes first. `busy` is true if the schedule does not allow overlapping runs and an earlier run has not
-- ended (by the index jobs_schedule_open). `jumped` is the time to which a test bed last moved its clock; null if the clock was never
-- moved. If the clock is frozen, or if its rate is not 1, `jumped` is the current time. Locks nothing.
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
-- Writes the progress of schedules that have not changed since they were read. Locks them, found by primary key, and skips schedules that
-- another transaction has locked. No row: the schedule was changed or is locked.
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
-- Postpones the next check of schedules, found by primary key. It skips schedules that were changed meanwhile.
-- Parameters: @schedules, @versions, @wait
UPDATE schedules s SET look_at = now() + @wait::interval, version = s.version + 1
FROM unnest(@schedules::uuid[], @versions::bigint[]) AS i(schedule_id, version)
WHERE s.schedule_id = i.schedule_id AND s.version = i.version AND s.look_at IS NOT NULL

-- fragment: scheduleColumns
-- The columns of a schedule, named like the fields of job.Schedule.
schedules.schedule_id AS id, schedules.client_id, schedules.name, coalesce(schedules.cron, '') AS cron,
  schedules.time_zone, coalesce(schedules.interval_ms, 0) * interval '1 ms' AS interval, schedules.jitter_ms * interval '1 ms' AS jitter,
  schedules.start_at, schedules.end_at, schedules.overlap, schedules.catch_up, schedules.catch_up_max, schedules.job, schedules.language,
  schedules.request_id, schedules.paused, schedules.created_at, schedules.updated_at, schedules.version, schedules.due_at,
  schedules.look_at, schedules.pending_for AS pending, schedules.retrying, schedules.runs, schedules.missed, schedules.skipped,
  schedules.last_due_at, schedules.last_job_id, schedules.last_error
