package repo

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

var (
	moveStrandedJobs       = statement("moveStrandedJobs")
	moveStrandedDeliveries = statement("moveStrandedDeliveries")
	endStrandedLeases      = statement("endStrandedLeases")
)

// clockInterval is how often a process asks for Postgres' time that does not learn it from its work.
const clockInterval = 5 * time.Second

// Now is Postgres' time, as far as it is known without asking: what is accepted by it
// is due by it, whatever the clock of this machine shows. Until Postgres has
// answered once it is this machine's.
func (s *Store) Now() time.Time {
	if now, known := s.order.clock.now(); known {
		return s.serviceTime(now)
	}
	return s.serviceTime(time.Now())
}

// FollowClock keeps Now near Postgres' clock until ctx ends, also where nothing is
// stored: requests may be refused for their time alone.
func (s *Store) FollowClock(ctx context.Context) {
	ticks := time.NewTicker(clockInterval)
	defer ticks.Stop()
	for {
		_, _ = s.ReadClock(ctx) // without an answer the last one counts on
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

// ReadClock asks Postgres for its time.
func (s *Store) ReadClock(ctx context.Context) (time.Time, error) {
	before, known := s.order.clock.now()
	server, _, err := queryFirst(ctx, s, pgx.RowTo[time.Time], `SELECT pg_catalog.clock_timestamp()`)
	if err == nil {
		s.order.clock.observe(server, time.Now(), known && server.Before(before))
	}
	return server, err
}

// MoveStrandedJobs looks at so many jobs after the cursor that wait for a time to
// come, and moves those that wait only because Postgres' clock was ahead when
// they were queued. last is where to go on, zero when there are no more.
func (s *Store) MoveStrandedJobs(ctx context.Context, after job.QueueCursor, look int) (moved int, last job.QueueCursor, err error) {
	type seen struct {
		looked, moved int
		last          job.QueueCursor
	}
	got, found, err := queryFirst(ctx, s, func(row pgx.CollectableRow) (g seen, err error) {
		return g, row.Scan(&g.last.RunAt, scanID(&g.last.JobID), &g.looked, &g.moved)
	}, moveStrandedJobs, after.RunAt, [16]byte(after.JobID), look)
	if err != nil || !found || got.looked < look {
		return got.moved, job.QueueCursor{}, err
	}
	return got.moved, got.last, nil
}

// MoveStrandedDeliveries does the same for at most limit deliveries of so many
// endpoints after the cursor.
func (s *Store) MoveStrandedDeliveries(ctx context.Context, after job.EndpointKey, look, limit int) (
	moved int, last job.EndpointKey, err error,
) {
	type seen struct {
		looked, moved int
		last          job.EndpointKey
	}
	got, _, err := queryFirst(ctx, s, func(row pgx.CollectableRow) (g seen, err error) {
		return g, row.Scan(scanID(&g.last.Client), scanID(&g.last.Endpoint), &g.looked, &g.moved)
	}, moveStrandedDeliveries, [16]byte(after.Client), [16]byte(after.Endpoint), look, limit)
	switch {
	case err != nil:
		return 0, job.EndpointKey{}, err
	case got.moved == limit: // there may be more of these
		return got.moved, after, nil
	case got.looked < look:
		return got.moved, job.EndpointKey{}, nil
	}
	return got.moved, got.last, nil
}

// claimsAtOnce is how many claims of deliveries one statement shortens.
const claimsAtOnce = 5000

// EndStrandedLeases shortens leases of workers, and claims of deliveries, that last
// longer than any does.
func (s *Store) EndStrandedLeases(ctx context.Context) error {
	return s.exec(ctx, "end stranded leases", endStrandedLeases, claimsAtOnce)
}

// learnClock asks for Postgres' time if nothing is known of it. If there is no answer,
// nor will there be one to a flush.
func (s *Store) learnClock() {
	s.order.learning.Lock()
	defer s.order.learning.Unlock()
	if _, known := s.order.clock.now(); known {
		return
	}
	ctx, cancel := s.bound(context.Background())
	defer cancel()
	var server time.Time
	if err := s.pool.QueryRow(ctx, `SELECT pg_catalog.clock_timestamp()`).Scan(&server); err == nil {
		s.order.clock.observe(server, time.Now(), false)
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
