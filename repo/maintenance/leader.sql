-- name: lead
-- Takes or keeps the lease of the leader, in the only row of maintenance_state. A lease counts as free if it ends more than @excess later
-- than a new lease would: Postgres' clock was ahead when the lease was taken. No row: another process leads.
-- Parameters: @holder, @lease, @vacant, @excess
UPDATE maintenance_state SET leader_id = @holder, leader_expires_at = pg_catalog.clock_timestamp() + @lease::interval
WHERE leader_id = @holder OR leader_expires_at <= pg_catalog.clock_timestamp() - @vacant::interval
  OR leader_expires_at > pg_catalog.clock_timestamp() + @lease::interval + @excess::interval

-- name: resign
-- Ends the leader's lease, if @holder is the leader.
-- Parameters: @holder
UPDATE maintenance_state SET leader_id = NULL, leader_expires_at = '-infinity' WHERE leader_id = @holder
