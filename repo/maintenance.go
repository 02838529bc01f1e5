package repo

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
)

// Lead takes or keeps the lease of the one maintenance leader, on Postgres'
// clock, and reports whether holder has it now. A row and not an advisory
// lock: a paused process would keep the lock.
func (s *Store) Lead(ctx context.Context, holder job.ID, lease time.Duration) (bool, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	tag, err := s.pool.Exec(ctx, `UPDATE maintenance_state SET leader_id = $1, leader_expires_at = clock_timestamp() + $2::interval
		WHERE leader_id = $1 OR leader_expires_at <= clock_timestamp()`, uuid(holder), lease)
	if err != nil {
		return false, s.failed("lead", err)
	}
	return tag.RowsAffected() == 1, nil
}

// Resign gives the leader's lease up at once.
func (s *Store) Resign(ctx context.Context, holder job.ID) error {
	return s.exec(ctx, "resign", `UPDATE maintenance_state SET leader_id = NULL, leader_expires_at = '-infinity' WHERE leader_id = $1`, uuid(holder))
}

// Epoch reads the dispatch epoch and the run id of the Redis server that it
// was opened for.
func (s *Store) Epoch(ctx context.Context) (epoch int64, redisRunID string, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	err = s.pool.QueryRow(ctx, `SELECT epoch, redis_run_id FROM maintenance_state`).Scan(&epoch, &redisRunID)
	if err != nil {
		return 0, "", s.failed("epoch", err)
	}
	return epoch, redisRunID, nil
}

// RaiseEpoch opens a new dispatch epoch: every waiting job will be dispatched
// anew. It does nothing if the epoch is not current any more.
func (s *Store) RaiseEpoch(ctx context.Context, current int64, redisRunID string) error {
	return s.exec(ctx, "raise epoch", `UPDATE maintenance_state SET epoch = epoch + 1, redis_run_id = $2 WHERE epoch = $1`, current, redisRunID)
}
