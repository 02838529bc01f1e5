package operator

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/repo/pg"
)

// History returns the buckets of a time window, the oldest first.
func (a Admin) History(ctx context.Context, w admin.Window) ([]admin.HistoryBucket, error) {
	length, step := w.Span()
	width := 60
	if step < time.Minute {
		width = int(historyWidth / time.Second)
	}
	return pg.QueryOne(ctx, a.store.db, nil, pg.ScanJSON[[]admin.HistoryBucket], statement("readHistory"), width, length, step)
}

// Ends returns how many jobs were submitted, and how many ended in each final state, within the duration `last` until now. The history goes
// back at most two days.
func (a Admin) Ends(ctx context.Context, last time.Duration) (admin.Ends, error) {
	return pg.QueryOne(ctx, a.store.db, nil, pgx.RowToStructByPos[admin.Ends], statement("sumHistory"), last)
}

const (
	historyWidth = 10 * time.Second // WriteHistory writes buckets of this width; RollUpHistory merges them into one-minute buckets

	// A missing bucket is written later only if it is at most historyBack old.
	historyBack = 15 * time.Minute
	// historyMost limits the jobs that are counted per ten-second bucket (20,000 a second).
	historyMost = 200_000
	// historyTimeout limits how long Postgres works on one bucket. After a timeout, the bucket is missing and is written later.
	historyTimeout = 2 * time.Second
)

// MissingHistory returns the buckets to write, the latest first.
func (s *Store) MissingHistory(ctx context.Context) ([]time.Time, error) {
	return pg.QueryAs(ctx, s.db, "history", pgx.RowTo[time.Time], statement("missingHistory"), historyBack)
}

// WriteHistory counts the new and the ended jobs of the bucket that begins at `at`, and stores the counts. A bucket may be written again,
// also by another process.
//
// A new job counts in the bucket of the time in its id, which comes from the clock of the api process. If this clock is more than about
// half a minute behind, the bucket is not written again after the job is stored. The job is then missing in the history.
func (s *Store) WriteHistory(ctx context.Context, at time.Time) error {
	from, to := pg.FirstIDOf(at), pg.FirstIDOf(at.Add(historyWidth))
	return s.inHistory(ctx, statement("writeHistory"), at, [16]byte(from), [16]byte(to), historyMost)
}

// RollUpHistory merges ten-second buckets into one-minute buckets.
func (s *Store) RollUpHistory(ctx context.Context) error {
	return s.inHistory(ctx, statement("rollUpHistory"), historyBack+time.Minute)
}

// inHistory runs a statement with a timeout. Postgres enforces the timeout even if the connection is lost.
func (s *Store) inHistory(ctx context.Context, sql string, args ...any) error {
	return s.db.InTx(ctx, "history", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = `+pg.Milliseconds(min(historyTimeout, s.db.Timeout))); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
}
