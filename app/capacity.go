package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
)

// LoadStore counts what there is to do.
type LoadStore interface {
	Load(ctx context.Context, limit int) (job.Load, error)
}

// capacityInterval bounds how stale the count of other processes' jobs is.
const capacityInterval = time.Second

// Capacity keeps the number of active and of queued jobs below the configured
// limits (section 17): exactly within a process, and with a count from storage
// that is at most a second old for the others.
type Capacity struct {
	maxActive, maxQueued int
	store                LoadStore
	metrics              *Metrics
	log                  *slog.Logger

	mu      sync.Mutex
	counted job.Load // from storage
	mine    job.Load // reserved here and maybe not in counted
	settled []bool   // accepted here since the count began: whether each is queued
}

// NewCapacity makes the limits; Run keeps their counts fresh.
func NewCapacity(maxActive, maxQueued int, store LoadStore, m *Metrics, log *slog.Logger) *Capacity {
	return &Capacity{maxActive: maxActive, maxQueued: maxQueued, store: store, metrics: m, log: log}
}

// reserve takes room for one job, or refuses. done gives the room back, unless
// the job was accepted: then it counts here until storage counts it.
func (c *Capacity) reserve(queued bool) (done func(accepted bool), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counted.Active+c.mine.Active >= c.maxActive || (queued && c.counted.Queued+c.mine.Queued >= c.maxQueued) {
		return nil, &job.Error{Code: job.CodeQueueFull, RetryAfter: capacityInterval,
			Detail: "The server has as many jobs as it may hold. Nothing was accepted."}
	}
	c.add(queued, 1)
	return func(accepted bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if accepted {
			c.settled = append(c.settled, queued)
			return
		}
		c.add(queued, -1)
	}, nil
}

func (c *Capacity) add(queued bool, n int) {
	c.mine.Active += n
	if queued {
		c.mine.Queued += n
	}
}

// Run refreshes the counts until ctx ends.
func (c *Capacity) Run(ctx context.Context) {
	for {
		if err := c.refresh(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("cannot count jobs", "error", err)
		}
		if !sleep(ctx, capacityInterval) {
			return
		}
	}
}

// refresh counts anew. What was settled before the count began is in it.
func (c *Capacity) refresh(ctx context.Context) error {
	c.mu.Lock()
	before := len(c.settled)
	c.mu.Unlock()
	load, err := c.store.Load(ctx, max(c.maxActive, c.maxQueued))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted = load
	for _, queued := range c.settled[:before] {
		c.add(queued, -1)
	}
	c.settled = append(c.settled[:0:0], c.settled[before:]...)
	c.metrics.queueDepth.Set(float64(load.Queued))
	return nil
}
