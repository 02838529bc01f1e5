package testbed

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// ResetStore removes what a client has, a part at a time.
type ResetStore interface {
	ResetStep(ctx context.Context, e *job.Erasure) (step job.ErasureStep, done bool, err error)
}

// Canceler cancels jobs, as their clients do.
type Canceler interface {
	Cancel(ctx context.Context, client, id job.ID) (job.Change, error)
}

// Tasks are the tasks of jobs and deliveries in the queue.
type Tasks interface {
	Remove(t job.Task)
	RemoveDeliveries(ids ...job.ID)
}

const (
	resetTime  = 7 * time.Second // for which a request goes on
	resetPause = 20 * time.Millisecond
)

// Resetter removes what clients have.
type Resetter struct {
	store ResetStore
	jobs  Canceler
	tasks Tasks
}

// NewResetter makes the use case.
func NewResetter(store ResetStore, jobs Canceler, tasks Tasks) *Resetter {
	return &Resetter{store, jobs, tasks}
}

// Reset removes all jobs of a client with what belongs to them, its batches, webhooks, bulk operations, rules, events and
// idempotency keys, and gives the numbers of rows by table. What it has not done in its time a repetition does.
func (s *Resetter) Reset(ctx context.Context, client job.ID) (map[string]int, error) {
	e := &job.Erasure{ClientID: client, Removed: map[string]int{}, Remaining: map[string]int{}}
	for began := time.Now(); time.Since(began) < resetTime; {
		step, done, err := s.store.ResetStep(ctx, e)
		if err != nil {
			return nil, err
		}
		if err := s.follow(ctx, client, step); err != nil {
			return nil, err
		}
		if done {
			return e.Removed, nil
		}
		if !step.Progress && !app.Sleep(ctx, resetPause) {
			return nil, ctx.Err()
		}
	}
	return nil, job.Errorf(job.CodeStorageUnavailable, "Not all is removed yet; there is much. Send the request again.")
}

// follow tells others what a step has removed, and cancels jobs. One that is gone, or has ended, is as it should be.
func (s *Resetter) follow(ctx context.Context, client job.ID, step job.ErasureStep) error {
	app.AfterCommit(ctx, func() {
		s.tasks.RemoveDeliveries(step.Deliveries...)
		for _, t := range step.Tasks {
			s.tasks.Remove(t)
		}
	})
	for _, id := range step.Unfinished {
		_, err := s.jobs.Cancel(ctx, client, id)
		switch job.CodeOf(err) {
		case job.CodeJobNotFound, job.CodeJobGone, job.CodeConflict:
		default:
			if err != nil {
				return err
			}
		}
	}
	return nil
}
