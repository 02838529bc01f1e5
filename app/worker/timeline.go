package worker

import (
	"context"
	"errors"
	"time"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
)

// timeline times the steps of an attempt by the clock of a test bed. If the clock jumps, the steps still happen in order, each with its
// planned time. It is not safe for concurrent use.
type timeline struct {
	clock   *clock.Clock
	start   time.Time
	limit   time.Time
	reached time.Time
}

// After the clock reaches the execution limit, steps that were planned before the limit have limitGrace in real time to happen.
const limitGrace = 5 * time.Second

// limited applies the execution limit to a started attempt. In a test bed, it also returns a timeline. If the clock jumps past the limit,
// steps planned before the limit still happen.
func (w *Worker) limited(ctx context.Context, c *job.Claim) (context.Context, *timeline, context.CancelFunc) {
	if w.cfg.Clock == nil {
		limited, cancel := context.WithTimeoutCause(ctx, w.cfg.Limit, errTimeLimit)
		return limited, nil, cancel
	}
	start := *c.Job.StartedAt // not the current time, because the clock may have jumped since the start
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

func (t *timeline) Start() time.Time { return t.start }

func (t *timeline) Now() time.Time { return t.clock.Now() }

// WaitUntil waits until `at`. If `at` is after the execution limit, it waits until the limit and returns an error. For the zero time, it
// returns at once.
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

func (t *timeline) latest() *time.Time {
	if t == nil {
		return nil
	}
	at := t.reached
	return &at
}

// ended returns the planned end of the work. It returns nil for an unplanned end, such as a cancel.
func (t *timeline) ended(err error) *time.Time {
	var planned interface{ FailureReason() job.Reason }
	if err == nil || errors.As(err, &planned) || errors.Is(err, errTimeLimit) {
		return t.latest()
	}
	return nil
}
