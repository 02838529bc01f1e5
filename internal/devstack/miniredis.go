package devstack

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/forgerun/forgerun/internal/process"
)

// Miniredis is a Redis within this process, for machines that have none: no persistence, not every command (INFO
// lacks its server section), and times to live exact to a tenth of a second.
type Miniredis struct {
	server *miniredis.Miniredis
	stop   func() // may be called again
}

// clockPeriod is how often the clock is advanced.
const clockPeriod = 100 * time.Millisecond

// StartMiniredis starts an embedded Redis on a free port of 127.0.0.1.
func StartMiniredis(ctx context.Context) (*Miniredis, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		return nil, fmt.Errorf("devstack: starting the embedded Redis: %w", err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var clock sync.WaitGroup
	clock.Go(func() { advanceClock(running, server) })
	return &Miniredis{server: server, stop: sync.OnceFunc(func() {
		cancel()
		clock.Wait()
		server.Close()
	})}, nil
}

// URL returns the server's address as clients of Redis write it.
func (m *Miniredis) URL() string { return redisURL(m.server.Addr()) }

// Stop ends the server and drops its data. It may be called again. The error is always nil, as the method is that of
// Redis.
func (m *Miniredis) Stop() error {
	m.stop()
	return nil
}

// advanceClock makes keys expire: miniredis' own clock stands still, or walks over all keys at every command.
func advanceClock(ctx context.Context, server *miniredis.Miniredis) {
	last := time.Now()
	for period := clockPeriod; process.Sleep(ctx, period); {
		now := time.Now()
		server.FastForward(now.Sub(last))
		last = now
		// A step costs time in the number of keys: take at most a twentieth.
		period = max(clockPeriod, 20*time.Since(now))
	}
}
