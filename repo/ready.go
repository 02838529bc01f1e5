package repo

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// Ping returns an error unless Postgres answers and its schema has at least this program's version. A newer schema is fine, too: it occurs
// during an upgrade.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := s.db.Bound(ctx)
	defer cancel()
	var version int64
	var former bool
	err := s.db.Pool.QueryRow(ctx, statement("schemaVersion")).Scan(&version, &former)
	switch {
	case pg.HasState(err, pg.StateUndefinedTable):
		return &job.Error{Code: job.CodeDBError, Detail: "The database was not migrated yet.", RetryAfter: pg.RetryAfter, Cause: err}
	case err != nil:
		return pg.Translate(err)
	}
	if former {
		return job.Errorf(job.CodeConfigInvalid, "The "+formerSchema+".")
	}
	if want := schemaVersion(); version < want {
		return job.Errorf(job.CodeConfigInvalid, "The database schema has version %d, but this program needs %d.", version, want)
	}
	return s.RefuseMovedClock(ctx)
}

const stateDiskFull = "53100"

type writeCheck struct {
	mu     sync.Mutex
	at     time.Time
	err    error
	pinged atomic.Bool // Ping has succeeded at least once
}

// writeCheckKept is how long Ready keeps the result of its write check.
const writeCheckKept = time.Second

// readyPing limits how long Ready waits for the check of the schema. The write check may take the rest of the time until Ready's context
// ends.
const readyPing = 400 * time.Millisecond

// Ready is like Ping, and also checks that Postgres accepts this program's writes: the disk has room, and a commit completes. After the
// first success of Ping, Ready ignores errors of Ping, except a wrong schema or clock. For example, a lock on the schema table does not
// make the store unready.
func (s *Store) Ready(ctx context.Context) error {
	c := &s.writes
	brief, cancel := context.WithTimeout(ctx, readyPing)
	err := s.Ping(brief)
	cancel()
	if err == nil {
		c.pinged.Store(true)
	} else if !c.pinged.Load() || job.CodeOf(err) == job.CodeConfigInvalid {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < writeCheckKept {
		return c.err
	}
	err = pg.Translate(s.tryWrite(ctx))
	if pg.HasState(err, stateDiskFull) {
		err = &job.Error{Code: job.CodeStorageUnavailable, Detail: "The database has no room left on its disk.", Cause: err}
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		c.at, c.err = time.Now(), err
	}
	return err
}

// readyWrites run in one transaction, and leave nothing behind.
var readyWrites = []string{
	`SET LOCAL work_mem = '64kB'`,
	// This writes 1 MB to a temporary file, because work_mem is smaller. Postgres can need this much free disk space to extend a table. An
	// inserted row could fit into free space of its table, so it would not test the disk.
	`WITH spilled AS MATERIALIZED (SELECT repeat('x', 8000) AS x FROM generate_series(1, 130)) SELECT count(x) FROM spilled`,
	`SELECT FROM jobs WHERE false FOR NO KEY UPDATE`, // refused on a read-only server
	// This writes only a WAL record. The commit waits for the flush to disk and for synchronous replicas.
	`SELECT pg_logical_emit_message(true, 'forgerun', 'ready')`,
}

func (s *Store) tryWrite(ctx context.Context) error {
	ctx, cancel := s.db.Bound(ctx)
	defer cancel()
	return pgx.BeginFunc(ctx, s.db.Pool, func(tx pgx.Tx) error {
		for _, sql := range readyWrites {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}
