package worker

import (
	"context"
	"errors"
	"time"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
)

// timeline runs an attempt by the clock of a test bed. If the clock jumps, the steps still happen in order, each with its planned time.
// It is not safe for concurrent use.
type timeline struct {
	clock   *clock.Clock
	start   time.Time
	limit   time.Time
	reached time.Time
}

// limitGrace is extra time after the execution limit, for work that does not wait for the clock.
const limitGrace = 5 * time.Second

// limited applies the execution limit to a started attempt. In a test bed it also returns a timeline. Even if the clock jumps past the
// limit, steps planned before the limit still happen.
func (w *Worker) limited(ctx context.Context, c *job.Claim) (context.Context, *timeline, context.CancelFunc) {
	if w.cfg.Clock == nil {
		limited, cancel := context.WithTimeoutCause(ctx, w.cfg.Limit, errTimeLimit)
		return limited, nil, cancel
	}
	start := *c.Job.StartedAt // stored by Postgres; the clock may have jumped since then
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

// WaitUntil waits until `at` or the execution limit. After the limit it returns an error. It does not wait for the zero time.
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

// ended returns the planned end of the work. It returns nil if the end was not planned, for example after a cancel.
func (t *timeline) ended(err error) *time.Time {
	var planned interface{ FailureReason() job.Reason }
	if err == nil || errors.As(err, &planned) || errors.Is(err, errTimeLimit) {
		return t.latest()
	}
	return nil
}
