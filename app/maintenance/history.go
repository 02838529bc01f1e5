package maintenance

import (
	"context"
	"errors"
	"time"
)

// HistoryStore is what the record of what happened needs of storage. Each call takes a bounded time, and may be repeated by whomever.
type HistoryStore interface {
	// MissingHistory gives the buckets that are over and to be written, the latest first. The latest ones are written
	// again, for what is committed late.
	MissingHistory(ctx context.Context) ([]time.Time, error)
	WriteHistory(ctx context.Context, at time.Time) error
	// RollUpHistory makes minutes of what was written.
	RollUpHistory(ctx context.Context) error
}

const historyInterval = 10 * time.Second

// writeHistory writes what is missing of the history. A bucket that takes too long ends the round, so that a round in which Postgres
// is slow asks it for one such bucket at most: it comes again while it is missing, after those that are younger.
func (m *Maintenance) writeHistory(ctx context.Context, leading func() bool) error {
	missing, err := m.deps.History.MissingHistory(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, at := range missing {
		if !leading() {
			return failed
		}
		if failed = m.deps.History.WriteHistory(ctx, at); failed != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return failed
	}
	return errors.Join(failed, m.deps.History.RollUpHistory(ctx))
}
