package maintenance

import (
	"context"
	"slices"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

const (
	pauseInterval = 500 * time.Millisecond
	pauseBatch    = 1000
	// After a change, workers may still use the old pauses for pauseOverlap.
	pauseOverlap = 5 * time.Second
	// pauseSweepEvery is the time between periodic sweeps, in case a change was missed.
	pauseSweepEvery = 30 * time.Second
)

type pauseSweep struct {
	store *repo.Store
	relay *relay

	known          []job.ID
	changed, swept time.Time
}

func (s *pauseSweep) round(ctx context.Context, leading func() bool) error {
	pauses, err := s.store.Pauses(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	if !s.due(pauses, now) {
		return nil
	}
	for after := (job.ID{}); leading(); {
		tasks, last, err := s.store.ResumePaused(ctx, after, pauseBatch)
		if err != nil {
			return err
		}
		if _, err := s.relay.ensure(ctx, tasks, app.Resumed); err != nil {
			return err
		}
		if last.IsZero() {
			s.swept = now
			return nil
		}
		after = last
	}
	return nil
}

func (s *pauseSweep) due(pauses job.Pauses, now time.Time) bool {
	ids := make([]job.ID, len(pauses))
	for i, p := range pauses {
		ids[i] = p.ID
	}
	if !slices.Equal(ids, s.known) {
		s.known, s.changed = ids, now
	}
	return now.Sub(s.changed) <= pauseOverlap || now.Sub(s.swept) >= pauseSweepEvery
}
