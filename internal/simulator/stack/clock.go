package stack

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	mathrand "math/rand/v2"
	"net/http"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/process"
)

// Bounds of the moves of the clock.
const (
	leastAdvance, mostAdvance = time.Second, 12 * time.Hour
	leastRate, mostRate       = 0.1, 3600 // what the service allows
	moveTimeout               = 10 * time.Second
	movePause                 = 200 * time.Millisecond
	moveAnswer                = 1 << 16 // bytes that are read of one
)

var passing = bounds{200 * time.Millisecond, 2 * time.Second} // how long a clock stands still, or runs at another rate

// clockEnviron is what a service needs whose clock is moved: a test bed, and nothing that expires within the hours and
// days that jumps take away.
func clockEnviron() map[string]string {
	env := map[string]string{"FORGERUN_TESTBED": "true"}
	for _, name := range []string{
		"API_KEY_TTL", "IDEMPOTENCY_WINDOW", "RETENTION_JOBS", "RETENTION_RESULTS", "RETENTION_TOMBSTONES", "RETENTION_UNUSED_CLIENTS",
		"WEBHOOK_DISABLE_AFTER",
	} {
		env["FORGERUN_"+name] = "8760h"
	}
	return env
}

// withClockEnviron lets what the options say overrule that.
func (o Options) withClockEnviron() map[string]string {
	env := map[string]string{}
	if o.Clock {
		env = clockEnviron()
	}
	maps.Copy(env, o.Env)
	return env
}

// clockMove is a fault of the clock.
type clockMove struct {
	what, body string
	lasts      time.Duration // until the clock runs as usual; 0: it jumps
}

// drawMove draws one: mostly the clock jumps ahead, or it stands still for a moment, or runs at another rate for one.
func drawMove(rng *mathrand.Rand) clockMove {
	chance, lasts := rng.Float64(), between(rng, passing.least, passing.most)
	advance := time.Duration(logarithmic(rng, float64(leastAdvance), float64(mostAdvance))).Truncate(time.Millisecond)
	rate := math.Round(logarithmic(rng, leastRate, mostRate)*10) / 10
	switch {
	case chance < 0.5:
		return clockMove{"clock, ahead by " + advance.String(), fmt.Sprintf(`{"advance":%q}`, advance), 0}
	case chance < 0.75:
		return clockMove{"clock, frozen", `{"freeze":true}`, lasts}
	}
	return clockMove{fmt.Sprintf("clock, at rate %g", rate), fmt.Sprintf(`{"rate":%g}`, rate), lasts}
}

// moveClock moves the service's clock as the seed says. A move that was sent is sent until it is answered, also when the
// context has ended: one that is still under way could undo what heals the clock.
func moveClock(ctx context.Context, s *Stack, rng *mathrand.Rand, f *Fault) {
	lasting, cancel := context.WithTimeout(s.ctx, serverPatience)
	defer cancel()
	m := drawMove(rng)
	f.Target, f.Err = m.what, s.postMove(lasting, m.body)
	if m.lasts > 0 && f.Err == nil {
		process.Sleep(ctx, m.lasts)
		f.Err = s.postMove(lasting, ordinary)
	}
}

// ordinary is the move that thaws a clock and lets it run as all clocks do.
const ordinary = `{"rate":1}`

// logarithmic draws a number of which each order of magnitude between two ends is as likely.
func logarithmic(rng *mathrand.Rand, from, to float64) float64 {
	return math.Exp(math.Log(from) + rng.Float64()*(math.Log(to)-math.Log(from)))
}

// healClock lets a clock that was moved run as usual.
func (s *Stack) healClock(ctx context.Context) error {
	s.mu.Lock()
	moved := s.clockKey != ""
	s.mu.Unlock()
	if !moved {
		return nil
	}
	return s.postMove(ctx, ordinary)
}

// postMove sends a move, with one key, until it is answered.
func (s *Stack) postMove(ctx context.Context, move string) error {
	id := rand.Text()
	for {
		again, err := s.tryMove(ctx, move, id)
		switch {
		case err == nil:
			return nil
		case !again:
			return err
		case !process.Sleep(ctx, movePause):
			return fmt.Errorf("the clock could not be moved: %w", err)
		}
	}
}

// tryMove sends a move once. again: another try may do.
func (s *Stack) tryMove(ctx context.Context, move, id string) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	key, err := s.keyForClock(ctx)
	if err != nil {
		return true, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/testbed/clock", bytes.NewBufferString(move))
	if err != nil {
		return false, err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", id)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return true, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, moveAnswer))
	if answer.StatusCode == http.StatusOK && err == nil {
		return false, nil
	}
	var problem struct{ Code, Detail string }
	_ = json.Unmarshal(body, &problem) // it may be no document
	status := answer.StatusCode
	later := err != nil || status >= 500 || status == http.StatusConflict || status == http.StatusTooManyRequests
	return later, fmt.Errorf("%s was answered with %d %s: %s", move, status, problem.Code, problem.Detail)
}

// keyForClock gives the key of a client that was made to move the clock.
func (s *Stack) keyForClock(ctx context.Context) (string, error) {
	s.mu.Lock()
	key := s.clockKey
	s.mu.Unlock()
	if key != "" {
		return key, nil
	}
	c, err := client.New(client.Config{URL: s.url, MaxTries: 1})
	if err != nil {
		return "", err
	}
	id, err := c.CreateClient(ctx)
	if err != nil {
		return "", err
	}
	made, err := c.CreateKey(ctx, id, false)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clockKey == "" {
		s.clockKey = made.APIKey
	}
	return s.clockKey, nil
}
