package redisconn

import (
	"context"
	"time"
)

// WaitFor calls the function `wait` and waits until it returns. If ctx ends first, WaitFor returns ctx's error, and `wait` goes on.
func WaitFor(ctx context.Context, wait func()) error {
	done := make(chan struct{})
	go func() {
		wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Pause waits for d, or until ctx ends or `stopping` is closed.
func Pause(ctx context.Context, d time.Duration, stopping <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-stopping:
	}
}
