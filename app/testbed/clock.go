package testbed

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
)

// ClockStore keeps the clock of the whole service.
type ClockStore interface {
	// ReadClockMove reads the clock, and has this process follow it.
	ReadClockMove(ctx context.Context) (testbed.ClockState, error)
	// MoveClock moves it from the state that it has to what move makes of that. settle is called after the commit.
	MoveClock(ctx context.Context, move func(testbed.ClockState) (testbed.ClockState, error)) (
		moved testbed.ClockState, settle func(context.Context) (testbed.ClockState, error), err error)
	// AnyDue reports whether there is a job whose time has come and which is not queued yet.
	AnyDue(ctx context.Context) (bool, error)
}

// Scheduler queues all jobs whose time has come, but for those that somebody else is queueing.
type Scheduler interface {
	Schedule(ctx context.Context) error
}

// Clock is the use cases of the clock.
type Clock struct {
	store     ClockStore
	scheduler Scheduler
}

// NewClock makes them.
func NewClock(store ClockStore, scheduler Scheduler) *Clock { return &Clock{store, scheduler} }

// ClockState reads the clock.
func (c *Clock) ClockState(ctx context.Context) (testbed.ClockState, error) {
	return c.store.ReadClockMove(ctx)
}

// MoveClock moves the clock. When it returns, the jobs that have become due are QUEUED, with the time at which they were
// due. With an error of storage the clock may have been moved.
func (c *Clock) MoveClock(ctx context.Context, m testbed.ClockMove) (testbed.ClockState, error) {
	state, settle, err := c.store.MoveClock(ctx, m.From)
	if err != nil {
		return state, err
	}
	app.AfterCommit(ctx, func() {
		if state, err = settle(ctx); err != nil {
			err = notAllQueued(err)
			return
		}
		err = c.queueDue(ctx)
	})
	return state, err
}

// queuePause is how long jobs are waited for that another process is queueing.
const queuePause = 5 * time.Millisecond

// queueDue queues what is due, until nothing is.
func (c *Clock) queueDue(ctx context.Context) error {
	for {
		if err := c.scheduler.Schedule(ctx); err != nil {
			return notAllQueued(err)
		}
		due, err := c.store.AnyDue(ctx)
		switch {
		case err != nil:
			return notAllQueued(err)
		case !due:
			return nil
		case !app.Sleep(ctx, queuePause):
			return notAllQueued(ctx.Err())
		}
	}
}

func notAllQueued(cause error) error {
	return &job.Error{Code: job.CodeStorageUnavailable, RetryAfter: time.Second, Cause: cause,
		Detail: "The clock was moved, but not all jobs whose time has come are queued yet. Read the clock before you move it again."}
}
