package maintenance

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// Lead takes or keeps the lease of the one maintenance leader, on Postgres' clock, and reports whether holder has it now. It takes
// another holder's lease once that has been expired for at least vacant; a lease of 0 is kept, but open to others. A lease that ends
// implausibly late was taken while Postgres' clock was ahead, and is free: a living holder has renewed it since. It is a row, not an
// advisory lock: a paused process would keep the lock.
func (s *Store) Lead(ctx context.Context, holder job.ID, lease, vacant time.Duration) (bool, error) {
	n, err := s.db.Change(ctx, "lead", `UPDATE maintenance_state
		SET leader_id = $1, leader_expires_at = pg_catalog.clock_timestamp() + $2::interval
		WHERE leader_id = $1 OR leader_expires_at <= pg_catalog.clock_timestamp() - $3::interval
			OR leader_expires_at > pg_catalog.clock_timestamp() + $2::interval + $4::interval`, pg.UUID(holder), lease, vacant, maxLeaseExcess)
	return n == 1, err
}

// maxLeaseExcess limits a leader's lease: it is at most this much longer than the lease of the process that asks.
const maxLeaseExcess = time.Minute

// Resign releases the leader's lease at once.
func (s *Store) Resign(ctx context.Context, holder job.ID) error {
	return s.db.Exec(ctx, "resign", `UPDATE maintenance_state SET leader_id = NULL, leader_expires_at = '-infinity' WHERE leader_id = $1`,
		pg.UUID(holder))
}
