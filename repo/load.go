package repo

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// Load counts what there is to do, but no further than limit each: jobs that
// are not final, and of these the ones in QUEUED.
func (s *Store) Load(ctx context.Context, limit int) (job.Load, error) {
	found, err := queryRows(ctx, s, pgx.RowToStructByPos[job.Load], countLoad, limit+1)
	if err != nil {
		return job.Load{}, err
	}
	return found[0], nil
}

// countLoad reads the indexes jobs_waiting, jobs_scheduled and jobs_held, and no
// row that a vacuum has seen since it changed: what is asked is all in the
// predicates. What waits and is not CREATED is QUEUED; of more that waits than the
// limit too little is counted as QUEUED, but then there is no room anyway.
const countLoad = `
SELECT waiting.n + held.n, greatest(waiting.n - created.n, 0) FROM
  (SELECT count(*) AS n FROM (SELECT FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL LIMIT $1) w) waiting,
  (SELECT count(*) AS n FROM (SELECT FROM jobs WHERE queued_at IS NULL AND finished_at IS NULL LIMIT $1) c) created,
  (SELECT count(*) AS n FROM (SELECT FROM jobs WHERE worker_id IS NOT NULL LIMIT $1) h) held`

// CountDue counts the jobs that wait and are due, but no further than limit. It
// reads the index jobs_waiting.
func (s *Store) CountDue(ctx context.Context, limit int) (int, error) {
	found, err := queryRows(ctx, s, pgx.RowTo[int], countDue, limit)
	if err != nil {
		return 0, err
	}
	return found[0], nil
}

const countDue = `
SELECT count(*)::int FROM (SELECT FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL AND run_at <= now() LIMIT $1) due`

// LiveWorkers counts workers whose lease has not ended.
func (s *Store) LiveWorkers(ctx context.Context) (int, error) {
	found, err := queryRows(ctx, s, pgx.RowTo[int], `SELECT count(*)::int FROM workers WHERE state = 'ALIVE' AND expires_at > clock_timestamp()`)
	if err != nil {
		return 0, err
	}
	return found[0], nil
}
