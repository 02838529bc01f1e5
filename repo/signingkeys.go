package repo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// isPublished guards keys that receivers may still need.
const isPublished = `(retires_at IS NULL OR retires_at > clock_timestamp())`

// SigningKeys gives the keys that are published, the oldest first.
func (s *Store) SigningKeys(ctx context.Context) ([]job.SigningKey, error) {
	return queryRows(ctx, s, func(row pgx.CollectableRow) (k job.SigningKey, err error) {
		return k, row.Scan(&k.KID, &k.Public, &k.Sealed, &k.CreatedAt, &k.SignsFrom, &k.RetiresAt)
	}, `SELECT kid, public_key, private_key, created_at, signs_from, retires_at FROM signing_keys
		WHERE `+isPublished+` ORDER BY created_at, kid`)
}

const (
	// addSigningKey adds a key, or again one that was on its way out.
	addSigningKey = `
INSERT INTO signing_keys (kid, public_key, private_key, created_at, signs_from)
SELECT $1, $2, $3, at, CASE WHEN k.known THEN at + $4::interval ELSE at END
FROM (VALUES (clock_timestamp())) AS v(at), (SELECT EXISTS (SELECT FROM signing_keys WHERE ` + isPublished + `) AS known) AS k
WHERE NOT ($5 AND k.known)
ON CONFLICT (kid) DO UPDATE SET created_at = excluded.created_at, signs_from = excluded.signs_from, retires_at = NULL
WHERE signing_keys.retires_at IS NOT NULL`

	retireOtherKeys = `
UPDATE signing_keys SET retires_at = (SELECT greatest(signs_from, clock_timestamp()) FROM signing_keys WHERE kid = $1) + $2::interval
WHERE kid <> $1 AND retires_at IS NULL`
)

// AddSigningKey publishes a key, to sign after the delay, which gives receivers
// time to learn of it; the first key of all signs at once. The others are
// published for the overlap longer than they sign. The times are Postgres'.
//
// With onlyFirst nothing happens if there is a key already. A key that is
// current already stays as it is; the others retire all the same.
func (s *Store) AddSigningKey(ctx context.Context, k job.SigningKey, onlyFirst bool, delay, overlap time.Duration) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// Processes that start together take turns.
		if _, err := tx.Exec(ctx, `LOCK TABLE signing_keys IN SHARE ROW EXCLUSIVE MODE`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, addSigningKey, k.KID, k.Public, k.Sealed, delay, onlyFirst); err != nil || onlyFirst {
			return err
		}
		_, err := tx.Exec(ctx, retireOtherKeys, k.KID, overlap)
		return err
	})
	if err != nil {
		return s.failed("signing key", err)
	}
	return nil
}
