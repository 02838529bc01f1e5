package jobs

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// LoadStore counts what there is to do, and who can do it.
type LoadStore interface {
	Load(ctx context.Context, limit int) (job.Load, error)
	// LoadByClient is the same of each client that has more than few.
	LoadByClient(ctx context.Context, limit, few int) (map[job.ID]job.Load, error)
	LiveWorkers(ctx context.Context) (int, error)
}

// capacityInterval bounds how stale the count of other processes' jobs is where
// it matters: see stale.
const capacityInterval = time.Second

// To count takes 0.1 s or more when there are a million jobs. So it is done
// each second only where that is cheap or matters.
const (
	countShare = 100     // rests for so many times as long as it took: 1 % of a core
	nearShare  = 10      // the same while a client may have come to the end of its share
	fewJobs    = 100_000 // quickly counted
	maxRate    = 50_000  // jobs a second that all other processes together may accept
)

// Capacity keeps the number of active and of queued jobs below the configured
// limits (section 17), in all and of each client: exactly within a process, and
// with a count from storage for the others. That is at most a second old or so while there are few jobs,
// and whenever the others could have taken all the room since. It also knows how
// many workers there are.
type Capacity struct {
	maxActive, maxQueued int
	store                LoadStore
	log                  *slog.Logger

	mu       sync.Mutex
	counted  job.Load      // from storage
	mine     job.Load      // reserved here and maybe not in counted
	shares   shares        // the same by client
	accepted []reservation // accepted here since the count began
	workers  int           // alive; unknownWorkers before the first count

	counting  sync.Mutex    // of who counts; guards the following
	countedAt time.Time     // when the latest count began; zero before the first one
	took      time.Duration // for how long it counted
	failed    bool
}

const unknownWorkers = -1

// reservation is the room that a client's jobs take.
type reservation struct {
	client job.ID
	jobs   job.Load
}

// NewCapacity makes the limits; Run keeps their counts fresh.
func NewCapacity(limits Limits, store LoadStore, log *slog.Logger) *Capacity {
	return &Capacity{
		maxActive: limits.Active, maxQueued: limits.Queued, shares: newShares(limits), store: store, log: log, workers: unknownWorkers,
	}
}

// reserve takes room for jobs of a client, for all of them or none. done gives the room
// back, unless the jobs were accepted: then they count here until storage
// counts them.
func (c *Capacity) reserve(client job.ID, jobs job.Load) (done func(accepted bool), err error) {
	if c == nil {
		return func(bool) {}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.shares.refusal(client, jobs); err != nil {
		return nil, err
	}
	if full(c.counted.Active+c.mine.Active, jobs.Active, c.maxActive) || full(c.counted.Queued+c.mine.Queued, jobs.Queued, c.maxQueued) {
		return nil, &job.Error{Code: job.CodeQueueFull, RetryAfter: capacityInterval,
			Detail: "The server has as many jobs as it may hold. Nothing was accepted."}
	}
	r := reservation{client, jobs}
	c.add(r, 1)
	return func(accepted bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if accepted {
			c.accepted = append(c.accepted, r)
			return
		}
		c.add(r, -1)
	}, nil
}

// full reports whether there is no room for more; nothing always fits.
func full(there, more, limit int) bool { return more > 0 && there+more > limit }

func (c *Capacity) add(r reservation, sign int) {
	c.mine = c.mine.Plus(r.jobs, sign)
	c.shares.add(r.client, r.jobs, sign)
}

// liveWorkers is how many workers were alive a second ago or so.
func (c *Capacity) liveWorkers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.workers
}

// Run refreshes the counts until ctx ends.
func (c *Capacity) Run(ctx context.Context) {
	app.Repeat(ctx, capacityInterval, c.log, "cannot count jobs and workers", "count", func(ctx context.Context) error {
		return errors.Join(c.Freshen(ctx), c.countWorkers(ctx))
	})
}

// Freshen counts anew if it is time to. Who reserves in a process without Run calls it
// before.
func (c *Capacity) Freshen(ctx context.Context) error {
	c.counting.Lock()
	defer c.counting.Unlock()
	if !c.stale(time.Now()) {
		return nil
	}
	return c.refresh(ctx)
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
	case age >= nearShare*c.took && c.shares.mayBeFull(age):
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
	load, byClient, err := c.count(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.countedAt, c.took, c.failed = began, time.Since(began), err != nil
	if err != nil {
		return err
	}
	c.counted = load
	c.shares.counts(byClient, load)
	for _, r := range c.accepted[:before] {
		c.add(r, -1)
	}
	c.accepted = append(c.accepted[:0:0], c.accepted[before:]...)
	return nil
}

// count counts in all, and by client if that may matter.
func (c *Capacity) count(ctx context.Context) (total job.Load, byClient map[job.ID]job.Load, err error) {
	limit := max(c.maxActive, c.maxQueued)
	total, err = c.store.Load(ctx, limit)
	if err == nil && c.shares.mayMatter(total) {
		byClient, err = c.store.LoadByClient(ctx, limit, c.shares.few)
	}
	return total, byClient, err
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
