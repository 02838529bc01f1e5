package testbed

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/forgerun/forgerun/client"
)

const (
	minInterval = 100 * time.Millisecond
	askedPause  = 100 * time.Millisecond // interval of the checks whether the command has sent a request
)

type advance struct {
	by, every time.Duration // `every` is the interval between moves; 0: a single move
}

func (a *advance) String() string {
	switch {
	case a.by == 0:
		return ""
	case a.every == 0:
		return a.by.String()
	}
	return a.by.String() + "/" + a.every.String()
}

func (a *advance) Type() string { return "duration" }

// Set parses DURATION or DURATION/INTERVAL.
func (a *advance) Set(text string) (err error) {
	by, every, repeated := strings.Cut(text, "/")
	if a.by, err = time.ParseDuration(by); err == nil && repeated {
		a.every, err = time.ParseDuration(every)
	}
	if err != nil || a.by <= 0 || repeated && a.every < minInterval {
		return fmt.Errorf("must be a duration such as 25h, or DURATION/INTERVAL such as 1h/1s with an interval of at least %s", minInterval)
	}
	return nil
}

// run waits until the client has sent a request in the given session or a later one. Then it moves the clock. If a.every is set, it repeats
// the move at this interval until ctx ends.
func (a *advance) run(ctx context.Context, c *client.Client, session string) error {
	err := a.awaitRequest(ctx, c, session)
	for err == nil {
		if _, err = c.AdvanceClock(ctx, a.by); err != nil || a.every == 0 {
			break
		}
		err = pause(ctx, a.every)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("move the clock: %w", err)
	}
	return nil
}

func (a *advance) awaitRequest(ctx context.Context, c *client.Client, session string) error {
	for {
		sessions, err := sessionsSince(ctx, c, session)
		if err != nil {
			return err
		}
		for _, n := range sessions {
			if n.Exchanges > 0 {
				return nil
			}
		}
		if err := pause(ctx, askedPause); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
