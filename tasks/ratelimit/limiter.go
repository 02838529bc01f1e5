// Package ratelimit implements the rate limit, which all processes share through Redis.
package ratelimit

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// Config configures the limits of a client.
type Config struct {
	// Name is what the limit counts; "" means requests. Limits with different names have different keys in Redis.
	Name string
	// PerMinute is the limit for any 60 seconds. A client may send all these requests in one moment. 0 means no limit.
	PerMinute int
	// PerDay is the limit for each UTC day. 0 means no limit.
	PerDay int
	// Wait limits how long a request waits for Redis. Default 500 ms.
	Wait time.Duration
	// Processes returns the number of processes that share the limits. Without Redis, each process applies its share. nil means one process.
	Processes func() int
	// Clock is for tests; nil means time.Now. Shared counts always follow Redis' clock.
	Clock func() time.Time
}

// Limiter limits each client's requests over all processes: never more than PerMinute pass in any 60 seconds.
//
// Redis counts the tokens of the last minute. A process takes tokens from Redis in chunks. A chunk is one token if the limit is small, and
// more for a busy process. A request asks Redis only if the process has no token left. Further requests wait for the same response. A
// process may use a token for the duration keepHeld. Redis counts each token for keepHeld plus a minute. Unused tokens go back to Redis. If
// a process dies, its tokens count until they expire. Because of keepHeld and slots of half a second, a request may count for up to 61
// seconds.
//
// Without Redis, each process applies its share of the limit without waiting: the limit divided by Config.Processes, but at least 1. When
// Redis is back, the process reports the requests that passed without a token. If Redis is flushed, its counts and the day's quota start
// again. Each process still limits its own requests.
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

// client is a bucket with its lock and its pending request to Redis.
type client struct {
	id job.ID

	mu      sync.Mutex
	bucket  *bucket
	asking  chan struct{} // nil without a pending request
	waiting int
}

func (c *client) isIdle(now time.Time) bool {
	return c.bucket.idle(now) && c.asking == nil && c.waiting == 0
}

// New returns a limiter. Without Start, the limiter works but does not clean up in the background.
func New(r *redisconn.Redis, cfg Config) *Limiter {
	cfg.Wait = cmp.Or(cfg.Wait, 500*time.Millisecond)
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
		r.Metrics.RateLimitAlone.Set(map[bool]float64{true: 1}[open])
	})
	return l
}

// Allow decides whether a request may pass, and counts a request that passes. It returns the state of the client's limit. Allow never
// fails. It waits for Redis for at most Config.Wait, or until ctx ends.
func (l *Limiter) Allow(ctx context.Context, id job.ID) job.Allowance { return l.allow(ctx, id, 1, 1) }

// AllowItems counts the items of a request that Allow has accepted. Each item takes a token; for the first item, Allow has already taken
// the token. A request with more items than the limit takes only as many tokens as the limit. Otherwise the request could never pass. If
// the items are refused, none of them counts.
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

// AllowUnits limits something other than requests, such as storage. It takes one token per unit, but never more than the limit.
func (l *Limiter) AllowUnits(ctx context.Context, id job.ID, units int) job.Allowance {
	return l.AllowItems(ctx, id, units+1)
}

// allow takes n tokens. If allow refuses, the client must repeat the whole request. The repetition takes `needs` tokens.
func (l *Limiter) allow(ctx context.Context, id job.ID, n, needs int) job.Allowance {
	if l.cfg.PerMinute <= 0 && l.cfg.PerDay <= 0 {
		return job.Allowance{OK: true}
	}
	var timer *time.Timer
	for sharers := 0; ; {
		c := l.lock(id)
		if l.circuit.IsOpen() {
			sharers = l.cfg.Processes()
		}
		v := c.bucket.take(l.now(), n, sharers)
		if v != mustAsk {
			a := c.bucket.allowance(l.now(), needs, v, sharers)
			if sharers > 0 || c.bucket.wants(l.now()) {
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
		if sharers = 0; !l.await(ctx, timer, answered) {
			sharers = l.cfg.Processes()
		}
		c.mu.Lock()
		c.waiting -= n
		c.mu.Unlock()
	}
}

// await returns false if Redis does not respond in time. A timeout also opens the circuit, so that other requests do not wait.
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

// lock returns the client's entry, locked, and creates a missing entry. It holds l.mu until the entry is locked, so that sweep cannot
// remove the entry.
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

// sweepEvery is the interval of sweeps, which return unused tokens to Redis. So a process keeps an unused token for less than a second.
const sweepEvery = keepHeld / 2

// Start starts the background cleanup, which returns unused tokens to Redis and forgets idle clients.
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

func (l *Limiter) sweep() {
	var idle []*client
	l.each(func(c *client) {
		switch {
		case c.isIdle(l.now()):
			idle = append(idle, c)
		case len(c.bucket.unused) == 0 && c.bucket.owed == 0:
		case c.bucket.busy(l.now()):
			l.askForTokens(c) // reports and asks in one request, because only one may be pending per client
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

func (l *Limiter) each(f func(*client)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, c := range l.clients {
		c.mu.Lock()
		f(c)
		c.mu.Unlock()
	}
}

// Stop ends the cleanup and returns unused tokens to Redis. It waits for Redis, but only until ctx ends. Later requests are still limited,
// but without Redis. Stop may be called twice, or before Start.
func (l *Limiter) Stop(ctx context.Context) error {
	l.start.Do(func() {})
	l.halt.Do(func() {
		close(l.stopping)
		l.sweeping.Wait()
		l.giveBack()
	})
	return redisconn.WaitFor(ctx, l.asking.Wait)
}
