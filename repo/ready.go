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

// Ping reports whether Postgres answers and its schema is at least the one this
// program was built with: a later one still suits it, while programs of the next
// version take over.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := s.db.Bound(ctx)
	defer cancel()
	var version int64
	var former bool
	err := s.db.Pool.QueryRow(ctx, readSchemaVersion).Scan(&version, &former)
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
		return job.Errorf(job.CodeConfigInvalid, "The database schema has version %d, this program needs %d.", version, want)
	}
	return s.RefuseMovedClock(ctx)
}

const stateDiskFull = "53100"

// writeCheck remembers for a moment whether Postgres took a write.
type writeCheck struct {
	mu     sync.Mutex
	at     time.Time
	err    error
	suited atomic.Bool // the schema and the clock suited this program when they were read last
}

// writeCheckKept is for how long: so often a process writes for its readiness, however often it is asked.
const writeCheckKept = time.Second

// readyPing is how long Ready reads the schema, within the time that it has: the rest is for the write.
const readyPing = 400 * time.Millisecond

// Ready is Ping, and reports whether Postgres takes what this program writes: there is
// room on its disk, and a commit comes to its end. A lock on a table that Ping reads and
// submissions do not is no reason to be unready.
func (s *Store) Ready(ctx context.Context) error {
	c := &s.writes
	brief, cancel := context.WithTimeout(ctx, readyPing)
	err := s.Ping(brief)
	cancel()
	if err == nil {
		c.suited.Store(true)
	} else if !c.suited.Load() || job.CodeOf(err) == job.CodeConfigInvalid {
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
	if !errors.Is(ctx.Err(), context.Canceled) { // the caller still waits
		c.at, c.err = time.Now(), err
	}
	return err
}

// readyWrites are what tryWrite does in one transaction. Nothing of it stays.
var readyWrites = []string{
	`SET LOCAL work_mem = '64kB'`,
	// What is beyond work_mem goes to a file on the disk of the database: a megabyte, as much as a table may
	// grow at once. A row would only be written to the free room in its table.
	`WITH spilled AS MATERIALIZED (SELECT repeat('x', 8000) AS x FROM generate_series(1, 130)) SELECT count(x) FROM spilled`,
	`SELECT FROM jobs WHERE false FOR NO KEY UPDATE`, // refused where nothing may be written
	// A record in the WAL and nothing else: the commit is flushed and, where that is set up, replicated.
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
