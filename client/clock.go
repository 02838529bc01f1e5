package client

import (
	"context"
	"time"
)

// Clock is the time by which the jobs of a test bed live.
type Clock struct {
	Now    time.Time `json:"now"`
	Rate   float64   `json:"rate"` // how many of its seconds pass in a second, unless it is frozen
	Frozen bool      `json:"frozen"`
}

// Clock reads the clock of a test bed; another service answers 404.
func (c *Client) Clock(ctx context.Context, options ...Option) (*Clock, error) {
	return fetch(ctx, c, get(options, "testbed", "clock"), func(*Clock, *answer) *string { return nil })
}

// AdvanceClock moves the clock of the whole service by so much, and returns when the jobs that have become due are QUEUED.
func (c *Client) AdvanceClock(ctx context.Context, by time.Duration, options ...Option) (*Clock, error) {
	return c.moveClock(ctx, options, "advance", by.String())
}

// SetClock moves the clock to a time that is not before its present one.
func (c *Client) SetClock(ctx context.Context, to time.Time, options ...Option) (*Clock, error) {
	return c.moveClock(ctx, options, "set", to.UTC().Format(time.RFC3339Nano))
}

// FreezeClock stops the clock.
func (c *Client) FreezeClock(ctx context.Context, options ...Option) (*Clock, error) {
	return c.moveClock(ctx, options, "freeze", true)
}

// ThawClock lets the clock run on, at the rate that it had.
func (c *Client) ThawClock(ctx context.Context, options ...Option) (*Clock, error) {
	return c.moveClock(ctx, options, "freeze", false)
}

// SetClockRate lets the clock run so fast, from 0.1 to 3,600 times, also if it was frozen.
func (c *Client) SetClockRate(ctx context.Context, rate float64, options ...Option) (*Clock, error) {
	return c.moveClock(ctx, options, "rate", rate)
}

func (c *Client) moveClock(ctx context.Context, options []Option, how string, value any) (*Clock, error) {
	move := post(options, "testbed", "clock").with(map[string]any{how: value}).keyed()
	return fetch(ctx, c, move, func(*Clock, *answer) *string { return nil })
}
