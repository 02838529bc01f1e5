package testbed

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

const (
	resetTime  = 7 * time.Second // time limit of a request
	resetPause = 20 * time.Millisecond
)

// Resetter removes all data of a client.
type Resetter struct {
	Store *repo.Store
	Jobs  *jobs.Service
	Tasks app.Tasks
}

// Reset removes all jobs of a client with their data, its batches, webhooks, bulk operations, rules, events and idempotency keys. It
// returns the number of removed rows by table. A repetition continues where it stopped.
func (s *Resetter) Reset(ctx context.Context, client job.ID) (map[string]int, error) {
	e := &job.Erasure{ClientID: client, Removed: map[string]int{}, Remaining: map[string]int{}}
	for began := time.Now(); time.Since(began) < resetTime; {
		step, done, err := s.Store.ResetStep(ctx, e)
		if err != nil {
			return nil, err
		}
		if err := s.finishStep(ctx, client, step); err != nil {
			return nil, err
		}
		if done {
			return e.Removed, nil
		}
		if !step.Progress && !app.Sleep(ctx, resetPause) {
			return nil, ctx.Err()
		}
	}
	return nil, job.Errorf(job.CodeStorageUnavailable, "The reset is not complete yet. Send the request again.")
}

// finishStep removes the tasks of removed jobs from the queue, and cancels jobs that later steps remove. It ignores jobs that are gone or
// have ended.
func (s *Resetter) finishStep(ctx context.Context, client job.ID, step job.ErasureStep) error {
	app.AfterCommit(ctx, func() {
		s.Tasks.RemoveDeliveries(step.Deliveries...)
		for _, t := range step.Tasks {
			s.Tasks.Remove(t)
		}
	})
	for _, id := range step.Unfinished {
		_, err := s.Jobs.Cancel(ctx, client, id)
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
