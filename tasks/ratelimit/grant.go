package ratelimit

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

//go:embed limiter.lua
var limiterSource string

var limiterScript = redis.NewScript(limiterSource)

var errSlow = errors.New("no answer in time")

// ask sends a request to Redis, or joins a pending request. The returned channel is closed when the request has ended. The channel is nil
// if the circuit is open or the limiter is stopping. The caller must hold c.mu.
func (l *Limiter) ask(c *client, wanted int) <-chan struct{} {
	if c.asking != nil {
		return c.asking
	}
	select {
	case <-l.stopping:
		return nil
	default:
	}
	probe := l.circuit.IsOpen()
	if !l.circuit.Allow() {
		return nil
	}
	if probe {
		// A hanging Redis executes all probes later, so a probe must have no effect.
		l.reportAndTake(c, 0, report{day: c.bucket.day})
	} else {
		l.reportAndTake(c, wanted, c.bucket.report(l.now()))
	}
	return c.asking
}

// askForTokens asks for the tokens that waiting requests need. If the bucket's chunk minus its tokens is more, it asks for this number.
func (l *Limiter) askForTokens(c *client) <-chan struct{} {
	return l.ask(c, max(0, c.waiting, c.bucket.chunk(l.now())-c.bucket.ready(l.now())))
}

// reportAndTake sends `r` to Redis and takes up to `wanted` tokens, in the background. The caller must hold c.mu.
func (l *Limiter) reportAndTake(c *client, wanted int, r report) {
	answered := make(chan struct{})
	c.asking = answered
	sent := l.now()
	l.asking.Go(func() {
		a, err := l.grant(c.id, wanted, r)
		c.mu.Lock()
		if err != nil {
			c.bucket.takeBack(r)
		} else {
			c.bucket.receive(l.now(), sent, a)
		}
		c.asking = nil
		c.mu.Unlock()
		l.circuit.Report(err)
		close(answered)
	})
}

func (l *Limiter) grant(id job.ID, wanted int, r report) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*l.redis.Timeout)
	defer cancel()
	args := []any{
		l.rates.perMinute, l.rates.perDay, wanted, r.counting, r.usedChange(), r.day,
		slotWidth.Microseconds(), (keepHeld + minute).Microseconds(),
	}
	for _, u := range r.unused {
		args = append(args, u.slot, u.n)
	}
	n, err := limiterScript.Run(ctx, l.redis.Client, []string{l.key(id)}, args...).Int64Slice()
	if err == nil && len(n) != 8 {
		err = fmt.Errorf("the script returned %d values", len(n))
	}
	if err != nil {
		l.redis.Metrics.Grants.WithLabelValues(redisconn.ResultFailed).Inc()
		return answer{}, l.redis.Failed("limit", err)
	}
	l.redis.Metrics.Grants.WithLabelValues(redisconn.ResultOK).Inc()
	return answer{
		taken: int(n[0]), available: int(n[1]), slot: n[2], free: micros(n[3]), whole: micros(n[4]),
		day: n[5], dayLeft: micros(n[6]), used: int(n[7]),
	}, nil
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func (l *Limiter) key(id job.ID) string {
	if l.cfg.Name != "" {
		return "forgerun:rate:" + l.cfg.Name + ":{" + id.String() + "}"
	}
	return limiterKey(id)
}

func limiterKey(id job.ID) string { return "forgerun:rate:{" + id.String() + "}" }

// giveBack sends unused tokens back to Redis, and reports requests that passed without a token.
func (l *Limiter) giveBack() {
	l.each(func(c *client) {
		c.bucket.putBack(len(c.bucket.chunks))
		if r := c.bucket.report(l.now()); !r.empty() && c.asking == nil && l.circuit.Allow() {
			l.reportAndTake(c, 0, r)
		}
	})
}
