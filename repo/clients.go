package repo

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// revocationChannel is the NOTIFY channel that names each key whose validity
// changed, so that every process forgets what it remembers of it.
const revocationChannel = "forgerun_keys"

// InsertClient stores a new client and gives its moment of creation.
func (s *Store) InsertClient(ctx context.Context, id job.ID) (job.Client, error) {
	created, _, err := first(queryRowsAs(ctx, s, "insert client", pgx.RowTo[time.Time],
		`INSERT INTO clients (client_id, created_at) VALUES ($1, clock_timestamp()) RETURNING created_at`, uuid(id)))
	return job.Client{ID: id, CreatedAt: created}, err
}

const keyColumns = `key_id, client_id, secret_hash, created_at, expires_at, revoked_at, coalesce(replaced_by, ''),
  used_at, issued_by, coalesce(made_by, ''), scope`

func scanKey(row pgx.CollectableRow) (k job.APIKey, err error) {
	var hash []byte
	err = row.Scan(&k.ID, &k.ClientID, &hash, &k.CreatedAt, &k.ExpiresAt, &k.RevokedAt, &k.ReplacedBy,
		&k.UsedAt, &k.IssuedBy, &k.MadeBy, &k.Scope)
	copy(k.SecretHash[:], hash)
	return k, err
}

// Key looks a key up by its public id; nil when there is none.
func (s *Store) Key(ctx context.Context, id string) (*job.APIKey, error) {
	k, found, err := queryFirst(ctx, s, scanKey, `SELECT `+keyColumns+` FROM api_keys WHERE key_id = $1`, id)
	if err != nil || !found {
		return nil, err
	}
	return &k, nil
}

// UseKey records the first use of a key, and reports whether the key is there
// still. It returns only after the commit.
func (s *Store) UseKey(ctx context.Context, id string) (exists bool, err error) {
	n, err := s.change(ctx, "use key", `UPDATE api_keys SET used_at = clock_timestamp() WHERE key_id = $1 AND used_at IS NULL`, id)
	if err != nil || n > 0 {
		return n > 0, err
	}
	// It was used before, or is gone. A statement of its own sees what the one
	// above may have waited for.
	key, err := s.Key(ctx, id)
	return key != nil, err
}

