package maintenance

import (
	"context"
	"slices"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// PauseStore is what jobs that were put aside by a pause need of storage.
type PauseStore interface {
	Pauses(ctx context.Context) (job.Pauses, error)
	// ResumePaused looks at the jobs after the given one that were put aside, at most limit, and makes those due that no pause
	// stops any more. It answers with their tasks, and with where to go on; zero at the end.
	ResumePaused(ctx context.Context, after job.ID, limit int) (tasks []job.Task, last job.ID, err error)
}

const (
	pauseInterval = 500 * time.Millisecond
	pauseBatch    = 1000
	// pauseSettles is for how long after a change of the pauses jobs may still be put aside by a claim that saw what was before.
	pauseSettles = 5 * time.Second
	// pauseSweepEvery is how often all are looked at without a change, should one have been missed.
	pauseSweepEvery = 30 * time.Second
)

// pauseSweep makes jobs due again that a pause stopped once it is over.
type pauseSweep struct {
	store PauseStore
	relay *Relay

	known          []job.ID // the pauses at the last look
	changed, swept time.Time
}

func (s *pauseSweep) round(ctx context.Context, leading func() bool) error {
	now, err := s.store.Pauses(ctx)
	if err != nil {
		return err
	}
	ids := make([]job.ID, len(now))
	for i, p := range now {
		ids[i] = p.ID
	}
	if !slices.Equal(ids, s.known) {
		s.known, s.changed = ids, time.Now()
	}
	if time.Since(s.changed) > pauseSettles && time.Since(s.swept) < pauseSweepEvery {
		return nil
	}
	return s.sweep(ctx, leading)
}

// sweep walks over all jobs that were put aside, and enqueues those that go on.
func (s *pauseSweep) sweep(ctx context.Context, leading func() bool) error {
	for after := (job.ID{}); leading(); {
		tasks, last, err := s.store.ResumePaused(ctx, after, pauseBatch)
		if err != nil {
			return err
		}
		if _, err := s.relay.ensure(ctx, tasks, app.Resumed); err != nil {
			return err
		}
		if last.IsZero() {
			s.swept = time.Now()
			return nil
		}
		after = last
	}
	return nil
}
