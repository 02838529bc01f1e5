// Package ratelimit counts requests for the rate limit, which all processes share through Redis.
package ratelimit

import (
	"context"
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// Config sets the limits of a client.
type Config struct {
	// Name is what the limit counts, "" for requests. It is part of the keys in Redis, so that several limits are independent.
	Name string
	// PerMinute is the limit for any 60 seconds and the largest burst; 0 for none.
	PerMinute int
	// PerDay is the limit for each UTC day; 0 for none.
	PerDay int
	// Wait bounds how long a request waits for Redis. Default 500 ms.
	Wait time.Duration
	// Processes returns the number of processes that share the limits. Without Redis each has its part. nil means one.
	Processes func() int
	// Clock is for tests; nil means time.Now. Shared counts always follow Redis' clock.
	Clock func() time.Time
}

// Limiter limits each client's requests, over all processes together: never more than PerMinute pass in any 60 seconds.
//
// Redis counts the tokens of the last minute. This process takes tokens from it in chunks: of one if the limit is small, larger ones if
// more requests pass here. A request asks Redis only if no token is held, and later requests wait for the same answer. Tokens may be used
// for keepHeld; a token counts until a minute after that, and unused ones are returned. Those of a process that dies count until then.
// Because Redis counts in slots, a passed request counts for 60.5 to 61 seconds.
//
// Without Redis each process applies its part of the limit, without waiting: the limit divided by Config.Processes, and at least 1. It
// reports passed requests when Redis is back, and those for which Redis took longer than Config.Wait. A flushed Redis forgets all counts,
// the day's quota included; each process still bounds its own requests.
type Limiter struct {
	redis   *redisconn.Redis
	cfg     Config
	rates   rates
	now     func() time.Time
	circuit *redisconn.Circuit

	mu      sync.RWMutex
	clients map[job.ID]*client

	start, halt sync.Once
	stopping    chan struct{}
	sweeping    sync.WaitGroup
	asking      sync.WaitGroup
}

// client is a bucket with its lock and its pending exchange with Redis.
type client struct {
	id job.ID

	mu      sync.Mutex
	bucket  *bucket
	asking  chan struct{} // closed with the answer; nil: no request waits
	waiting int           // tokens that requests wait for
}

func (c *client) isIdle(now time.Time) bool {
	return c.bucket.idle(now) && c.asking == nil && c.waiting == 0
}

// New makes a limiter. It works at once; Start only adds tidying up.
func New(r *redisconn.Redis, cfg Config) *Limiter {
	cfg.Wait = redisconn.Default(cfg.Wait, 500*time.Millisecond)
	l := &Limiter{
		redis: r, cfg: cfg, rates: newRates(cfg.PerMinute, cfg.PerDay), now: cfg.Clock,
		clients: map[job.ID]*client{}, stopping: make(chan struct{}),
	}
	if l.now == nil {
		l.now = time.Now
	}
	if cfg.Processes == nil {
		l.cfg.Processes = func() int { return 1 }
	}
	if cfg.Name != "" {
		l.circuit = redisconn.NewCircuit("the shared rate limit of "+cfg.Name, r.Log, nil)
		return l
	}
	l.circuit = redisconn.NewCircuit("the shared rate limit", r.Log, func(open bool) {
		r.Metrics.Alone.Set(map[bool]float64{true: 1}[open])
	})
	return l
}

// Allow counts a request of the client, if it may pass, and returns the state of the client's limit. It never fails, and waits for Redis
// at most for Config.Wait and until ctx ends.
func (l *Limiter) Allow(ctx context.Context, id job.ID) job.Allowance { return l.allow(ctx, id, 1, 1) }

// AllowItems counts the items of a request that Allow has let pass: a token each, including the request's, but at most the limit, so that
// any request can pass. If they may not pass, none of them counts.
func (l *Limiter) AllowItems(ctx context.Context, id job.ID, items int) job.Allowance {
	parts := 1
	if l.circuit.IsOpen() {
		parts = l.cfg.Processes()
	}
	needs := min(items, part(l.rates.perMinute, parts))
	if l.rates.perDay > 0 {
		needs = min(needs, part(l.rates.perDay, parts))
	}
	if needs <= 1 {
		return job.Allowance{OK: true}
	}
	return l.allow(ctx, id, needs-1, needs)
}

// AllowUnits counts units of a limit that counts only units, at most the limit.
func (l *Limiter) AllowUnits(ctx context.Context, id job.ID, units int) job.Allowance {
	return l.AllowItems(ctx, id, units+1)
}

// allow takes n tokens. needs is how many tokens a refused request needs to pass.
func (l *Limiter) allow(ctx context.Context, id job.ID, n, needs int) job.Allowance {
	if l.cfg.PerMinute <= 0 && l.cfg.PerDay <= 0 {
		return job.Allowance{OK: true}
	}
	var timer *time.Timer
	for alone := 0; ; {
		c := l.lock(id)
		if l.circuit.IsOpen() {
			alone = l.cfg.Processes()
		}
		v := c.bucket.take(l.now(), n, alone)
		if v != mustAsk {
			a := c.bucket.allowance(l.now(), needs, v, alone)
			if alone > 0 || c.bucket.wants(l.now()) {
				l.askForTokens(c)
			}
			c.mu.Unlock()
			return a
		}
		c.waiting += n
		answered := l.askForTokens(c)
		c.mu.Unlock()
		if timer == nil {
			timer = time.NewTimer(l.cfg.Wait)
			defer timer.Stop()
		}
		if alone = 0; !l.await(ctx, timer, answered) {
			alone = l.cfg.Processes()
		}
		c.mu.Lock()
		c.waiting -= n
		c.mu.Unlock()
	}
}

// await waits for an answer and reports whether it came. A timeout opens the circuit, so that others do not wait.
func (l *Limiter) await(ctx context.Context, timer *time.Timer, answered <-chan struct{}) bool {
	if answered == nil {
		return false
	}
	select {
	case <-answered:
		return true
	case <-ctx.Done():
		return false
	case <-timer.C:
		l.circuit.Report(errSlow)
		return false
	}
}

// lock returns the client's entry, locked while l.mu is held, so that an entry in use is not removed.
func (l *Limiter) lock(id job.ID) *client {
	l.mu.RLock()
	if c := l.clients[id]; c != nil {
		c.mu.Lock()
		l.mu.RUnlock()
		return c
	}
	l.mu.RUnlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clients[id]
	if c == nil {
		c = &client{id: id, bucket: newBucket(l.rates, l.now())}
		l.clients[id] = c
	}
	c.mu.Lock()
	return c
}

// sweepEvery is how often unused tokens are given back, so that they are back within a second of being taken.
const sweepEvery = keepHeld / 2

// Start begins to tidy up: unused tokens go back to the shared counts, idle clients are forgotten.
func (l *Limiter) Start() {
	l.start.Do(func() {
		l.sweeping.Go(func() {
			ticker := time.NewTicker(sweepEvery)
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C:
					l.sweep()
				case <-l.stopping:
					return
				}
			}
		})
	})
}

// sweep reports to the shared counts, and forgets idle clients.
func (l *Limiter) sweep() {
	var idle []*client
	l.each(func(c *client) {
		switch {
		case c.isIdle(l.now()):
			idle = append(idle, c)
		case len(c.bucket.unused) == 0 && c.bucket.owed == 0:
		case c.bucket.busy(l.now()):
			l.askForTokens(c) // meanwhile no request can
		default:
			l.ask(c, 0)
		}
	})
	if len(idle) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range idle {
		c.mu.Lock()
		if c.isIdle(l.now()) {
			delete(l.clients, c.id)
		}
		c.mu.Unlock()
	}
}

// each calls f with each client, locked.
func (l *Limiter) each(f func(*client)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, c := range l.clients {
		c.mu.Lock()
		f(c)
		c.mu.Unlock()
	}
}

// Stop gives unused tokens back and ends, within ctx. Later requests are still answered, by this process alone. It may be called
// again, and before Start.
func (l *Limiter) Stop(ctx context.Context) error {
	l.start.Do(func() {})
	l.halt.Do(func() {
		close(l.stopping)
		l.sweeping.Wait()
		l.giveBack()
	})
	return redisconn.WaitFor(ctx, l.asking.Wait)
}
