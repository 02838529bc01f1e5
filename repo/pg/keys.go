package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// A client's change is refused if its API key has ended by the time of the commit. The key was checked when the request began, and a
// request can take as long as its body takes to arrive. Statements that submit, cancel or retry one job check the key themselves. Every
// other change checks it in the last statement of its transaction.

var errKeyRevoked = job.Errorf(job.CodeKeyDisabled, "The API key was revoked while the request was under way.")

var errKeyExpired = job.Errorf(job.CodeTokenExpired, "The API key expired while the request was under way. Renew it, "+
	"and repeat the request.")

const readKeyEnd = `SELECT revoked_at, expires_at > clock_timestamp() FROM api_keys WHERE key_id = $1`

// RequireKey refuses a key that has been revoked or has expired.
func (d *DB) RequireKey(ctx context.Context, id string) error {
	return refusalOfKey(QueryFirst(ctx, d, pgx.RowToStructByPos[keyEnd], readKeyEnd, id))
}

// requireKeyIn returns an error at the end of a transaction if the API key of the context has ended. It locks the key's row: it waits for
// a change in progress, and later changes wait for this transaction. Statements that change a key lock its client before the key, so there
// is no deadlock.
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
