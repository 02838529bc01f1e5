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
)

// HeadroomStore is the ledger of headroom, and counts what there is to do and who can do it.
type HeadroomStore interface {
	// RenewLease reports what was stored under a lease and grants it room; job.ErrLeaseEnded if others were given its room.
	RenewLease(ctx context.Context, l job.Lease) (job.Headroom, error)
	// CloseLease leaves a lease Keep until it expires.
	CloseLease(ctx context.Context, l job.Lease) error
	Load(ctx context.Context, limit int) (job.Counted, error)
	// LoadByClient counts the jobs of each client that has more than few.
	LoadByClient(ctx context.Context, limit, few int) (map[job.ID]job.Load, error)
	LiveWorkers(ctx context.Context) (int, error)
}

const (
	// capacityInterval is the time between two renewals of a lease.
	capacityInterval = time.Second
	// leaseExpiry is how long a lease lasts by Postgres' clock, and leaseUse how long this process uses it by its own: it stops
	// before others may take the room. The row of the lease guards against a process that was paused in between.
	leaseExpiry = 5 * time.Second
	leaseUse    = 3 * time.Second
	// fullPause is how long requests are refused without a look at the ledger after it had no room.
	fullPause = 100 * time.Millisecond

	// Counting a million jobs takes 0.1 s or more. The ledger's bound holds without a count, but only a count shows the
	// room that jobs gave back.
	countShare = 100     // a count rests for so many times as long as it took: 1 % of a core
	nearShare  = 10      // the same while room is short
	fewJobs    = 100_000 // quickly counted
	maxRate    = 50_000  // jobs a second that all other processes together may accept
)

// Capacity keeps the number of active and of queued jobs below the configured limits (section 17). The limits of all jobs hold over all
// processes: each stores jobs only under a lease of headroom, and the jobs and leases together never exceed the limits. The shares
// of clients are exact within a process, and a second old or so for the jobs of others. Capacity also knows how many workers there are.
type Capacity struct {
	limit   job.Load
	store   HeadroomStore
	log     *slog.Logger
	process job.ID

	mu        sync.Mutex
	lease     *lease
	need      job.Load  // largest request that waits for room
	short     bool      // the last grant was less than wanted
	again     time.Time // requests without room are refused before this
	refusal   error     // their answer
	processes int       // processes that hold leases
	shares    shares
	accepted  []clientLoad // since the count by client began
	workers   int          // alive; unknownWorkers before the first count

	waiting  singleflight.Group // requests that wait for a renewal
	renewing sync.Mutex         // guards the following

	mine      job.Load      // what the latest count took for stored by this process, and not reported
	countedAt time.Time     // when the latest count began; zero before the first one
	took      time.Duration // duration of that count
	failed    bool
}

const unknownWorkers = -1

// clientLoad is the room that a client's jobs take.
type clientLoad struct {
	client job.ID
	jobs   job.Load
}

// NewCapacity makes the limits; Run keeps a lease. Without Run a lease is taken with the first reservation, and ends when it is not used.
func NewCapacity(limits Limits, store HeadroomStore, log *slog.Logger) *Capacity {
	return &Capacity{
		limit: job.Load{Active: limits.Active, Queued: limits.Queued}, shares: newShares(limits), store: store, log: log,
		process: app.NewID(), lease: newLease(), processes: 1, workers: unknownWorkers,
	}
}

var errFull = &job.Error{Code: job.CodeQueueFull, RetryAfter: capacityInterval,
	Detail: "The server has as many jobs as it may hold. Nothing was accepted."}

// reserve takes room for all jobs of a request of a client, or for none. It may wait for a renewal of the lease.
func (c *Capacity) reserve(ctx context.Context, client job.ID, jobs job.Load) (*reservation, error) {
	if c == nil {
		return nil, nil
	}
	for {
		c.mu.Lock()
		if err := c.shares.refusal(client, jobs); err != nil {
			c.mu.Unlock()
			return nil, err
		}
		now := time.Now()
		if c.lease.take(now, jobs) {
			r := &reservation{c: c, lease: c.lease, clientLoad: clientLoad{client, jobs}}
			c.shares.add(client, jobs, 1)
			c.mu.Unlock()
			return r, nil
		}
		if now.Before(c.again) {
			err := c.refusal
			c.mu.Unlock()
			return nil, err
		}
		c.need = c.need.Max(jobs)
		c.mu.Unlock()
		renewed := c.waiting.DoChan("", func() (any, error) { return nil, c.renew(context.Background()) })
		select {
		case <-renewed: // an error refuses those that still find no room
		case <-ctx.Done():
			return nil, &job.Error{Code: job.CodeTimeout, RetryAfter: capacityInterval, Cause: ctx.Err(),
				Detail: "The request waited too long for room in the limits. Nothing was accepted."}
		}
	}
}

