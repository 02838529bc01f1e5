package tasks

import (
	"log/slog"
	"sync"
	"time"
)

// How long an open circuit lets nobody through: doubled with each failed probe.
const (
	firstPause = 250 * time.Millisecond
	maxPause   = 2 * time.Second
)

// circuit keeps a dead Redis from costing anything: after a failure nobody
// tries for a while, then one caller does. It logs when that begins and ends,
// and not in between.
type circuit struct {
	what    string // for the log: what does not work meanwhile
	log     *slog.Logger
	now     func() time.Time
	changed func(open bool)

	mu      sync.Mutex
	open    bool
	probing bool
	pause   time.Duration
	until   time.Time
	since   time.Time

	loggedAt time.Time
	logged   bool // the present trouble was logged
}

func newCircuit(what string, log *slog.Logger, changed func(open bool)) *circuit {
	return &circuit{what: what, log: log, now: time.Now, changed: changed}
}

// isOpen reports whether Redis is being left alone.
func (c *circuit) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// allow reports whether to try. Whoever is allowed reports what came of it,
// or abandons it.
func (c *circuit) allow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		return true
	}
	if c.probing || c.now().Before(c.until) {
		return false
	}
	c.probing = true
	return true
}

// report takes the result of a try.
func (c *circuit) report(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	switch {
	case err == nil && c.open:
		if c.logged {
			c.log.Info("Redis works again", "action", "use_redis", "for", c.what, "after", now.Sub(c.since).Round(time.Millisecond))
		}
		c.open, c.probing = false, false
		c.changed(false)
	case err != nil && !c.open:
		if c.logged = now.Sub(c.loggedAt) >= logEvery; c.logged {
			c.log.Warn("Redis does not work", "action", "use_redis", "for", c.what, "error_message", err.Error())
			c.loggedAt = now
		}
		c.open, c.since, c.pause, c.until = true, now, firstPause, now.Add(firstPause)
		c.changed(true)
	case err != nil && c.probing:
		c.probing = false
		c.pause = min(2*c.pause, maxPause)
		c.until = now.Add(c.pause)
	}
}

// abandon takes a try that came to no result.
func (c *circuit) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
}
