package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"net/http"
	"time"

	"github.com/forgerun/forgerun/client"
)

const mostRate = 3600 // limit of the service

var passing = bounds{200 * time.Millisecond, 2 * time.Second} // duration of a clock's fault

// clockMove is a fault of the clock: a jump ahead, or another rate (0: frozen) for a while.
type clockMove struct {
	advance time.Duration // 0: none
	rate    float64
	lasts   time.Duration // until the clock runs as usual
}

// ordinary unfreezes a clock and resets its rate.
var ordinary = clockMove{rate: 1}

// drawMove returns a jump ahead in half of the cases, otherwise a frozen clock or another rate.
func drawMove(rng *mathrand.Rand) clockMove {
	chance, lasts := rng.Float64(), passing.draw(rng)
	advance := time.Duration(logarithmic(rng, float64(time.Second), float64(12*time.Hour))).Truncate(time.Millisecond)
	rate := math.Round(logarithmic(rng, 0.1, mostRate)*10) / 10
	switch {
	case chance < 0.5:
		return clockMove{advance: advance}
	case chance < 0.75:
		return clockMove{lasts: lasts}
	}
	return clockMove{rate: rate, lasts: lasts}
}

// logarithmic returns a random number between two ends. Each order of magnitude is equally likely.
func logarithmic(rng *mathrand.Rand, from, to float64) float64 {
	return math.Exp(math.Log(from) + rng.Float64()*(math.Log(to)-math.Log(from)))
}

func (m clockMove) String() string {
	switch {
	case m.advance > 0:
		return "clock, ahead by " + m.advance.String()
	case m.rate == 0:
		return "clock, frozen"
	}
	return fmt.Sprintf("clock, at rate %g", m.rate)
}

func (m clockMove) send(ctx context.Context, c *client.Client, key client.Option) (err error) {
	switch {
	case m.advance > 0:
		_, err = c.AdvanceClock(ctx, m.advance, key)
	case m.rate == 0:
		_, err = c.FreezeClock(ctx, key)
	default:
		_, err = c.SetClockRate(ctx, m.rate, key)
	}
	return err
}

// moveClock moves the service's clock as the seed determines. It repeats a move until it is answered, even after the context has ended: a
// pending move could undo the healing of the clock.
func moveClock(ctx context.Context, s *Stack, rng *mathrand.Rand, f *Fault) {
	lasting, cancel := context.WithTimeout(s.ctx, serverPatience)
	defer cancel()
	m := drawMove(rng)
	f.Target, f.Err = m.String(), s.move(lasting, m)
	if m.lasts > 0 && f.Err == nil {
		Sleep(ctx, m.lasts)
		f.Err = s.move(lasting, ordinary)
	}
}

// move sends a move, with one idempotency key, until it is answered.
func (s *Stack) move(ctx context.Context, m clockMove) error {
	key := client.IdempotencyKey(rand.Text())
	for {
		err := m.send(ctx, s.clock, key)
		problem, refused := errors.AsType[*client.Problem](err)
		if refused {
			status := problem.Status
			refused = status < 500 && status != http.StatusConflict && status != http.StatusTooManyRequests
		}
		if err == nil || refused {
			return err
		}
		if !Sleep(ctx, 8*retryPeriod) {
			return fmt.Errorf("the clock could not be moved: %w", err)
		}
	}
}

// newClock returns a client of the service for moving its clock.
func newClock(ctx context.Context, url string) (*client.Client, error) {
	_, key, err := Register(ctx, url)
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{URL: url, Key: key, MaxTries: 1, Timeout: 10 * time.Second})
}

// Register creates a client of a service with open registration, and a key for it.
func Register(ctx context.Context, url string) (clientID, key string, err error) {
	c, err := client.New(client.Config{URL: url})
	if err != nil {
		return "", "", err
	}
	if clientID, err = c.CreateClient(ctx); err != nil {
		return "", "", err
	}
	made, err := c.CreateKey(ctx, clientID, false)
	if err != nil {
		return "", "", err
	}
	return clientID, made.APIKey, nil
}
