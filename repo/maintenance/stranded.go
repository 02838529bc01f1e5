package maintenance

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/deliveries"
	"github.com/forgerun/forgerun/repo/pg"
)

// MoveStrandedJobs examines at most `look` jobs after the cursor `after`. It makes jobs due earlier if they wait only because Postgres'
// clock was ahead when they were queued. `last` is the cursor for the next call. It is zero if there are no more jobs.
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

// MoveStrandedDeliveries is like MoveStrandedJobs, for deliveries. It moves at most `limit` deliveries of at most `look` endpoints.
func (s *Store) MoveStrandedDeliveries(ctx context.Context, after job.EndpointKey, look, limit int) (
	moved int, last job.EndpointKey, err error,
) {
	got, err := pg.QueryOne(ctx, s.db, nil, pgx.RowToStructByPos[deliveries.EndpointWalk], statement("moveStrandedDeliveries"),
		[16]byte(after.Client), [16]byte(after.Endpoint), look, limit)
	return got.Changed, got.Next(after, look, limit), err
}

const claimsAtOnce = 5000

// EndStrandedLeases shortens worker leases and delivery claims that end too late because Postgres' clock was ahead.
func (s *Store) EndStrandedLeases(ctx context.Context) error {
	return s.db.Exec(ctx, "end stranded leases", statement("endStrandedLeases"), claimsAtOnce)
}
