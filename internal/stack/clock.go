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

const mostRate = 3600 // highest rate that the service accepts

var clockFaultTime = bounds{200 * time.Millisecond, 2 * time.Second}

// clockMove is a fault of the service's clock. The clock jumps ahead, or for a while it stands still or runs at another rate.
type clockMove struct {
	name  string
	lasts time.Duration // how long a freeze or a new rate lasts; 0 for a jump, which is not undone
	how   string        // name of the member in the request, such as "rate"
	value any
}

// atRate(1, 0) also undoes a freeze, because setting a rate ends a freeze.
func atRate(rate float64, lasts time.Duration) clockMove {
	return clockMove{fmt.Sprintf("clock, at rate %g", rate), lasts, "rate", rate}
}

func frozen(lasts time.Duration) clockMove { return clockMove{"clock, frozen", lasts, "freeze", true} }

func drawMove(rng *mathrand.Rand) clockMove {
	chance, lasts := rng.Float64(), clockFaultTime.draw(rng)
	advance := time.Duration(logarithmic(rng, float64(time.Second), float64(12*time.Hour))).Truncate(time.Millisecond)
	rate := math.Round(logarithmic(rng, 0.1, mostRate)*10) / 10
	switch {
	case chance < 0.5:
		return clockMove{"clock, ahead by " + advance.String(), 0, "advance", advance.String()}
	case chance < 0.75:
		return frozen(lasts)
	}
	return atRate(rate, lasts)
}

// logarithmic returns a random number between from and to. All orders of magnitude are equally likely.
func logarithmic(rng *mathrand.Rand, from, to float64) float64 {
	return math.Exp(math.Log(from) + rng.Float64()*(math.Log(to)-math.Log(from)))
}

// moveClock moves the clock. It waits for the response even if ctx ends, because the service could otherwise execute the request after
// Heal.
func moveClock(ctx context.Context, s *Stack, rng *mathrand.Rand, f *Fault) {
	lasting, cancel := context.WithTimeout(s.ctx, serverPatience)
	defer cancel()
	m := drawMove(rng)
	f.Target, f.Err = m.name, s.move(lasting, m)
	if m.lasts > 0 && f.Err == nil {
		Sleep(ctx, m.lasts)
		f.Err = s.move(lasting, atRate(1, 0))
	}
}

// move sends a change of the clock until the service responds, always with the same idempotency key.
func (s *Stack) move(ctx context.Context, m clockMove) error {
	key := client.IdempotencyKey(rand.Text())
	for {
		_, err := s.clock.Do(ctx, http.MethodPost, "/v1/testbed/clock", nil, map[string]any{m.how: m.value}, key)
		problem, refused := errors.AsType[*client.Problem](err)
		if err == nil || refused && problem.Status < 500 && problem.Status != http.StatusConflict &&
			problem.Status != http.StatusTooManyRequests {
			return err
		}
		if !Sleep(ctx, 8*retryPeriod) {
			return fmt.Errorf("move the clock: %w", err)
		}
	}
}

func newClock(ctx context.Context, url string) (*client.Client, error) {
	_, key, err := Register(ctx, url)
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{URL: url, Key: key, MaxTries: 1, Timeout: 10 * time.Second})
}

// Register creates a client and its API key at a service with open registration.
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
