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

// Bounds of the moves of the clock.
const (
	leastAdvance, mostAdvance = time.Second, 12 * time.Hour
	leastRate, mostRate       = 0.1, 3600 // what the service allows
	moveTimeout               = 10 * time.Second
	movePause                 = 200 * time.Millisecond
)

var passing = bounds{200 * time.Millisecond, 2 * time.Second} // how long a clock stands still, or runs at another rate

// clockMove is a fault of the clock: it jumps ahead, or runs at another rate for a while, or stands still (rate 0).
type clockMove struct {
	advance time.Duration // 0: none
	rate    float64
	lasts   time.Duration // until the clock runs as usual
}

// ordinary thaws a clock and lets it run as all clocks do.
var ordinary = clockMove{rate: 1}

// drawMove draws one: mostly the clock jumps ahead, or it stands still for a moment, or runs at another rate for one.
func drawMove(rng *mathrand.Rand) clockMove {
	chance, lasts := rng.Float64(), between(rng, passing.least, passing.most)
	advance := time.Duration(logarithmic(rng, float64(leastAdvance), float64(mostAdvance))).Truncate(time.Millisecond)
	rate := math.Round(logarithmic(rng, leastRate, mostRate)*10) / 10
	switch {
	case chance < 0.5:
		return clockMove{advance: advance}
	case chance < 0.75:
		return clockMove{lasts: lasts}
	}
	return clockMove{rate: rate, lasts: lasts}
}

// logarithmic draws a number of which each order of magnitude between two ends is as likely.
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

// moveClock moves the service's clock as the seed says. A move that was sent is sent until it is answered, also when the
// context has ended: one that is still under way could undo what heals the clock.
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

// move sends a move, with one key, until it is answered.
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
		if !Sleep(ctx, movePause) {
			return fmt.Errorf("the clock could not be moved: %w", err)
		}
	}
}

// newClock makes a client of the service for moving its clock.
func newClock(ctx context.Context, url string) (*client.Client, error) {
	_, key, err := Register(ctx, url)
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{URL: url, Key: key, MaxTries: 1, Timeout: moveTimeout})
}

// Register makes a client of a service whose registration is open, and a key of it.
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
