package jobs

import (
	"context"
	"sync"
	"time"

	"github.com/forgerun/forgerun/repo/pg"
)

// clockInterval is how often a process asks for Postgres' time. After a change of Postgres' clock, tasks may be scheduled for wrong times
// until the process asks again. If a task is scheduled too late, the relay enqueues its job.
const clockInterval = time.Second

// Now returns an estimate of Postgres' time. Postgres' clock decides when jobs are due, even if this machine's clock differs. Before the
// first answer from Postgres, Now returns this machine's time.
func (s *Store) Now() time.Time {
	if now, known := s.order.clock.now(); known {
		return s.serviceTime(now)
	}
	return s.serviceTime(time.Now())
}

// FollowClock keeps Now close to Postgres' clock until ctx ends. It calls `report` with the time by which Postgres' clock is ahead of this
// machine's clock. While Postgres is down, Now continues from the last answer.
func (s *Store) FollowClock(ctx context.Context, report func(ahead time.Duration)) {
	pg.Every(ctx, clockInterval, func() {
		if _, err := s.ReadClock(ctx); err == nil {
			now, _ := s.order.clock.now()
			report(now.Round(0).Sub(time.Now().Round(0))) // difference of the wall clocks
		}
	})
}

// ReadClock reads Postgres' time and updates the estimate of Now.
func (s *Store) ReadClock(ctx context.Context) (time.Time, error) {
	before, known := s.order.clock.now()
	server, err := pg.QueryValue[time.Time](ctx, s.db, `SELECT pg_catalog.clock_timestamp()`)
	if err == nil {
		s.order.clock.observe(server, time.Now(), known && server.Before(before))
	}
	return server, err
}

// ensureClock ignores errors: if Postgres does not answer, the next flush fails as well.
func (s *Store) ensureClock() {
	s.order.asking.Lock()
	defer s.order.asking.Unlock()
	if _, known := s.order.clock.now(); !known {
		_, _ = s.ReadClock(context.Background())
	}
}

// Each answer of Postgres affects the estimate for clockMemory or longer.
const clockMemory = 10 * time.Second

// serverClock estimates Postgres' clock without asking. The estimate is never ahead of Postgres' clock. It lags by the network delay of
// the fastest recent answer.
type serverClock struct {
	mu    sync.Mutex
	base  time.Time // time of the first answer, the reference for `offset` and `older`
	known bool
	// Lower bounds of the difference between Postgres' clock and this process' clock. `offset` comes from the answers since the time
	// `rotated`. `older` comes from the answers in the period before `rotated`.
	offset, older time.Duration
	rotated       time.Time
}

func (c *serverClock) now() (t time.Time, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return time.Time{}, false
	}
	// Not based on time.Now(), because somebody may set the wall clock.
	return c.base.Add(time.Since(c.base) + max(c.offset, c.older)), true
}

// observe records an answer: Postgres' clock showed `server`, and the answer arrived at `received`. If `setBack` is true, Postgres' clock
// was set back, and earlier answers no longer count.
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

// serviceTime converts Postgres' time to the service's time, which a test bed may have moved.
func (s *Store) serviceTime(real time.Time) time.Time { return s.db.Clock.Setting().At(real) }
