-- name: reportStored
-- Locks the ledger (the row of headroom) until the transaction ends, and adds the jobs that a process has stored. The row holds upper
-- bounds of the active and queued jobs. If @counted is true, a new count replaces the bounds. Jobs that were reported after the count began
-- are added.
-- Parameters: @stored_active, @stored_queued, @counted, @active, @queued, @reported_active, @reported_queued
UPDATE headroom SET
  active = @stored_active::bigint + CASE WHEN @counted THEN @active::bigint + reported_active - @reported_active::bigint ELSE active END,
  queued = @stored_queued::bigint + CASE WHEN @counted THEN @queued::bigint + reported_queued - @reported_queued::bigint ELSE queued END,
  reported_active = reported_active + @stored_active, reported_queued = reported_queued + @stored_queued

-- name: endLeases
-- Removes ended leases except @lease, and adds their capacity to the bounds in headroom, because jobs may have used all of it. A lease that
-- a statement has locked stays, because that statement may still store jobs. A lease that ends later than now plus @expiry counts as ended,
-- too. Such a lease was granted while the clock was ahead. The transaction holds the lock of the ledger.
-- Parameters: @lease, @expiry
WITH ended AS MATERIALIZED (
  SELECT lease_id FROM headroom_leases WHERE lease_id <> @lease
    AND expires_at NOT BETWEEN pg_catalog.clock_timestamp() AND pg_catalog.clock_timestamp() + @expiry::interval
  ORDER BY lease_id FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM headroom_leases WHERE lease_id IN (SELECT lease_id FROM ended) RETURNING active, queued
)
UPDATE headroom SET active = headroom.active + g.active, queued = headroom.queued + g.queued,
  reported_active = reported_active + g.active, reported_queued = reported_queued + g.queued
FROM (SELECT sum(active)::bigint AS active, sum(queued)::bigint AS queued FROM gone) g WHERE g.active > 0 OR g.queued > 0

-- name: grantLease
-- Grants a process a part of the free capacity: @want_active and @want_queued, or more if much is free. Normally the grant is at most the
-- free capacity divided by the number of processes. If enough is free, the grant covers at least @need_active and @need_queued, even if
-- this is more than an equal share. The grant is never less than @keep_active and @keep_queued, which jobs may already have used. No row:
-- the lease has ended. The transaction holds the lock of the ledger.
-- Parameters: @lease, @process, @new, @expiry, @max_active, @max_queued, @keep_active, @keep_queued, @need_active, @need_queued,
--   @want_active, @want_queued
WITH others AS (
  SELECT coalesce(sum(active), 0) AS active, coalesce(sum(queued), 0) AS queued,
    1 + count(DISTINCT process_id) FILTER (WHERE process_id <> @process) AS processes
  FROM headroom_leases WHERE lease_id <> @lease
), free AS (
  SELECT processes, @max_active::bigint - headroom.active - others.active AS active,
    @max_queued::bigint - headroom.queued - others.queued AS queued
  FROM headroom, others
), granted AS (
  SELECT processes,
    greatest(@keep_active::bigint, least(greatest(@want_active::bigint, least(256, floor(active / (16 * processes)))),
      ceil(active / processes)), CASE WHEN @need_active::bigint <= active THEN @need_active ELSE 0 END)::bigint AS active,
    greatest(@keep_queued::bigint, least(greatest(@want_queued::bigint, least(256, floor(queued / (16 * processes)))),
      ceil(queued / processes)), CASE WHEN @need_queued::bigint <= queued THEN @need_queued ELSE 0 END)::bigint AS queued
  FROM free
), lease AS (
  INSERT INTO headroom_leases AS l (lease_id, process_id, active, queued, expires_at)
  SELECT @lease, @process, active, queued, pg_catalog.clock_timestamp() + @expiry::interval FROM granted
  WHERE @new OR EXISTS (SELECT FROM headroom_leases WHERE lease_id = @lease)
  ON CONFLICT (lease_id) DO UPDATE SET active = excluded.active, queued = excluded.queued, expires_at = excluded.expires_at
  RETURNING active, queued
)
SELECT lease.active, lease.queued, processes::int FROM lease, granted

-- name: closeLease
-- Reduces a lease to the jobs that may still be stored under it. If @keep_active and @keep_queued are 0, the lease ends at once. The
-- transaction holds the lock of the ledger.
-- Parameters: @lease, @keep_active, @keep_queued
UPDATE headroom_leases SET active = @keep_active::bigint, queued = @keep_queued::bigint,
  expires_at = CASE WHEN @keep_active = 0 AND @keep_queued = 0 THEN '-infinity' ELSE expires_at END
WHERE lease_id = @lease

-- fragment: leased
-- Locks the leases @leases, so that they stay until the end of the transaction. It skips leases that have ended.
leased AS MATERIALIZED (
  SELECT lease_id FROM headroom_leases WHERE lease_id = ANY (@leases::uuid[]) ORDER BY lease_id FOR KEY SHARE
)
