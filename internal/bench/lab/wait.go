package lab

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// PollInterval is the shortest time between two looks at a state that is waited for.
const PollInterval = 20 * time.Millisecond

// ErrLate: what was waited for did not come in time.
var ErrLate = errors.New("not in time")

// Pause waits for a while, less if the context ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Poll asks until the answer is yes, for the given time at most. Asking takes no
// more than a fifth of the time: it must not be what the machine does.
func Poll(ctx context.Context, limit time.Duration, what string, ask func() (bool, error)) error {
	for end := time.Now().Add(limit); ; {
		asked := time.Now()
		yes, err := ask()
		if err != nil || yes {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: %w: %v", what, ErrLate, limit)
		}
		if Pause(ctx, max(PollInterval, 4*time.Since(asked))); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
