// Package clock is the clock of a test bed's jobs, which a client may freeze, move and let run faster. Everything that is scheduled
// follows it; leases, time limits of connections and signatures do not.
//
// Postgres has the clock (functions in our schema); this package follows it in each process. Without a test bed it is never moved, but it
// may differ from the machine's clock. A nil Clock is the machine's.
package clock

import (
	"context"
	"math"
	"sync"
	"time"
)

// Setting says how the service's time follows from Postgres' clock since a move. The zero value is a clock that was
// never moved.
type Setting struct {
	Number int64     // of the move, from 1
	Real   time.Time // at this moment of Postgres' clock
	Time   time.Time // the service's time was this one
	Rate   float64   // and so fast it has passed since; 0: it is frozen
}

// Moved reports whether the service's time may differ from Postgres' clock.
func (s Setting) Moved() bool { return s.Number > 0 }

// At is the service's time when Postgres' clock shows real.
func (s Setting) At(real time.Time) time.Time {
	switch {
	case !s.Moved():
		return real
	case s.Rate == 1: // exactly
		return s.Time.Add(real.Sub(s.Real))
	}
	return s.Time.Add(time.Duration(float64(real.Sub(s.Real)) * s.Rate))
}

// Never is longer than any wait.
const Never = time.Duration(math.MaxInt64)

// Wait is how long it takes until d has passed in the service's time: Never while it is frozen.
func (s Setting) Wait(d time.Duration) time.Duration {
	switch {
	case d <= 0:
		return 0
	case !s.Moved() || s.Rate == 1:
		return d
	case s.Rate == 0:
		return Never
	}
	return time.Duration(min(math.Ceil(float64(d)/s.Rate), math.MaxInt64/2))
}

// Moves are the settings that a clock has had, in their order.
type Moves []Setting

// Real returns the moment of Postgres' clock at which the service's time reached t: that of the move, if it jumped over t. For a future t
// it assumes no more moves; a year ahead at most.
func (ms Moves) Real(t time.Time) time.Time {
	last := Setting{Real: t, Time: t, Rate: 1} // the clock was never moved before the first
	i := 0
	for i < len(ms) && ms[i].Time.Before(t) {
		last = ms[i]
		i++
	}
	real := last.Real.Add(min(last.Wait(t.Sub(last.Time)), farAhead))
	if i < len(ms) && ms[i].Real.Before(real) {
		return ms[i].Real
	}
	return real
}

// Clock is the service's time in one process. It is safe for concurrent use; all methods but Set may be called on nil.
type Clock struct {
	mu      sync.Mutex
	setting Setting
	ahead   time.Duration // of Postgres' clock to this machine's
	changed chan struct{} // closed with the next change
}

// New makes a clock that was never moved.
func New() *Clock { return &Clock{changed: make(chan struct{})} }

// Set learns a setting, and by how much Postgres' clock is ahead of this machine's. A setting that is older than the
// present one changes nothing.
func (c *Clock) Set(s Setting, ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s.Number < c.setting.Number:
		return
	case s.Number > c.setting.Number:
		close(c.changed)
		c.changed = make(chan struct{})
	}
	c.setting, c.ahead = s, ahead
}

// Setting is the present one.
func (c *Clock) Setting() Setting {
	if c == nil {
		return Setting{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setting
}

// Moved reports whether the clock was ever moved.
func (c *Clock) Moved() bool { return c.Setting().Moved() }

// Now is the service's time.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setting.At(time.Now().Add(c.ahead))
}

// Wait is how long it takes until d has passed, if the clock is not moved meanwhile.
func (c *Clock) Wait(d time.Duration) time.Duration { return c.Setting().Wait(d) }

// farAhead stands for a time that does not come while the clock is frozen.
const farAhead = 365 * 24 * time.Hour

// Real is when the machine's clock will show that the service's time is t, if it is not moved meanwhile; a year ahead at most.
func (c *Clock) Real(t time.Time) time.Time {
	if !c.Moved() {
		return t
	}
	return time.Now().Add(min(c.Wait(t.Sub(c.Now())), farAhead))
}

// Changed is closed when the clock is moved the next time; nil, so never, for a nil clock.
func (c *Clock) Changed() <-chan struct{} {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// longest bounds a sleep, so that a change of Postgres' clock itself is noticed.
const longest = time.Minute

// SleepUntil waits until the clock shows t, through any moves. An error is the cause of ctx, which ended before.
func (c *Clock) SleepUntil(ctx context.Context, t time.Time) error {
	for {
		changed := c.Changed() // before the time is read: a move in between is not missed
		left := c.Wait(t.Sub(c.Now()))
		if left <= 0 {
			return context.Cause(ctx)
		}
		timer := time.NewTimer(min(left, longest))
		select {
		case <-timer.C:
		case <-changed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}
