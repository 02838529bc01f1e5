package testbed

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

const (
	resetTime  = 7 * time.Second
	resetPause = 20 * time.Millisecond
)

// Reset removes the jobs, batches, schedules, webhooks, bulk operations, fault rules, events and idempotency keys of a client. It returns
// the number of removed rows by table. If it returns an error, call it again to continue.
func (b *Bed) Reset(ctx context.Context, client job.ID) (map[string]int, error) {
	e := &job.Erasure{ClientID: client, Removed: map[string]int{}, Remaining: map[string]int{}}
	for began := time.Now(); time.Since(began) < resetTime; {
		step, done, err := b.ResetStep(ctx, e)
		if err != nil {
			return nil, err
		}
		if err := b.Jobs.FinishErasure(ctx, client, step, b.Tasks); err != nil {
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
