package maintenance

import (
	"context"
	"errors"
	"time"

	"github.com/forgerun/forgerun/repo/clients"
)

// Retention times (API contract, section 15). Events, reports and results are removed with their jobs.
const (
	tombstonesKept = 90 * 24 * time.Hour // tombstones of removed jobs
	historyKept    = 48 * time.Hour      // one-minute buckets of the history
	bulksKept      = 7 * 24 * time.Hour  // bulk operations and their items, counted from the operation's end
)

// deadWorkersKept is how long the row of a dead worker is kept.
const deadWorkersKept = time.Hour

// Batches are kept longer than their events, by batchesOutlive. An event is useless without its batch.
const batchesOutlive = time.Hour

// Clean removes at most `limit` expired rows of each kind, and reports whether there may be more. Each statement skips rows that another
// transaction has locked. If one statement fails, Clean still runs the next ones.
func (s *Store) Clean(ctx context.Context, limit int) (more bool, err error) {
	keep := s.retention
	var errs []error
	// The order matters: deliveries before their jobs, events before their batches, items before their bulk operations.
	for _, step := range []struct {
		sql  string
		keep time.Duration
	}{
		{statement("cleanDeliveries"), keep},
		{statement("cleanJobs"), keep},
		{statement("cleanClientDeliveries"), keep},
		{statement("cleanClientEvents"), keep},
		{statement("cleanBatches"), keep + batchesOutlive},
		{statement("cleanLogs"), keep},
		{statement("cleanWebhooks"), keep},
		{statement("cleanSigningKeys"), 0},
		{statement("cleanResults"), 0},
		{statement("cleanIdempotencyKeys"), 0},
		{statement("cleanTombstones"), tombstonesKept},
		{statement("cleanBulkItems"), bulksKept},
		{statement("cleanBulks"), bulksKept},
		{statement("cleanKeys"), clients.KeysKept},
		{statement("cleanAudit"), clients.KeysKept},
		{statement("cleanWorkers"), deadWorkersKept},
		{statement("cleanPauses"), 0},
		{statement("cleanHistory"), historyKept},
	} {
		n, err := s.db.Change(ctx, "clean", step.sql, step.keep, limit)
		errs = append(errs, err)
		more = more || n >= limit
		if ctx.Err() != nil {
			return more, errors.Join(errs...)
		}
	}
	moreUnused, err := s.clients.CleanUnused(ctx, limit)
	return more || moreUnused, errors.Join(append(errs, err)...)
}
