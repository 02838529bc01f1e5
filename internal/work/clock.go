package work

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
)

// machineClock reads this machine's clock. It stores the start of the attempt.
type machineClock time.Time

func clockOf(on job.Observer) job.AttemptClock {
	if on.Clock != nil {
		return on.Clock
	}
	return machineClock(time.Now())
}

func (t machineClock) Start() time.Time { return time.Time(t) }

func (machineClock) Now() time.Time { return time.Now() }

// WaitUntil returns at the given moment, or with context.Cause(ctx) if ctx ends first.
func (machineClock) WaitUntil(ctx context.Context, until time.Time) error {
	if left := time.Until(until); left > 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}
