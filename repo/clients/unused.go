package clients

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// How long keys and unused clients are kept.
const (
	KeysKept          = 90 * 24 * time.Hour // for revoked and expired API keys, and for entries of the operators' audit log
	unusedClientsKept = 30 * 24 * time.Hour
)

// CleanUnused reads lookPerRemoved clients for each client that it may remove, because most clients are in use.
const lookPerRemoved = 4

// CleanUnused removes at most `limit` clients that were never used, and reports whether there may be more to remove.
func (s *Store) CleanUnused(ctx context.Context, limit int) (more bool, err error) {
	s.unused.Lock()
	defer s.unused.Unlock()
	type client struct {
		ID     job.ID
		Unused bool
	}
	look := lookPerRemoved * limit
	looked, err := pg.Query(ctx, s.db, pgx.RowToStructByPos[client], statement("findUnused"), pg.UUID(s.unused.At), look,
		unusedClientsKept, KeysKept)
	if err != nil {
		return false, err
	}
	after := job.ID{} // from the beginning
	if len(looked) == look {
		after = looked[look-1].ID
	}
	var unused []pgtype.UUID
	for _, c := range looked {
		if c.Unused {
			unused = append(unused, pg.UUID(c.ID))
		}
		if len(unused) == limit {
			after = c.ID
			break
		}
	}
	if len(unused) > 0 {
		err = s.db.InTx(ctx, "clean", func(ctx context.Context, tx pgx.Tx) error { return removeUnused(ctx, tx, unused, unusedClientsKept) })
	}
	if err == nil { // after an error, the next call reads the same clients again
		s.unused.At = after
	}
	return len(unused) == limit, err
}

// removeUnused removes clients and their keys, and makes all processes forget the keys. It locks the clients first. Every change of keys
// locks the client, too, so no key is added meanwhile. Then it locks the keys. It skips a client if one of its keys was used after
// findUnused read the key. A concurrent UseKey waits for the lock of the key. After the wait, the key is gone and UseKey returns false,
// or the client stays and UseKey succeeds.
func removeUnused(ctx context.Context, tx pgx.Tx, found []pgtype.UUID, keep time.Duration) error {
	clients, err := pg.RowsIn(ctx, tx, pg.RowToID, statement("lockUnused"), found)
	if err != nil {
		return err
	}
	busy, err := pg.RowsIn(ctx, tx, pg.RowToID, statement("lockUnusedKeys"), pg.Column(clients, pg.UUID), keep)
	if err != nil {
		return err
	}
	unused := pg.Column(slices.DeleteFunc(clients, func(id job.ID) bool { return slices.Contains(busy, id) }), pg.UUID)
	if _, err := tx.Exec(ctx, statement("removeUnusedKeys"), unused); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, statement("removeUnused"), unused)
	return err
}
