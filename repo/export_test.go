package repo

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forgerun/forgerun/repo/jobs"
	"github.com/forgerun/forgerun/repo/pg"
)

// BatchKeysTaken counts the idempotency keys of calls in progress.
func (s *Store) BatchKeysTaken() int { return jobs.KeysHeld(s.jobStore) }

// Pool returns the store's own pool, for tests that exhaust or count connections.
func (s *Store) Pool() *pgxpool.Pool { return s.db.Pool }

// Queued counts the items that wait for a flusher.
func (s *Store) Queued(operation string) int {
	if slices.Contains([]string{"claim", "start", "finish"}, operation) {
		operation = "steps"
	}
	return s.db.Queued(operation)
}

// Statements has the text of each statement as it is sent, by its name in the .sql files.
var _, Statements = pg.Catalog()

// KeepOrder sets how long a flush of new jobs waits for earlier flushes.
func (s *Store) KeepOrder(wait time.Duration) { jobs.KeepOrder(s.jobStore, wait) }
