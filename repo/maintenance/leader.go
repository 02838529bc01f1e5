package maintenance

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// Lead takes or keeps the lease of the maintenance leader and reports whether `holder` has it now. Leases follow Postgres' clock. Lead
// takes another holder's lease if that lease expired at least `vacant` ago. A lease of zero duration stays with its holder until another
// process takes it. A lease that ends implausibly late counts as free. It was taken while Postgres' clock was ahead, and has not been
// renewed since. The lease is a row and not an advisory lock, because a paused process would keep the lock.
func (s *Store) Lead(ctx context.Context, holder job.ID, lease, vacant time.Duration) (bool, error) {
	n, err := s.db.Change(ctx, "lead", statement("lead"), pg.UUID(holder), lease, vacant, maxLeaseExcess)
	return n == 1, err
}

// A lease that ends more than maxLeaseExcess after the wanted one counts as free.
const maxLeaseExcess = time.Minute

// Resign releases the leader's lease at once.
func (s *Store) Resign(ctx context.Context, holder job.ID) error {
	return s.db.Exec(ctx, "resign", statement("resign"), pg.UUID(holder))
}
