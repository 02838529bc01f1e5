package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// A client's change is refused if its API key was revoked or expired before the commit. The check at the start of the request is not
// enough, because the request's body can take long to arrive. The SQL statements that submit, cancel or retry one job check the key
// themselves. All other changes check the key in the last statement of their transaction.

var errKeyRevoked = job.Errorf(job.CodeKeyDisabled, "The API key was revoked while the request was under way.")

var errKeyExpired = job.Errorf(job.CodeTokenExpired, "The API key expired while the request was under way. Renew it, "+
	"and repeat the request.")

const readKeyEnd = `SELECT revoked_at, expires_at > clock_timestamp() FROM api_keys WHERE key_id = $1`

// RequireKey refuses a key that has been revoked or has expired.
func (d *DB) RequireKey(ctx context.Context, id string) error {
	return refusalOfKey(QueryFirst(ctx, d, pgx.RowToStructByPos[keyEnd], readKeyEnd, id))
}

// requireKeyIn is called before a commit. It returns an error if the API key of the context has ended. It locks the key's row, so that the
// key cannot be revoked before the commit. This causes no deadlocks: requireKeyIn takes the last lock of its transaction, and statements
// that change a key lock the client first.
func requireKeyIn(ctx context.Context, tx pgx.Tx) error {
	id := job.KeyOf(ctx)
	if id == "" {
		return nil
	}
	return refusalOfKey(First(RowsIn(ctx, tx, pgx.RowToStructByPos[keyEnd], readKeyEnd+` FOR SHARE`, id)))
}

type keyEnd struct {
	RevokedAt *time.Time
	Valid     bool // not expired
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
