package monitoring

import (
	"sync"
	"time"
)

// throttle keeps a repeated event from filling the log: it lets one line through
// in each interval, with the count of all events.
type throttle struct {
	every time.Duration

	mu    sync.Mutex
	due   time.Time
	count int
}

// add counts n. When a line is due it returns the count since the last one.
func (s *throttle) add(n int, now time.Time) (count int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count += n
	if now.Before(s.due) {
		return 0, false
	}
	count, s.count, s.due = s.count, 0, now.Add(s.every)
	return count, true
}
