// Package clock computes the service time, which determines when jobs and schedules are due. In a test bed, a client may freeze the service
// time, move it and make it run faster. Leases, connection timeouts and signatures use real time.
//
// Postgres stores the clock's settings. Each process applies them to its own Clock. Outside a test bed, the clock is never moved and shows
// the time of Postgres' clock. A nil *Clock shows the time of this machine's clock.
package clock

import (
	"context"
	"math"
	"sync"
	"time"
)

// Setting is the state of the clock after a move. It converts Postgres' time to service time. The zero value is a clock that was never
// moved.
type Setting struct {
	Number int64     // moves are numbered from 1; a freeze and a new rate are moves too
	Real   time.Time // time on Postgres' clock at the move
	Time   time.Time // service time at Real
	Rate   float64   // speed of the service time after Real; 1: normal, 0: frozen
}

// Moved reports whether the clock was ever moved.
func (s Setting) Moved() bool { return s.Number > 0 }

// At returns the service time when Postgres' clock shows `real`.
func (s Setting) At(real time.Time) time.Time {
	switch {
	case !s.Moved():
		return real
	case s.Rate == 1: // avoids float rounding
		return s.Time.Add(real.Sub(s.Real))
	}
	return s.Time.Add(time.Duration(float64(real.Sub(s.Real)) * s.Rate))
}

// Never is longer than any wait.
const Never = time.Duration(math.MaxInt64)

// Wait returns the real time in which the service time advances by d. If the clock is frozen, it returns Never.
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

// Moves are the settings after each move of a clock, oldest first.
type Moves []Setting

// Real returns the time on Postgres' clock at which the service time reached t. If a move skipped t, Real returns the time of this move.
// For a time t in the future, Real assumes that no more moves follow. It then returns at most a year after the last move.
func (ms Moves) Real(t time.Time) time.Time {
	last := Setting{Real: t, Time: t, Rate: 1} // before the first move, the clock shows Postgres' time
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

// Clock computes the service time in one process. It is safe for concurrent use. All methods except Set may be called on nil.
type Clock struct {
	mu      sync.Mutex
	setting Setting
	ahead   time.Duration // time of Postgres' clock minus time of this machine's clock
	changed chan struct{} // closed at the next move
}

// New makes a clock that was never moved.
func New() *Clock { return &Clock{changed: make(chan struct{})} }

// Set applies a setting. `ahead` is the time of Postgres' clock minus the time of this machine's clock. Set ignores a setting that is older
// than the current one.
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

// Setting returns the current setting.
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

// Now returns the service time.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setting.At(time.Now().Add(c.ahead))
}

// Wait is like Setting.Wait for the current setting.
func (c *Clock) Wait(d time.Duration) time.Duration { return c.Setting().Wait(d) }

// farAhead limits the results of the methods Real, because a frozen clock never reaches a future time.
const farAhead = 365 * 24 * time.Hour

// Real returns the time on this machine's clock at which the service time reaches t. It assumes that no more moves follow. If the clock was
// moved, the result is at most a year from now.
func (c *Clock) Real(t time.Time) time.Time {
	if !c.Moved() {
		return t
	}
	return time.Now().Add(min(c.Wait(t.Sub(c.Now())), farAhead))
}

// Changed returns a channel that is closed at the next move; nil for a nil clock.
func (c *Clock) Changed() <-chan struct{} {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// longest limits each sleep. SleepUntil then reads the clock again, in case Postgres' clock was adjusted.
const longest = time.Minute

// SleepUntil waits until the clock shows t. If the clock is moved during the wait, SleepUntil follows the move. If ctx ends before t,
// SleepUntil returns context.Cause(ctx).
func (c *Clock) SleepUntil(ctx context.Context, t time.Time) error {
	for {
		changed := c.Changed() // before reading the time, so that a move right after the reading is not missed
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
