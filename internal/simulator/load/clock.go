package load

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/servicetime"
)

const (
	clockStep    = 250 * time.Millisecond // between two looks at the clock of a test bed
	clockTimeout = 5 * time.Second
	clockSlack   = 50 * time.Millisecond // possible error of a reading in service time, besides its duration
)

// errNoClock: the service is no test bed, so its time is the real one.
var errNoClock = errors.New("the clock of the service cannot be moved")

// serviceClock follows the service's time by polling the clock of the test bed.
type serviceClock struct {
	client *client.Client

	mu    sync.Mutex
	moves servicetime.Moves // observed moves
}

// follow polls the clock until ctx ends. Without an answer the latest reading holds.
func (c *serviceClock) follow(ctx context.Context) {
	for Sleep(ctx, clockStep) == nil {
		_ = c.look(ctx)
	}
}

// look reads the service's time once. errNoClock: there is no such clock.
func (c *serviceClock) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	sent := time.Now().UTC()
	shown, err := c.client.Clock(ctx)
	took := time.Since(sent)
	var problem *client.Problem
	switch {
	case errors.As(err, &problem) && problem.Status == http.StatusNotFound, err == nil && shown.Now.IsZero():
		return errNoClock
	case err != nil:
		return err
	}
	if shown.Frozen {
		shown.Rate = 0
	}
	c.saw(servicetime.Move{Real: sent.Add(took / 2), Service: shown.Now, Rate: shown.Rate}, took)
	return nil
}

// saw applies a reading that took so long. An unexpected one is a move.
func (c *serviceClock) saw(m servicetime.Move, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	expected, rate := m.Real, 1.0
	if n := len(c.moves); n > 0 {
		if !m.Real.After(c.moves[n-1].Real) {
			return
		}
		expected, rate = c.moves.At(m.Real), c.moves[n-1].Rate
	}
	slack := clockSlack + time.Duration(float64(took)*max(rate, 1))
	if m.Rate != rate || expected.Sub(m.Service).Abs() > slack {
		c.moves = append(c.moves, m)
	}
}

func (c *serviceClock) seen() servicetime.Moves {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.moves[:len(c.moves):len(c.moves)]
}

// ClockMoves returns the observed moves of the service's clock; none if it was never moved.
func (e *Engine) ClockMoves() servicetime.Moves { return e.clock.seen() }

// serviceTime returns the service's time at a real moment.
func (e *Engine) serviceTime(real time.Time) time.Time { return e.clock.seen().At(real) }

// followClock checks whether the service has a movable clock, and then polls it until Close.
func (e *Engine) followClock(ctx, background context.Context) error {
	switch err := e.clock.look(ctx); {
	case errors.Is(err, errNoClock):
		return nil
	case err != nil:
		return err
	}
	e.background.Go(func() { e.clock.follow(background) })
	return nil
}
