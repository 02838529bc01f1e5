package worker

import (
	"context"
	"errors"
	"time"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
)

// timeline is the time of one attempt on the clock of a test bed. If the clock jumps over the time of a step, the step still happens, in
// order and with its planned time. Only the goroutine of the work uses the timeline.
type timeline struct {
	clock   *clock.Clock
	start   time.Time
	limit   time.Time
	reached time.Time
}

// limitGrace is how long work may continue after the execution limit if it does not wait for the clock.
const limitGrace = 5 * time.Second

// limited applies the execution limit to a started attempt. In a test bed it also returns a timeline. Steps planned before the limit
// still happen if the clock jumps past the limit.
func (w *Worker) limited(ctx context.Context, c *job.Claim) (context.Context, *timeline, context.CancelFunc) {
	if w.cfg.Clock == nil {
		limited, cancel := context.WithTimeoutCause(ctx, w.cfg.Limit, errTimeLimit)
		return limited, nil, cancel
	}
	start := *c.Job.StartedAt // as stored by Postgres: the clock may have jumped since
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

// WaitUntil waits for a moment of the attempt, but not beyond the execution limit. The zero time is always past.
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

// ended returns the end of the work, given the error that the work returned. If the work did not end by its plan, for example after a
// cancel, it returns nil, which means now.
func (t *timeline) ended(err error) *time.Time {
	var planned interface{ FailureReason() job.Reason }
	if err == nil || errors.As(err, &planned) || errors.Is(err, errTimeLimit) {
		return t.latest()
	}
	return nil
}
