package maintenance

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// Lead takes or keeps the lease of the maintenance leader and reports whether `holder` has it now. Leases follow Postgres' clock. Lead
// takes another holder's lease if that lease expired at least `vacant` ago. A lease of zero duration stays with its holder until another
// process takes it. A lease that ends implausibly late was taken while Postgres' clock was ahead; it is free, because a living holder
// would have renewed it since. The lease is a row and not an advisory lock, because a paused process would keep the lock.
func (s *Store) Lead(ctx context.Context, holder job.ID, lease, vacant time.Duration) (bool, error) {
	n, err := s.db.Change(ctx, "lead", statement("lead"), pg.UUID(holder), lease, vacant, maxLeaseExcess)
	return n == 1, err
}

// maxLeaseExcess is how much longer another leader's lease may be than the lease that a process asks for.
const maxLeaseExcess = time.Minute

// Resign releases the leader's lease at once.
func (s *Store) Resign(ctx context.Context, holder job.ID) error {
	return s.db.Exec(ctx, "resign", statement("resign"), pg.UUID(holder))
}
