package stack

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Miniredis is a Redis within this process, for machines that have none: no persistence, not every command (INFO
// lacks its server section), and times to live exact to a tenth of a second.
type Miniredis struct {
	URL  string       // as clients of Redis write it
	Stop func() error // ends the server and drops its data; it may be called again, and returns nil
}

// clockPeriod is how often the clock is advanced.
const clockPeriod = 100 * time.Millisecond

// StartMiniredis starts an embedded Redis on a free port of 127.0.0.1.
func StartMiniredis() (Miniredis, error) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		return Miniredis{}, fmt.Errorf("starting the embedded Redis: %w", err)
	}
	running, cancel := context.WithCancel(context.Background())
	var clock sync.WaitGroup
	clock.Go(func() { advanceClock(running, server) })
	return Miniredis{redisURL(server.Addr()), sync.OnceValue(func() error {
		cancel()
		clock.Wait()
		server.Close()
		return nil
	})}, nil
}

// advanceClock makes keys expire: miniredis' own clock stands still, or walks over all keys at every command.
func advanceClock(ctx context.Context, server *miniredis.Miniredis) {
	last := time.Now()
	for period := clockPeriod; Sleep(ctx, period); {
		now := time.Now()
		server.FastForward(now.Sub(last))
		last = now
		// A step costs time in the number of keys: take at most a twentieth.
		period = max(clockPeriod, 20*time.Since(now))
	}
}
