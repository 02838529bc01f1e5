package jobs

import (
	"context"
	"sync"
	"time"

	"github.com/forgerun/forgerun/repo/pg"
)

// clockInterval is how often a process asks for Postgres' time. For as long after a step, tasks are made for times that are wrong by
// it: the relay has those run that are due.
const clockInterval = time.Second

// Now is Postgres' time, as far as it is known without asking: what is accepted by it
// is due by it, whatever the clock of this machine shows. Until Postgres has
// answered once it is this machine's.
func (s *Store) Now() time.Time {
	if now, known := s.order.clock.now(); known {
		return s.serviceTime(now)
	}
	return s.serviceTime(time.Now())
}

// FollowClock keeps Now near Postgres' clock until ctx ends, and calls learn with how far that clock is ahead of this machine's.
// While Postgres does not answer, the last answer counts.
func (s *Store) FollowClock(ctx context.Context, learn func(ahead time.Duration)) {
	pg.Every(ctx, clockInterval, func() {
		if _, err := s.ReadClock(ctx); err == nil {
			now, _ := s.order.clock.now()
			learn(now.Round(0).Sub(time.Now().Round(0))) // by the wall clocks
		}
	})
}

// ReadClock asks Postgres for its time.
func (s *Store) ReadClock(ctx context.Context) (time.Time, error) {
	before, known := s.order.clock.now()
	server, err := pg.QueryValue[time.Time](ctx, s.db, `SELECT pg_catalog.clock_timestamp()`)
	if err == nil {
		s.order.clock.observe(server, time.Now(), known && server.Before(before))
	}
	return server, err
}

// learnClock asks for Postgres' time if nothing is known of it. If there is no answer,
// nor will there be one to a flush.
func (s *Store) learnClock() {
	s.order.learning.Lock()
	defer s.order.learning.Unlock()
	if _, known := s.order.clock.now(); !known {
		_, _ = s.ReadClock(context.Background())
	}
}

// clockMemory is for how long an observation of Postgres' clock counts, at least.
const clockMemory = 10 * time.Second

// serverClock estimates Postgres' clock without asking it: never ahead of it, and
// behind by the shortest way of an answer in the last seconds.
type serverClock struct {
	mu            sync.Mutex
	base          time.Time // a moment of this process; its monotonic clock is what counts
	known         bool
	offset, older time.Duration // of Postgres' clock, at least, since rotated and in the clockMemory before
	rotated       time.Time
}

func (c *serverClock) now() (t time.Time, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return time.Time{}, false
	}
	// Not time.Now().Add: its wall clock may be set.
	return c.base.Add(time.Since(c.base) + max(c.offset, c.older)), true
}

// observe learns that Postgres' clock showed server, at the latest when the answer
// was received. A clock that was set back makes earlier observations worthless.
func (c *serverClock) observe(server, received time.Time, setBack bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base.IsZero() {
		c.base = received
	}
	offset := server.Round(0).Sub(c.base.Round(0)) - received.Sub(c.base)
	switch {
	case !c.known || setBack:
		c.known, c.offset, c.older, c.rotated = true, offset, offset, received
	case received.Sub(c.rotated) > clockMemory:
		c.offset, c.older, c.rotated = offset, c.offset, received
	default:
		c.offset = max(c.offset, offset)
	}
}

// serviceTime is the service's time when Postgres' clock shows real.
func (s *Store) serviceTime(real time.Time) time.Time { return s.db.Clock.Setting().At(real) }
