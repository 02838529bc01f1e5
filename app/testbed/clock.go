package testbed

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/repo"
)

// Clock moves the clock of the whole service.
type Clock struct {
	Store *repo.Store
	// Schedule queues all due jobs. It skips jobs locked by another process.
	Schedule func(ctx context.Context) error
}

// ClockState reads the test bed's clock, and sets this process's clock to it.
func (c *Clock) ClockState(ctx context.Context) (testbed.ClockState, error) {
	return c.Store.ReadClockMove(ctx)
}

// MoveClock moves the clock. When it returns, the jobs that have become due are QUEUED. After an error the clock may or may not have
// moved.
func (c *Clock) MoveClock(ctx context.Context, m testbed.ClockMove) (testbed.ClockState, error) {
	state, finish, err := c.Store.MoveClock(ctx, m.From)
	if err != nil {
		return state, err
	}
	app.AfterCommit(ctx, func() {
		if state, err = finish(ctx); err == nil {
			err = c.queueDue(ctx)
		}
		if err != nil {
			err = &job.Error{Code: job.CodeStorageUnavailable, RetryAfter: time.Second, Cause: err,
				Detail: "The clock was moved, but some due jobs are not queued yet. Read the clock before you move it again."}
		}
	})
	return state, err
}

const queuePause = 5 * time.Millisecond

func (c *Clock) queueDue(ctx context.Context) error {
	for {
		if err := c.Schedule(ctx); err != nil {
			return err
		}
		if due, err := c.Store.AnyDue(ctx); err != nil || !due {
			return err
		}
		if !app.Sleep(ctx, queuePause) {
			return ctx.Err()
		}
	}
}
