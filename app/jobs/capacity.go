package jobs

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

const (
	capacityInterval = time.Second
	// In Postgres, a lease lasts for leaseExpiry. The process uses a lease only for leaseUse, so it stops before Postgres frees the capacity.
	// A process that was paused for longer than leaseExpiry cannot store jobs, because its lease is deleted.
	leaseExpiry = 5 * time.Second
	leaseUse    = 3 * time.Second
	// While Postgres has no free capacity, requests are refused for fullPause without a query.
	fullPause = 100 * time.Millisecond

	// Counting a million jobs takes 0.1 s or more, so counts are rare. Only a count frees the capacity of ended jobs. The limits hold even if
	// no count succeeds.
	countShare = 100     // pause after a count, as a multiple of its duration; counts then use 1 % of the time
	nearShare  = 10      // pause instead of countShare while little capacity is free
	fewJobs    = 100_000 // if the limit per client is at least this, a count lists only large clients; see shares
	maxRate    = 50_000  // jobs per second that all other processes may accept together
)

// Capacity keeps the number of active and of queued jobs below the limits (API contract, section 17). The limits for all clients together
// hold across all processes: Postgres leases a part of the free capacity to each process. Jobs and leases together never exceed the
// limits. The limit per client is exact only within one process. A process learns of a client's jobs in other processes at the next count.
type Capacity struct {
	limit   job.Load
	store   *repo.Store
	clock   app.Clock
	log     *slog.Logger
	process job.ID

	mu          sync.Mutex
	lease       *lease
	need        job.Load  // capacity that the largest waiting request needs
	needed      job.Load  // value of `need` at the last request for a renewal
	short       bool      // the last grant was less than requested
	refuseUntil time.Time // until then, submissions beyond the lease are refused without a renewal
	refusal     error
	processes   int
	shares      shares
	accepted    []clientLoad // jobs that the latest count per client does not contain
	workers     int          // live workers; unknownWorkers before the first count

	waiting  singleflight.Group // concurrent callers share one renewal
	renewing sync.Mutex         // protects the fields below

	mine      job.Load  // this process's stored jobs that were not reported yet when the latest count started
	countedAt time.Time // start of the latest count; zero before the first one
	took      time.Duration
	failed    bool
}

const unknownWorkers = -1

type clientLoad struct {
	client job.ID
	jobs   job.Load
}

// NewCapacity returns a Capacity. Run renews the lease periodically. Without Run, the lease is renewed only when a reservation needs
// more capacity.
func NewCapacity(limits Limits, store *repo.Store, log *slog.Logger) *Capacity {
	return &Capacity{
		limit: job.Load{Active: limits.Active, Queued: limits.Queued}, shares: newShares(limits), store: store, clock: time.Now, log: log,
		process: app.NewID(), lease: newLease(), processes: 1, workers: unknownWorkers,
	}
}

var errFull = &job.Error{Code: job.CodeQueueFull, RetryAfter: capacityInterval,
	Detail: "The server holds its maximum number of jobs. Nothing was accepted."}

// reserve reserves capacity for all jobs, or for none. It may wait for a renewal of the lease.
func (c *Capacity) reserve(ctx context.Context, client job.ID, jobs job.Load) (*reservation, error) {
	for {
		if r, err := c.take(clientLoad{client, jobs}); r != nil || err != nil {
			return r, err
		}
		renewed := c.waiting.DoChan("", func() (any, error) { return nil, c.renew(context.Background()) })
		select {
		case <-renewed: // after a failed renewal, c.take returns an error
		case <-ctx.Done():
			return nil, &job.Error{Code: job.CodeTimeout, RetryAfter: capacityInterval, Cause: ctx.Err(),
				Detail: "The request waited too long because limits were reached. Nothing was accepted."}
		}
	}
}

// take reserves capacity of the lease. It returns an error if a limit is reached, and two nils if the lease must be renewed first.
func (c *Capacity) take(l clientLoad) (*reservation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.shares.refusal(l.client, l.jobs); err != nil {
		return nil, err
	}
	now := c.clock()
	switch {
	case c.lease.take(now, l.jobs):
		c.shares.add(l.client, l.jobs, 1)
		return &reservation{c: c, lease: c.lease, clientLoad: l}, nil
	case now.Before(c.refuseUntil):
		return nil, c.refusal
	}
	c.need = c.need.Max(l.jobs)
	return nil, nil
}

// Processes returns the number of processes with a lease, as of the latest renewal.
func (c *Capacity) Processes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.processes
}

// liveWorkers returns the number of live workers, about a second old.
func (c *Capacity) liveWorkers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.workers
}

// Run renews the lease until ctx ends, and then releases it.
func (c *Capacity) Run(ctx context.Context) {
	app.Repeat(ctx, capacityInterval, c.log, "cannot count jobs and workers", "count", func(ctx context.Context) error {
		return errors.Join(c.Renew(ctx), c.countWorkers(ctx))
	})
	c.renewing.Lock()
	defer c.renewing.Unlock()
	_ = c.close(context.WithoutCancel(ctx)) // if that fails, the lease expires
}