// ChangeKeys runs decide on the client and all its keys, newest first, with
// the client's row locked: two changes of one client's keys never overlap.
// What decide returns is stored. A zero client is handed over when there is
// none with this id.
func (s *Store) ChangeKeys(ctx context.Context, client job.ID,
	decide func(c job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error)) error {
	return s.inTx(ctx, "change keys", func(ctx context.Context, tx pgx.Tx) error {
		var c job.Client
		var now time.Time
		err := tx.QueryRow(ctx, lockClient, uuid(client)).Scan(&c.ID, &c.CreatedAt, &now)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		keys, err := rowsIn(ctx, tx, scanKey,
			`SELECT `+keyColumns+` FROM api_keys WHERE client_id = $1 ORDER BY created_at DESC, key_id`, uuid(client))
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

// lockClient reads the clock after it got the lock: in one query level with
// the lock it would be read before the wait.
const lockClient = `
WITH locked AS MATERIALIZED (SELECT client_id, created_at FROM clients WHERE client_id = $1 FOR NO KEY UPDATE)
SELECT client_id, created_at, clock_timestamp() FROM locked`

func storeKeys(ctx context.Context, tx pgx.Tx, change job.KeyChange) error {
	if k := change.New; k != nil {
		_, err := tx.Exec(ctx, `INSERT INTO api_keys (key_id, client_id, secret_hash, created_at, expires_at, issued_by, made_by, scope)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			k.ID, uuid(k.ClientID), k.SecretHash[:], k.CreatedAt, k.ExpiresAt, k.IssuedBy, nullable(k.MadeBy), k.Scope)
		if err != nil {
			return err
		}
	}
	for _, k := range change.Changed {
		_, err := tx.Exec(ctx, `WITH changed AS (
				UPDATE api_keys SET expires_at = $2, revoked_at = $3, replaced_by = $4 WHERE key_id = $1 RETURNING key_id)
			SELECT pg_notify('`+revocationChannel+`', key_id) FROM changed`,
			k.ID, k.ExpiresAt, k.RevokedAt, nullable(k.ReplacedBy))
		if err != nil {
			return err
		}
	}
	return nil
}

// WatchKeys calls changed with the id of every key whose validity changes in
// any process, and connected when the watch begins or ends: while it is down,
// nothing that is remembered about keys may be trusted. It returns when ctx
// ends.
func (s *Store) WatchKeys(ctx context.Context, changed func(id string), connected func(bool)) {
	for ctx.Err() == nil {
		err := s.watchKeys(ctx, changed, connected)
		connected(false)
		if ctx.Err() == nil {
			s.cfg.Logger.Warn("key watch interrupted", "action", "watch_keys",
				"error_code", string(job.CodeOf(translate(err))), "error_message", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(s.cfg.Timeout / 5):
		}
	}
}

func (s *Store) watchKeys(ctx context.Context, changed func(id string), connected func(bool)) error {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, `LISTEN `+revocationChannel); err != nil {
		return err
	}
	connected(true)
	for {
		// A dead peer sends nothing: every wait is bounded by a round trip.
		wait, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			changed(n.Payload)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			pinging, cancel := s.bound(ctx)
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

// CursorKey gives the secret that signs the cursors of lists: 32 bytes, the
// same for all processes and at all times.
func (s *Store) CursorKey(ctx context.Context) ([]byte, error) {
	return queryValue[[]byte](ctx, s, `SELECT cursor_key FROM maintenance_state`)
}

// A change that a client asks for is refused when the API key that asked has ended by the time of the commit: the key was looked at
// when the request began, and a request can take as long as its body. A single submission, a cancel and a retry require the key in
// their own statement, which sees all that was committed before it; every other change in the last statement of its transaction.

var errKeyRevoked = job.Errorf(job.CodeKeyDisabled, "The API key was revoked while the request was under way.")

var errKeyExpired = job.Errorf(job.CodeTokenExpired, "The API key expired while the request was under way. Renew it, "+
	"and repeat the request.")

// readKeyEnd reads when a key ended or will end, found by primary key.
const readKeyEnd = `SELECT revoked_at, expires_at > clock_timestamp() FROM api_keys WHERE key_id = $1`

// requireKey refuses a key that has been revoked or has expired.
func (s *Store) requireKey(ctx context.Context, id string) error {
	return refusalOfKey(queryFirst(ctx, s, pgx.RowToStructByPos[keyEnd], readKeyEnd, id))
}

// requireKeyIn refuses the API key of the context at the end of a transaction. It waits for a change of the key that is under way,
// and one that comes later waits for the commit: what locks keys has locked their client before, so that the two do not wait for
// each other.
func requireKeyIn(ctx context.Context, tx pgx.Tx) error {
	id := job.KeyOf(ctx)
	if id == "" {
		return nil
	}
	return refusalOfKey(first(rowsIn(ctx, tx, pgx.RowToStructByPos[keyEnd], readKeyEnd+` FOR SHARE`, id)))
}

type keyEnd struct {
	RevokedAt *time.Time
	Valid     bool // it has not expired
}

func refusalOfKey(k keyEnd, found bool, err error) error {
	switch {
	case err != nil:
		return err
	case !found || k.RevokedAt != nil: // the keys of erased clients are gone
		return errKeyRevoked
	case !k.Valid:
		return errKeyExpired
	}
	return nil
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
		ID     job.ID
		Unused bool
	}
	look := lookPerRemoved * limit
	looked, err := queryRows(ctx, s, pgx.RowToStructByPos[client], findUnused, uuid(s.unused.at), look, unusedClientsKept, keysKept)
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
			unused = append(unused, uuid(c.ID))
		}
		if len(unused) == limit {
			after = c.ID
			break
		}
	}
	if len(unused) > 0 {
		err = s.inTx(ctx, "clean", func(ctx context.Context, tx pgx.Tx) error { return removeUnused(ctx, tx, unused, unusedClientsKept) })
	}
	if err == nil { // the same again otherwise
		s.unused.at = after
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
	clients, err := rowsIn(ctx, tx, rowToID,
		`SELECT client_id FROM clients WHERE client_id = ANY ($1) ORDER BY client_id FOR UPDATE SKIP LOCKED`, found)
	if err != nil {
		return err
	}
	busy, err := rowsIn(ctx, tx, rowToID, `WITH locked AS MATERIALIZED (SELECT client_id, used_at, created_at FROM api_keys
			WHERE client_id = ANY ($1) ORDER BY key_id FOR UPDATE)
		SELECT client_id FROM locked WHERE used_at IS NOT NULL OR created_at > now() - $2::interval`, column(clients, uuid), keep)
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
