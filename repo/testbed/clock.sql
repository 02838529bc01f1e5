-- name: readClockMove
-- Reads the latest move of the clock, by primary key, with the time of Postgres' own clock. Locks nothing. Always returns a row. If the
-- clock was never moved, `number` is 0.
SELECT coalesce(m.number, 0), coalesce(m.real_at, now.at), coalesce(m.service_at, now.at), coalesce(m.rate, 1),
  coalesce(m.frozen, false), now.at
FROM (SELECT pg_catalog.clock_timestamp() AS at) AS now 
  LEFT JOIN LATERAL (SELECT * FROM testbed_clock ORDER BY number DESC LIMIT 1) m ON true

-- name: clockMoves
-- Reads all stored moves of the clock, in order. Locks nothing.
SELECT number, real_at, service_at, CASE WHEN frozen THEN 0 ELSE rate END FROM testbed_clock ORDER BY number

-- name: lockClock
-- Lets one transaction at a time move the clock. Other transactions can still read the moves.
LOCK TABLE testbed_clock IN SHARE ROW EXCLUSIVE MODE

-- name: moveClock
-- Stores the next move of the clock, and replaces the functions of the clock. After the replacement, Postgres makes new plans for cached
-- statements. The old plans cannot be used, because they contain the values of the old functions.
-- Parameters: @number, @jump, @wait, @old_rate, @rate, @frozen
SELECT testbed_move(@number, @jump::interval, @wait::interval, @old_rate, @rate, @frozen)

-- name: forgetMoves
-- Removes old moves of the clock, up to the one with @number, by primary key.
-- Parameters: @number
DELETE FROM testbed_clock WHERE number <= @number

-- name: anyMoved
-- Reports whether the clock was ever moved. Locks nothing.
SELECT EXISTS (SELECT FROM testbed_clock)
