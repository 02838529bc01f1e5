package maintenance

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// Lead takes or renews the lease of the maintenance leader. It returns true if `holder` is the leader now. Leases follow Postgres' clock.
// Lead takes another holder's lease if that lease expired at least `vacant` ago. If `lease` is zero, `holder` leads until another process
// takes the lease. A lease that ends far in the future also counts as free: Postgres' clock was ahead when the lease was taken. The lease
// is not an advisory lock, because a paused process would keep the lock.
func (s *Store) Lead(ctx context.Context, holder job.ID, lease, vacant time.Duration) (bool, error) {
	n, err := s.db.Change(ctx, "lead", statement("lead"), pg.UUID(holder), lease, vacant, maxLeaseExcess)
	return n == 1, err
}

// A lease counts as free if it ends more than maxLeaseExcess later than a new lease would.
const maxLeaseExcess = time.Minute

// Resign releases the leader's lease if `holder` is the leader.
func (s *Store) Resign(ctx context.Context, holder job.ID) error {
	return s.db.Exec(ctx, "resign", statement("resign"), pg.UUID(holder))
}
