package maintenance

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
)

const (
	// nearHorizon is how soon the time of a job comes whose task is looked for in each round.
	nearHorizon = 5 * time.Second
	farHorizon  = 100 * 365 * 24 * time.Hour // beyond every time that a job can have
	aheadRounds = 50                         // batches of jobs whose time will come that one round looks at
)

// fillAhead gives the queue the jobs whose time comes next, so that they start
// also while there is no leader, and are seen. Those whose time comes soon are looked at
// each time. The others are looked at once: from where the queue's tasks end, if
// some of the farthest gave way to nearer ones, were taken out or lost.
func (r *Relay) fillAhead(ctx context.Context, leading func() bool) error {
	near, err := r.store.Waiting(ctx, job.QueueCursor{RunAt: r.Clock.Now()}, nearHorizon, r.batch())
	if err != nil {
		return err
	}
	if len(near) > 0 {
		if _, err := r.relay(ctx, near, "relay"); err != nil {
			return err
		}
	}
	cursor, err := r.aheadFrom(ctx)
	if err != nil {
		return err
	}
	room := unknownRoom
	for range aheadRounds {
		if !leading() {
			return nil
		}
		tasks, err := r.store.Waiting(ctx, cursor, farHorizon, r.batch())
		if err != nil {
			return err
		}
		r.ahead = cursor
		if len(tasks) == 0 {
			return nil
		}
		if room == unknownRoom {
			if room, err = r.room(ctx, (r.window+1)/2, "scheduled"); err != nil {
				return err
			}
		}
		if room <= 0 {
			return nil
		}
		enqueued, err := r.relay(ctx, tasks[:min(room, len(tasks))], "relay")
		if err != nil {
			return err
		}
		cursor, room = tasks[min(room, len(tasks))-1].Cursor(), room-enqueued
		r.ahead = cursor
	}
	return nil
}

// aheadFrom is where the walk over the jobs whose time will come goes on.
func (r *Relay) aheadFrom(ctx context.Context) (job.QueueCursor, error) {
	last, err := r.queue.LastScheduled(ctx)
	if err != nil {
		return job.QueueCursor{}, err
	}
	cursor := r.ahead
	if last.Before(cursor.RunAt) {
		cursor = job.QueueCursor{RunAt: last}
	}
	if now := r.Clock.Now(); cursor.RunAt.Before(now) {
		cursor = job.QueueCursor{RunAt: now}
	}
	return cursor, nil
}

// probeAhead does the same for jobs whose time will come, as far as the queue has
// tasks of them.
func (r *Relay) probeAhead(ctx context.Context) error {
	last, err := r.queue.LastScheduled(ctx)
	if err != nil || last.IsZero() {
		return err
	}
	if now := r.Clock.Now(); r.probingAhead.RunAt.Before(now) {
		r.probingAhead = job.QueueCursor{RunAt: now}
	}
	tasks, err := r.store.Waiting(ctx, r.probingAhead, last.Sub(r.Clock.Now()), relayBatch)
	if err != nil {
		return err
	}
	r.probingAhead = job.QueueCursor{} // around
	if len(tasks) == relayBatch {
		r.probingAhead = tasks[len(tasks)-1].Cursor()
	}
	return r.repair(ctx, tasks)
}
