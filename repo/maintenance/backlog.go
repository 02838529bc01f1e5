package maintenance

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/deliveries"
	"github.com/forgerun/forgerun/repo/pg"
)

// Load counts the unfinished jobs and the QUEUED jobs. The counts are exact if at most `limit` jobs are unfinished. In the same snapshot,
// Load reads reported_active and reported_queued from the table headroom, for Counted.Reported.
func (s *Store) Load(ctx context.Context, limit int) (job.Counted, error) {
	return pg.QueryOne(ctx, s.db, nil, func(row pgx.CollectableRow) (c job.Counted, err error) {
		return c, pg.ScanRow(row, &c.Jobs.Active, &c.Jobs.Queued, &c.Reported.Active, &c.Reported.Queued)
	}, statement("countLoad"), limit+1)
}

// LoadByClient counts the unfinished jobs and the QUEUED jobs of each client. It leaves out clients with at most `few` jobs. The counts can
// be too small if more than `limit` jobs are unfinished.
func (s *Store) LoadByClient(ctx context.Context, limit, few int) (map[job.ID]job.Load, error) {
	return pg.QueryByID(ctx, s.db, func(l *job.Load) []any { return []any{&l.Active, &l.Queued} }, statement("countLoadByClient"),
		limit+1, few)
}

// LiveWorkers counts workers with a valid lease.
func (s *Store) LiveWorkers(ctx context.Context) (int, error) {
	return pg.QueryValue[int](ctx, s.db, statement("liveWorkers"))
}

// Backlog counts the waiting work and the workers at one moment. It reads at most `limit` rows of each kind and locks nothing. If there
// are more rows, the counts are too small. Backlog searches for the oldest delivery only in the first 10,000 endpoints with waiting
// deliveries.
func (s *Store) Backlog(ctx context.Context, limit int) (job.Backlog, error) {
	return pg.QueryOne(ctx, s.db, nil, func(row pgx.CollectableRow) (b job.Backlog, err error) {
		var created, waiting, assigned, running int
		err = row.Scan(&created, &waiting, &assigned, &running, &b.OldestDue, &b.Workers, &b.Slots,
			&b.Deliveries, &b.OldestDelivery, &b.DisabledWebhooks)
		b.Jobs = map[job.State]int{job.Created: created, job.Queued: max(0, waiting-created), job.Assigned: assigned, job.Running: running}
		return b, err
	}, statement("readBacklog"), [16]byte{}, [16]byte{}, deliveries.MaxLookedEndpoints, limit)
}
