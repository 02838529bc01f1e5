package repo

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// unusedWalk is where the search for clients that were never used goes on.
type unusedWalk struct {
	mu    sync.Mutex
	after job.ID
}

// lookPerRemoved is how many clients are looked at for each that may be removed:
// most are used, and stay.
const lookPerRemoved = 4

// findUnused walks clients by their primary key, and says of each whether it is
// old and was never used: it has no key that was used or is young, no job and no
// webhook. One without keys may have had some that are removed already, unless it
// is younger than any key that is. Reads api_keys, jobs and webhooks by their
// indexes of the client. Locks nothing.
const findUnused = `
WITH looked AS MATERIALIZED (SELECT client_id, created_at FROM clients
  WHERE client_id > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000') ORDER BY client_id LIMIT $2)
SELECT client_id, l.created_at <= now() - $3::interval
  AND NOT EXISTS (SELECT FROM api_keys k WHERE k.client_id = l.client_id
    AND (k.used_at IS NOT NULL OR k.created_at > now() - $3::interval) OFFSET 0)
  AND (l.created_at > now() - $4::interval OR EXISTS (SELECT FROM api_keys k WHERE k.client_id = l.client_id OFFSET 0))
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.client_id = l.client_id OFFSET 0)
  AND NOT EXISTS (SELECT FROM webhooks w WHERE w.client_id = l.client_id AND w.deleted_at IS NULL OFFSET 0)
FROM looked l ORDER BY client_id`

// cleanClients removes clients that were never used, at most limit of them, and
// reports whether there may be more where it looked.
func (s *Store) cleanClients(ctx context.Context, limit int) (more bool, err error) {
	s.unused.mu.Lock()
	defer s.unused.mu.Unlock()
	type client struct {
		id     job.ID
		unused bool
	}
	look := lookPerRemoved * limit
	looked, err := queryRows(ctx, s, func(row pgx.CollectableRow) (c client, err error) {
		return c, row.Scan(scanID(&c.id), &c.unused)
	}, findUnused, uuid(s.unused.after), look, unusedClientsKept, keysKept)
	if err != nil {
		return false, err
	}
	after := job.ID{} // from the beginning
	if len(looked) == look {
		after = looked[look-1].id
	}
	var unused []pgtype.UUID
	for _, c := range looked {
		if c.unused {
			unused = append(unused, uuid(c.id))
		}
		if len(unused) == limit {
			after = c.id
			break
		}
	}
	if len(unused) > 0 {
		err = s.inTx(ctx, "clean", func(ctx context.Context, tx pgx.Tx) error { return removeUnused(ctx, tx, unused, unusedClientsKept) })
	}
	if err == nil { // the same again otherwise
		s.unused.after = after
	}
	return len(unused) == limit, err
}

// removeUnused removes clients with their keys, and has all processes forget
// the keys. It locks the clients first, as every change of keys does, and skips
// those that another transaction has locked: no key comes up meanwhile. Then it
// locks the keys, and leaves a client alone of which one was used since it was
// found: the recording of a use waits for the lock, and finds the key gone or
// keeps its client.
func removeUnused(ctx context.Context, tx pgx.Tx, found []pgtype.UUID, keep time.Duration) error {
	rows, err := tx.Query(ctx, `SELECT client_id FROM clients WHERE client_id = ANY ($1) ORDER BY client_id FOR UPDATE SKIP LOCKED`, found)
	if err != nil {
		return err
	}
	clients, err := pgx.CollectRows(rows, rowToID)
	if err != nil {
		return err
	}
	rows, err = tx.Query(ctx, `WITH locked AS MATERIALIZED (SELECT client_id, used_at, created_at FROM api_keys
			WHERE client_id = ANY ($1) ORDER BY key_id FOR UPDATE)
		SELECT client_id FROM locked WHERE used_at IS NOT NULL OR created_at > now() - $2::interval`, column(clients, uuid), keep)
	if err != nil {
		return err
	}
	busy, err := pgx.CollectRows(rows, rowToID)
	if err != nil {
		return err
	}
	unused := column(slices.DeleteFunc(clients, func(id job.ID) bool { return slices.Contains(busy, id) }), uuid)
	if _, err := tx.Exec(ctx, `WITH gone AS (DELETE FROM api_keys WHERE client_id = ANY ($1) RETURNING key_id)
		SELECT pg_notify('`+revocationChannel+`', key_id) FROM gone`, unused); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `DELETE FROM clients WHERE client_id = ANY ($1)`, unused)
	return err
}
