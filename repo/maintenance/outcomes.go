package maintenance

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/jobs"
	"github.com/forgerun/forgerun/repo/pg"
)

// UnpublishedOutcomes returns at most `limit` outcomes to append to the outcome stream, the oldest first. Only processes with
// Config.OutcomeStream store outcomes for the stream.
func (s *Store) UnpublishedOutcomes(ctx context.Context, limit int) ([]job.OutcomeMessage, error) {
	return pg.Query(ctx, s.db, func(row pgx.CollectableRow) (m job.OutcomeMessage, err error) {
		var a jobs.AttemptScanner
		err = pg.ScanRow(row, append([]any{&m.JobID}, a.Columns()...)...)
		m.Origin, m.Ended = a.Of(m.JobID)
		m.Attempt = m.Ended.Number
		return m, err
	}, statement("unpublishedOutcomes"), limit)
}

// MarkPublished notes that outcomes are in the stream.
func (s *Store) MarkPublished(ctx context.Context, messages []job.OutcomeMessage) error {
	return s.db.Exec(ctx, "publish", statement("markPublished"),
		pg.Column(messages, func(m job.OutcomeMessage) pgtype.UUID { return pg.UUID(m.JobID) }),
		pg.Column(messages, func(m job.OutcomeMessage) int { return m.Attempt }))
}

const outcomesAtOnce = 5000

// RepublishOutcomes marks all stored outcomes as unpublished, because the stream may have lost some. It returns their number.
func (s *Store) RepublishOutcomes(ctx context.Context) (n int, err error) {
	type round struct{ Found, Changed int }
	for {
		r, err := pg.Query(ctx, s.db, pgx.RowToStructByPos[round], statement("republishOutcomes"), outcomesAtOnce)
		if err != nil || r[0].Found == 0 {
			return n, err
		}
		n += r[0].Changed
	}
}

// RemovePublished removes outcomes that were published longer than `minAge` ago. The caller must choose `minAge` so that the stream cannot
// lose entries older than `minAge`.
func (s *Store) RemovePublished(ctx context.Context, minAge time.Duration) error {
	for {
		n, err := s.db.Change(ctx, "publish", statement("removePublished"), minAge, outcomesAtOnce)
		if err != nil || n < outcomesAtOnce {
			return err
		}
	}
}
