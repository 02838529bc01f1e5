package jobs

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// LoadStore counts what there is to do, and who can do it.
type LoadStore interface {
	Load(ctx context.Context, limit int) (job.Load, error)
	LiveWorkers(ctx context.Context) (int, error)
}

// capacityInterval bounds how stale the count of other processes' jobs is where
// it matters: see stale.
const capacityInterval = time.Second

// To count takes 0.1 s or more when there are a million jobs. So it is done
// each second only where that is cheap or matters.
const (
	countShare = 100     // rests for so many times as long as it took: 1 % of a core
	fewJobs    = 100_000 // quickly counted
	maxRate    = 50_000  // jobs a second that all other processes together may accept
)

// Capacity keeps the number of active and of queued jobs below the configured
// limits (section 17): exactly within a process, and with a count from storage
// for the others. That is at most a second old or so while there are few jobs,
// and whenever the others could have taken all the room since. It also knows how
// many workers there are.
type Capacity struct {
	maxActive, maxQueued int
	store                LoadStore
	log                  *slog.Logger

	mu       sync.Mutex
	counted  job.Load   // from storage
	mine     job.Load   // reserved here and maybe not in counted
	accepted []job.Load // accepted here since the count began
	workers  int        // alive; unknownWorkers before the first count

	// Used by Run alone.
	countedAt time.Time     // when the latest count began; zero before the first one
	took      time.Duration // for how long it counted
	failed    bool
}

const unknownWorkers = -1

// NewCapacity makes the limits; Run keeps their counts fresh.
func NewCapacity(maxActive, maxQueued int, store LoadStore, log *slog.Logger) *Capacity {
	return &Capacity{maxActive: maxActive, maxQueued: maxQueued, store: store, log: log, workers: unknownWorkers}
}

// reserve takes room for jobs, for all of them or none. done gives the room
// back, unless the jobs were accepted: then they count here until storage
// counts them.
func (c *Capacity) reserve(jobs job.Load) (done func(accepted bool), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if full(c.counted.Active+c.mine.Active, jobs.Active, c.maxActive) || full(c.counted.Queued+c.mine.Queued, jobs.Queued, c.maxQueued) {
		return nil, &job.Error{Code: job.CodeQueueFull, RetryAfter: capacityInterval,
			Detail: "The server has as many jobs as it may hold. Nothing was accepted."}
	}
	c.add(jobs, 1)
	return func(accepted bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if accepted {
			c.accepted = append(c.accepted, jobs)
			return
		}
		c.add(jobs, -1)
	}, nil
}

// full reports whether there is no room for more; nothing always fits.
func full(there, more, limit int) bool { return more > 0 && there+more > limit }

func (c *Capacity) add(jobs job.Load, sign int) {
	c.mine.Active += sign * jobs.Active
	c.mine.Queued += sign * jobs.Queued
}

// liveWorkers is how many workers were alive a second ago or so.
func (c *Capacity) liveWorkers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.workers
}

// Run refreshes the counts until ctx ends.
func (c *Capacity) Run(ctx context.Context) {
	for {
		if c.stale(time.Now()) {
			if err := c.refresh(ctx); err != nil && ctx.Err() == nil {
				c.log.WarnContext(ctx, "cannot count jobs", "action", "count", app.ErrorFields(err))
			}
		}
		if err := c.countWorkers(ctx); err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "cannot count workers", "action", "count", app.ErrorFields(err))
		}
		if !app.Sleep(ctx, capacityInterval) {
			return
		}
	}
}

// stale reports whether it is time to count anew.
func (c *Capacity) stale(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	age := now.Sub(c.countedAt)
	room := min(c.maxActive-c.counted.Active-c.mine.Active, c.maxQueued-c.counted.Queued-c.mine.Queued)
	switch {
	case age >= countShare*c.took:
		return true
	case c.failed: // as seldom, whatever it would have shown
		return false
	case c.counted.Active < fewJobs:
		return true
	default: // the others may have filled the room before the next look
		return float64(room) <= maxRate*(age+capacityInterval).Seconds()
	}
}

// refresh counts anew. What was accepted before the count began is in it.
func (c *Capacity) refresh(ctx context.Context) error {
	c.mu.Lock()
	before := len(c.accepted)
	c.mu.Unlock()
	began := time.Now()
	load, err := c.store.Load(ctx, max(c.maxActive, c.maxQueued))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.countedAt, c.took, c.failed = began, time.Since(began), err != nil
	if err != nil {
		return err
	}
	c.counted = load
	for _, jobs := range c.accepted[:before] {
		c.add(jobs, -1)
	}
	c.accepted = append(c.accepted[:0:0], c.accepted[before:]...)
	return nil
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
