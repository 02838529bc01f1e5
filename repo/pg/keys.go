package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// A change that a client asks for is refused when the API key that asked has ended by the time of the commit: the key was looked at
// when the request began, and a request can take as long as its body. A single submission, a cancel and a retry require the key in
// their own statement, which sees all that was committed before it; every other change in the last statement of its transaction.

var errKeyRevoked = job.Errorf(job.CodeKeyDisabled, "The API key was revoked while the request was under way.")

var errKeyExpired = job.Errorf(job.CodeTokenExpired, "The API key expired while the request was under way. Renew it, "+
	"and repeat the request.")

// readKeyEnd reads when a key ended or will end, found by primary key.
const readKeyEnd = `SELECT revoked_at, expires_at > clock_timestamp() FROM api_keys WHERE key_id = $1`

// RequireKey refuses a key that has been revoked or has expired.
func (d *DB) RequireKey(ctx context.Context, id string) error {
	return refusalOfKey(QueryFirst(ctx, d, pgx.RowToStructByPos[keyEnd], readKeyEnd, id))
}

// requireKeyIn refuses the API key of the context at the end of a transaction. It waits for a change of the key that is under way,
// and one that comes later waits for the commit: what locks keys has locked their client before, so that the two do not wait for
// each other.
func requireKeyIn(ctx context.Context, tx pgx.Tx) error {
	id := job.KeyOf(ctx)
	if id == "" {
		return nil
	}
	return refusalOfKey(First(RowsIn(ctx, tx, pgx.RowToStructByPos[keyEnd], readKeyEnd+` FOR SHARE`, id)))
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
