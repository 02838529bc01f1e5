package repotest

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forgerun/forgerun/internal/invariants"
)

// Violations checks all invariants in one snapshot, and returns a sentence for each row that violates an invariant. Each sentence begins
// with INVARIANT. "make test" does not retry a test that prints INVARIANT.
func Violations(ctx context.Context, db *pgxpool.Pool) (wrong []string, err error) {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return wrong, pgx.BeginTxFunc(ctx, db, options, func(tx pgx.Tx) error {
		return invariants.Find(ctx, tx, AnyTime, func(f invariants.Finding) {
			wrong = append(wrong, fmt.Sprintf("INVARIANT %s (job %s)", f, f.Job))
		})
	})
}

// AnyTime turns off the checks of times, for tests that change times in rows.
var AnyTime = pgx.NamedArgs{
	"now": time.Time{}, "settled": time.Time{}, "recent": time.Duration(0), "skew": 100 * year, "follow": 100 * year,
}

const year = 365 * 24 * time.Hour
