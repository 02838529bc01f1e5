package load

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

const (
	clockStep    = 250 * time.Millisecond // time between two readings of a test bed's clock
	clockTimeout = 5 * time.Second
	clockSlack   = 50 * time.Millisecond // tolerance of a reading, in addition to the duration of the request
)

type serviceClock struct {
	mu    sync.Mutex
	moves history.Moves // observed moves
}

// followClock reads the service's clock once. If the service is a test bed, a goroutine then polls the clock until the context `background`
// ends. The goroutine ignores errors.
func (e *Engine) followClock(ctx, background context.Context) error {
	movable, err := e.lookAtClock(ctx)
	if movable {
		e.background.Go(func() {
			for Sleep(background, clockStep) == nil {
				_, _ = e.lookAtClock(background)
			}
		})
	}
	return err
}

func (e *Engine) lookAtClock(ctx context.Context) (movable bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	sent := time.Now().UTC()
	shown, err := e.accounts[0].Quick.Clock(ctx) // all accounts see the same clock
	took := time.Since(sent)
	problem, refused := errors.AsType[*client.Problem](err)
	switch {
	case refused && problem.Status == http.StatusNotFound, err == nil && shown.Now.IsZero():
		return false, nil // the service is not a test bed
	case err != nil:
		return false, err
	case shown.Frozen:
		shown.Rate = 0
	}
	e.clock.apply(history.Move{Real: sent.Add(took / 2), Service: shown.Now, Rate: shown.Rate}, took)
	return true, nil
}

// apply records a reading of the clock as a move if the known moves lead to another time or rate. `took` is the duration of the request.
func (c *serviceClock) apply(m history.Move, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	expected, rate := c.moves.At(m.Real), 1.0
	if n := len(c.moves); n > 0 {
		rate = c.moves[n-1].Rate
	}
	slack := clockSlack + time.Duration(float64(took)*max(rate, 1))
	if m.Rate != rate || expected.Sub(m.Service).Abs() > slack {
		c.moves = append(c.moves, m)
	}
}

// ClockMoves returns the observed moves of the service's clock.
func (e *Engine) ClockMoves() history.Moves {
	e.clock.mu.Lock()
	defer e.clock.mu.Unlock()
	return slices.Clone(e.clock.moves)
}

func (e *Engine) serviceTime(real time.Time) time.Time { return e.ClockMoves().At(real) }
