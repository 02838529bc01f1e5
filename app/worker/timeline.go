package worker

import (
	"context"
	"errors"
	"time"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
)

// timeline is the time of one attempt by the clock of a test bed. The clock may jump over moments of it. Each still takes place, one
// after the other, at its own time. Only the goroutine of the work uses it.
type timeline struct {
	clock   *clock.Clock
	start   time.Time
	limit   time.Time // end of the execution limit
	reached time.Time // latest moment that the work has waited for
}

// limitGrace is how long work without waits may go on after the execution limit.
const limitGrace = 5 * time.Second

// limited bounds a started attempt by the execution limit. In a test bed it returns a timeline, nil elsewhere: what was to happen before
// the limit happens before it, however far the clock jumps.
func (w *Worker) limited(ctx context.Context, c *job.Claim) (context.Context, *timeline, context.CancelFunc) {
	if w.cfg.Clock == nil {
		limited, cancel := context.WithTimeoutCause(ctx, w.cfg.Limit, errTimeLimit)
		return limited, nil, cancel
	}
	start := *c.Job.StartedAt // by Postgres: the clock may have jumped over it
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

// WaitUntil waits for a moment of the attempt, but not beyond the execution limit. The zero moment is always past.
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

// latest returns the moment that the work has reached, nil without a timeline.
func (t *timeline) latest() *time.Time {
	if t == nil {
		return nil
	}
	at := t.reached
	return &at
}

// ended returns when work that returned err ended; nil means now, because something else ended it.
func (t *timeline) ended(err error) *time.Time {
	var planned interface{ FailureReason() job.Reason }
	if err == nil || errors.As(err, &planned) || errors.Is(err, errTimeLimit) {
		return t.latest()
	}
	return nil
}