// Processes returns the number of processes that take submissions.
func (c *Capacity) Processes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.processes
}

// liveWorkers is how many workers were alive a second ago or so.
func (c *Capacity) liveWorkers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.workers
}

// Run renews the lease until ctx ends, and then gives it back.
func (c *Capacity) Run(ctx context.Context) {
	app.Repeat(ctx, capacityInterval, c.log, "cannot count jobs and workers", "count", func(ctx context.Context) error {
		return errors.Join(c.Renew(ctx), c.countWorkers(ctx))
	})
	c.renewing.Lock()
	defer c.renewing.Unlock()
	_ = c.close(context.WithoutCancel(ctx)) // otherwise it expires
}

// Renew renews the lease, and counts if it is time to.
func (c *Capacity) Renew(ctx context.Context) error {
	_, err, _ := c.waiting.Do("", func() (any, error) { return nil, c.renew(ctx) })
	return err
}

func (c *Capacity) renew(ctx context.Context) error {
	c.renewing.Lock()
	defer c.renewing.Unlock()
	c.mu.Lock()
	doubtful := c.lease.doubts > 0
	c.mu.Unlock()
	if doubtful {
		_ = c.close(ctx) // otherwise it expires with all that it had
	}
	counted, uncounted := c.count(ctx)
	err := c.request(ctx, counted)
	if errors.Is(err, job.ErrLeaseEnded) {
		c.replaceLease()
		err = c.request(ctx, nil)
	}
	return cmp.Or(err, uncounted)
}

// request renews the lease in the ledger.
func (c *Capacity) request(ctx context.Context, counted *job.Counted) error {
	c.mu.Lock()
	need := c.need
	c.need = job.Load{}
	l := c.lease
	ask := l.ask(need)
	c.mu.Unlock()
	ask.Process, ask.Limit, ask.Counted, ask.Expiry = c.process, c.limit, counted, leaseExpiry
	began := time.Now()
	h, err := c.store.RenewLease(ctx, ask)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.again, c.refusal = time.Now().Add(fullPause), err
		return err
	}
	l.granted(began, ask, h.Granted)
	c.processes, c.again, c.short = h.Processes, time.Time{}, !ask.Want.Within(h.Granted)
	// A count during which this process stored jobs may have counted them twice. Then the next renewal tells.
	sure := counted == nil || (ask.Stored == c.mine && l.used == job.Load{})
	if sure && !l.used.Plus(need, 1).Within(l.size) {
		c.again, c.refusal = time.Now().Add(max(fullPause, nearShare*c.took)), errFull
	}
	return nil
}

// close leaves the lease to the jobs whose end is not known, and begins a new one.
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

// replaceLease begins a new lease in place of one that has ended.
func (c *Capacity) replaceLease() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lease = newLease()
}

// due reports whether it is time to count.
func (c *Capacity) due(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	age := now.Sub(c.countedAt)
	switch {
	case age >= countShare*c.took:
		return true
	case c.failed: // as seldom, whatever it would have shown
		return false
	default:
		return age >= nearShare*c.took && (c.short || c.shares.mayBeFull(age))
	}
}

// count counts the jobs, in all and by client if that may matter; nil if it is not time to or fails. The jobs that were accepted before the
// count began are in it.
func (c *Capacity) count(ctx context.Context) (*job.Counted, error) {
	began := time.Now()
	if !c.due(began) {
		return nil, nil
	}
	c.mu.Lock()
	before := len(c.accepted)
	c.mine = c.lease.report.Plus(c.lease.stored, 1)
	c.mu.Unlock()
	limit := max(c.limit.Active, c.limit.Queued)
	counted, err := c.store.Load(ctx, limit)
	var byClient map[job.ID]job.Load
	if err == nil && c.shares.mayMatter(counted.Jobs) {
		byClient, err = c.store.LoadByClient(ctx, limit, c.shares.few)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.countedAt, c.took, c.failed = began, time.Since(began), err != nil
	if err != nil {
		return nil, err
	}
	c.shares.counts(byClient, counted.Jobs)
	for _, a := range c.accepted[:before] {
		c.shares.add(a.client, a.jobs, -1)
	}
	c.accepted = append(c.accepted[:0:0], c.accepted[before:]...)
	counted.Reported = counted.Reported.Plus(c.mine, 1) // the same renewal reports them
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
