package redisconn

import (
	"log/slog"
	"sync"
	"time"
)

// FirstPause is the time for which a circuit refuses all calls after it opens. The pause doubles with each failed probe, up to MaxPause.
const (
	FirstPause = 250 * time.Millisecond
	MaxPause   = 2 * time.Second
)

// Circuit is a circuit breaker. After a failure it refuses all calls for a while, then allows a single probe. It logs the start and the
// end of an outage.
type Circuit struct {
	what    string // name of the failing operation, for the log
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
	logged   bool
}

// NewCircuit makes a closed circuit. The function `changed` may be nil; it is called when the circuit opens or closes.
func NewCircuit(what string, log *slog.Logger, changed func(open bool)) *Circuit {
	if changed == nil {
		changed = func(bool) {}
	}
	return &Circuit{what: what, log: log, now: time.Now, changed: changed}
}

// IsOpen reports whether the circuit is open.
func (c *Circuit) IsOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// Allow reports whether a call is allowed. After an allowed call, the caller must call Report.
func (c *Circuit) Allow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open && (c.probing || c.now().Before(c.until)) {
		return false
	}
	c.probing = c.open
	return true
}

// Report records the result of an allowed call. An error opens the circuit, a success closes it.
func (c *Circuit) Report(err error) {
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
		c.open, c.since, c.pause, c.until = true, now, FirstPause, now.Add(FirstPause)
		c.changed(true)
	case err != nil && c.probing:
		c.probing = false
		c.pause = min(2*c.pause, MaxPause)
		c.until = now.Add(c.pause)
	}
}
