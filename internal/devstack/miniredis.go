package devstack

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Miniredis is a Redis within this process, for machines that have none: no
// persistence, not every command (INFO lacks its server section), and times to
// live that are exact to a tenth of a second.
type Miniredis struct {
	server *miniredis.Miniredis
	stop   chan struct{}
	once   sync.Once
	clock  sync.WaitGroup
}

// clockPeriod is how often the clock is advanced.
const clockPeriod = 100 * time.Millisecond

// StartMiniredis starts an embedded Redis on a free port of 127.0.0.1.
func StartMiniredis(ctx context.Context) (*Miniredis, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m := &Miniredis{server: miniredis.NewMiniRedis(), stop: make(chan struct{})}
	if err := m.server.Start(); err != nil {
		return nil, fmt.Errorf("devstack: starting the embedded Redis: %w", err)
	}
	m.clock.Go(m.advanceClock)
	return m, nil
}

// URL returns the server's address as clients of Redis write it.
func (m *Miniredis) URL() string { return redisURL(m.server.Addr()) }

// Stop ends the server; what it held is gone. It may be called again. The error
// is always nil and there for the likeness with Redis.
func (m *Miniredis) Stop() error {
	m.once.Do(func() {
		close(m.stop)
		m.clock.Wait()
		m.server.Close()
	})
	return nil
}

// advanceClock makes keys expire: miniredis' own time stands still, and its
// option to follow the real one walks over all keys at every command.
func (m *Miniredis) advanceClock() {
	last := time.Now()
	timer := time.NewTimer(clockPeriod)
	defer timer.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-timer.C:
		}
		now := time.Now()
		m.server.FastForward(now.Sub(last))
		last = now
		// A step costs time in the number of keys: take at most a twentieth.
		timer.Reset(max(clockPeriod, 20*time.Since(now)))
	}
}
