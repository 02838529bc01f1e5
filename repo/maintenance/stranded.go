package maintenance

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/deliveries"
	"github.com/forgerun/forgerun/repo/pg"
)

// MoveStrandedJobs reads a limited number of jobs that wait for a future time, after the cursor. It moves jobs that wait only because
// Postgres' clock was ahead when they were queued. `last` is the position to continue after, zero at the end.
func (s *Store) MoveStrandedJobs(ctx context.Context, after job.QueueCursor, look int) (moved int, last job.QueueCursor, err error) {
	type seen struct {
		job.QueueCursor
		Looked, Moved int
	}
	got, err := pg.QueryOne(ctx, s.db, nil, pgx.RowToStructByPos[seen], statement("moveStrandedJobs"),
		after.RunAt, [16]byte(after.JobID), look)
	if got.Looked < look {
		got.QueueCursor = job.QueueCursor{}
	}
	return got.Moved, got.QueueCursor, err
}

// MoveStrandedDeliveries is like MoveStrandedJobs, for at most `limit` deliveries. It reads a limited number of endpoints after the
// cursor.
func (s *Store) MoveStrandedDeliveries(ctx context.Context, after job.EndpointKey, look, limit int) (
	moved int, last job.EndpointKey, err error,
) {
	got, err := pg.QueryOne(ctx, s.db, nil, pgx.RowToStructByPos[deliveries.EndpointWalk], statement("moveStrandedDeliveries"),
		[16]byte(after.Client), [16]byte(after.Endpoint), look, limit)
	return got.Changed, got.Next(after, look, limit), err
}

const claimsAtOnce = 5000

// EndStrandedLeases shortens leases of workers, and claims of deliveries, that last implausibly long.
func (s *Store) EndStrandedLeases(ctx context.Context) error {
	return s.db.Exec(ctx, "end stranded leases", statement("endStrandedLeases"), claimsAtOnce)
}
