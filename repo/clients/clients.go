package clients

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// revocationChannel is the NOTIFY channel that announces a change of a key's validity. Every process then drops the key from its cache.
const revocationChannel = "forgerun_keys"

// InsertClient stores a new client and returns its time of creation.
func (s *Store) InsertClient(ctx context.Context, id job.ID) (job.Client, error) {
	created, _, err := pg.First(pg.QueryAs(ctx, s.db, "insert client", pgx.RowTo[time.Time], statement("insertClient"), pg.UUID(id)))
	return job.Client{ID: id, CreatedAt: created}, err
}

// NameClient sets the name that operators give a client; "" removes it. It reports whether the client exists.
func (s *Store) NameClient(ctx context.Context, id job.ID, name string) (exists bool, err error) {
	n, err := s.db.Change(ctx, "name client", `UPDATE clients SET name = $2 WHERE client_id = $1`, pg.UUID(id), pg.Nullable(name))
	return n > 0, err
}

func scanKey(row pgx.CollectableRow) (k job.APIKey, err error) {
	var hash []byte
	err = row.Scan(&k.ID, &k.ClientID, &hash, &k.CreatedAt, &k.ExpiresAt, &k.RevokedAt, &k.ReplacedBy,
		&k.UsedAt, &k.IssuedBy, &k.MadeBy, &k.Scope)
	copy(k.SecretHash[:], hash)
	return k, err
}

// Key finds a key by its public id; nil if there is none.
func (s *Store) Key(ctx context.Context, id string) (*job.APIKey, error) {
	k, found, err := pg.QueryFirst(ctx, s.db, scanKey, statement("readKey"), id)
	if err != nil || !found {
		return nil, err
	}
	return &k, nil
}

// UseKey records the first use of a key, and reports whether the key still exists. It returns only after the commit.
func (s *Store) UseKey(ctx context.Context, id string) (exists bool, err error) {
	n, err := s.db.Change(ctx, "use key", statement("useKey"), id)
	if err != nil || n > 0 {
		return n > 0, err
	}
	// The key was used before, or is gone. A new statement must check this, because the update may have waited for another transaction. Only
	// a new statement sees the changes of that transaction.
	key, err := s.Key(ctx, id)
	return key != nil, err
}

// ChangeKeys calls `decide` with the client and all its keys, newest first, and stores the result. It locks the client's row, so two
// changes of one client's keys never overlap. If the client does not exist, `decide` gets a zero client.
func (s *Store) ChangeKeys(ctx context.Context, client job.ID,
	decide func(c job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error)) error {
	return s.db.InTx(ctx, "change keys", func(ctx context.Context, tx pgx.Tx) error {
		var c job.Client
		var now time.Time
		err := tx.QueryRow(ctx, statement("lockClient"), pg.UUID(client)).Scan(&c.ID, &c.CreatedAt, &now)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		keys, err := pg.RowsIn(ctx, tx, scanKey, statement("keysOfClient"), pg.UUID(client))
		if err != nil {
			return err
		}
		change, err := decide(c, now, keys)
		if err != nil {
			return err
		}
		return storeKeys(ctx, tx, change)
	})
}

func storeKeys(ctx context.Context, tx pgx.Tx, change job.KeyChange) error {
	if k := change.New; k != nil {
		_, err := tx.Exec(ctx, statement("insertKey"), k.ID, pg.UUID(k.ClientID), k.SecretHash[:], k.CreatedAt, k.ExpiresAt, k.IssuedBy,
			pg.Nullable(k.MadeBy), k.Scope)
		if err != nil {
			return err
		}
	}
	for _, k := range change.Changed {
		_, err := tx.Exec(ctx, statement("changeKey"), k.ID, k.ExpiresAt, k.RevokedAt, pg.Nullable(k.ReplacedBy))
		if err != nil {
			return err
		}
	}
	return nil
}

// WatchKeys calls `changed` with the id of a key whenever a process changes the key's validity. It calls `connected` with true when it
// begins to watch, and with false when the connection is lost. Without a connection, cached keys must not be trusted. WatchKeys returns
// when ctx ends.
func (s *Store) WatchKeys(ctx context.Context, changed func(id string), connected func(bool)) {
	for ctx.Err() == nil {
		err := s.watchKeys(ctx, changed, connected)
		connected(false)
		if ctx.Err() == nil {
			s.logger.Warn("the watch for changes of API keys was interrupted; starting it again", "action", "watch_keys",
				"error_code", string(job.CodeOf(pg.Translate(err))), "error_message", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(s.db.Timeout / 5):
		}
	}
}

func (s *Store) watchKeys(ctx context.Context, changed func(id string), connected func(bool)) error {
	conn, err := pgx.ConnectConfig(ctx, s.db.Pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, `LISTEN `+revocationChannel); err != nil {
		return err
	}
	connected(true)
	for {
		// A dead server sends nothing, so each wait is limited. After a wait without a notification, a round trip checks the connection.
		wait, cancel := context.WithTimeout(ctx, s.db.Timeout)
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			changed(n.Payload)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			pinging, cancel := s.db.Bound(ctx)
			err := conn.Ping(pinging)
			cancel()
			if err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// CursorKey returns the secret that signs the cursors of lists: 32 bytes, which never change and are the same in all processes.
func (s *Store) CursorKey(ctx context.Context) ([]byte, error) {
	return pg.QueryValue[[]byte](ctx, s.db, `SELECT cursor_key FROM maintenance_state`)
}
