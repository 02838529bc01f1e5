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
SELECT {{scheduleColumns}} FROM schedules WHERE schedule_id = @schedule AND (@client::uuid IS NULL OR client_id IS NOT DISTINCT FROM @client)

-- name: lockSchedule
-- Reads a schedule as readSchedule does, locks it, and gives the time.
-- Parameters: @schedule, @client
SELECT clock_timestamp(), {{scheduleColumns}} FROM schedules WHERE schedule_id = @schedule
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
