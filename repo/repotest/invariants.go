package repotest

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forgerun/forgerun/internal/invariants"
)

// Violations returns a sentence for each row that violates an invariant at one moment. Each sentence begins with INVARIANT, so that a run
// of all tests does not retry the test.
func Violations(ctx context.Context, db *pgxpool.Pool) (wrong []string, err error) {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return wrong, pgx.BeginTxFunc(ctx, db, options, func(tx pgx.Tx) error {
		return invariants.Find(ctx, tx, AnyTime, func(f invariants.Finding) {
			wrong = append(wrong, fmt.Sprintf("INVARIANT %s (job %s)", f, f.Job))
		})
	})
}

// AnyTime holds parameters with which the invariants accept rows whose times a test has moved.
var AnyTime = pgx.NamedArgs{
	"now": time.Time{}, "settled": time.Time{}, "recent": time.Duration(0), "skew": 100 * year, "follow": 100 * year,
}

const year = 365 * 24 * time.Hour
