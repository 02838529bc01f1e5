package worker

import (
	"context"
	"errors"
	"time"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
)

// timeline is the time of one attempt by the clock of a test bed. The clock may jump over moments of it: each takes
// place all the same, one after the other, and has its own time. It is used by the goroutine that does the work.
type timeline struct {
	clock   *clock.Clock
	start   time.Time
	limit   time.Time // when the execution limit is over
	reached time.Time // the latest moment that the work has waited for
}

// limitGrace is how long work may go on that does not wait for its time when the execution limit is over.
const limitGrace = 5 * time.Second

// limited bounds an attempt that was started by the execution limit. In a test bed it has a timeline, which is nil elsewhere:
// there what was to happen before the limit has happened before it, however far the clock jumps.
func (w *Worker) limited(ctx context.Context, c *job.Claim) (context.Context, *timeline, context.CancelFunc) {
	if w.cfg.Clock == nil {
		limited, cancel := context.WithTimeoutCause(ctx, w.cfg.Limit, errTimeLimit)
		return limited, nil, cancel
	}
	start := *c.Job.StartedAt // by Postgres: perhaps in a past that the clock has jumped over
	t := &timeline{clock: w.cfg.Clock, start: start, limit: start.Add(w.cfg.Limit), reached: start}
	limited, cancel := context.WithCancelCause(ctx)
	go func() {
		if t.clock.SleepUntil(limited, t.limit) != nil {
			return
		}
		select {
		case <-time.After(limitGrace):
			cancel(errTimeLimit)
		case <-limited.Done():
		}
	}()
	return limited, t, func() { cancel(nil) }
}

// Start is when the attempt began.
func (t *timeline) Start() time.Time { return t.start }

// Now is the clock's time.
func (t *timeline) Now() time.Time { return t.clock.Now() }

// WaitUntil waits for a moment of the attempt, the zero one being always past; not beyond the execution limit.
func (t *timeline) WaitUntil(ctx context.Context, at time.Time) error {
	over := at.After(t.limit)
	if over {
		at = t.limit
	}
	if err := t.clock.SleepUntil(ctx, at); err != nil {
		return err
	}
	if at.After(t.reached) {
		t.reached = at
	}
	if over {
		return errTimeLimit
	}
	return nil
}

// latest is the moment that the work has reached, nil without a timeline.
func (t *timeline) latest() *time.Time {
	if t == nil {
		return nil
	}
	at := t.reached
	return &at
}

// ended is when work ended that has returned with err; nil: now, because something else ended it.
func (t *timeline) ended(err error) *time.Time {
	var planned interface{ FailureReason() job.Reason }
	if err == nil || errors.As(err, &planned) || errors.Is(err, errTimeLimit) {
		return t.latest()
	}
	return nil
}