// Renew renews the lease, and counts the jobs if a count is due.
func (c *Capacity) Renew(ctx context.Context) error {
	_, err, _ := c.waiting.Do("", func() (any, error) { return nil, c.renew(ctx) })
	return err
}

func (c *Capacity) renew(ctx context.Context) error {
	c.renewing.Lock()
	defer c.renewing.Unlock()
	c.mu.Lock()
	unknown := c.lease.unknown > 0
	c.mu.Unlock()
	if unknown {
		_ = c.close(ctx) // if that fails, the lease expires
	}
	counted, uncounted := c.count(ctx)
	err := c.request(ctx, counted)
	if errors.Is(err, job.ErrLeaseEnded) {
		c.mu.Lock()
		c.lease = newLease()
		c.mu.Unlock()
		err = c.request(ctx, nil)
	}
	return cmp.Or(err, uncounted)
}

func (c *Capacity) request(ctx context.Context, counted *job.Counted) error {
	ask := c.ask()
	ask.Process, ask.Limit, ask.Counted, ask.Expiry = c.process, c.limit, counted, leaseExpiry
	sent := c.clock()
	granted, err := c.store.RenewLease(ctx, ask)
	c.answered(ask, sent, granted, err)
	return err
}

func (c *Capacity) ask() job.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.needed, c.need = c.need, job.Load{}
	return c.lease.ask(c.needed)
}

func (c *Capacity) answered(ask job.Lease, sent time.Time, h job.Headroom, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.refuseUntil, c.refusal = c.clock().Add(fullPause), err
		return
	}
	l := c.lease
	l.granted(sent, ask, h.Granted)
	c.processes, c.refuseUntil, c.short = h.Processes, time.Time{}, !ask.Want.Within(h.Granted)
	// A job stored during the count can be in the count and also in the report or the lease. Postgres then counts this job twice until the
	// next renewal. So a small grant does not prove that the capacity is used up.
	sure := ask.Counted == nil || (ask.Stored == c.mine && l.used == job.Load{})
	if sure && !l.used.Plus(c.needed, 1).Within(l.size) {
		c.refuseUntil, c.refusal = c.clock().Add(max(fullPause, nearShare*c.took)), errFull
	}
}

// close ends the lease and starts a new one. If the outcome of a reservation is unknown, its capacity stays reserved until the old lease
// expires.
func (c *Capacity) close(ctx context.Context) error {
	c.mu.Lock()
	l := c.lease
	ask := l.ask(job.Load{})
	ask.Keep = l.used
	c.lease = newLease()
	c.mu.Unlock()
	if ask.New {
		return nil
	}
	return c.store.CloseLease(ctx, ask)
}

func (c *Capacity) due(now time.Time) bool {
	age := now.Sub(c.countedAt)
	switch {
	case age >= countShare*c.took:
		return true
	case c.failed: // a count after a failed one always waits for the longer pause
		return false
	default:
		return age >= nearShare*c.took && (c.short || c.shares.mayBeFull(age))
	}
}

func (c *Capacity) count(ctx context.Context) (*job.Counted, error) {
	began := c.clock()
	before, due := c.beginCount(began)
	if !due {
		return nil, nil
	}
	limit := max(c.limit.Active, c.limit.Queued)
	counted, err := c.store.Load(ctx, limit)
	var byClient map[job.ID]job.Load
	if err == nil && c.shares.mayMatter(counted.Jobs) {
		byClient, err = c.store.LoadByClient(ctx, limit, c.shares.few)
	}
	return c.endCount(began, before, counted, byClient, err)
}

// beginCount sets c.mine, and returns whether a count is due. The count will contain the jobs in c.accepted[:before].
func (c *Capacity) beginCount(now time.Time) (before int, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mine = c.lease.report.Plus(c.lease.stored, 1)
	return len(c.accepted), c.due(now)
}

func (c *Capacity) endCount(
	began time.Time, before int, counted job.Counted, byClient map[job.ID]job.Load, err error,
) (*job.Counted, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.countedAt, c.took, c.failed = began, c.clock().Sub(began), err != nil
	if err != nil {
		return nil, err
	}
	c.shares.counts(byClient, counted.Jobs)
	for _, a := range c.accepted[:before] {
		c.shares.add(a.client, a.jobs, -1)
	}
	c.accepted = append(c.accepted[:0:0], c.accepted[before:]...)
	counted.Reported = counted.Reported.Plus(c.mine, 1) // the count contains c.mine, so a later report must not add c.mine again
	return &counted, nil
}

func (c *Capacity) countWorkers(ctx context.Context) error {
	workers, err := c.store.LiveWorkers(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers = workers
	return nil
}
