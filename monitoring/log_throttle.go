package monitoring

import (
	"sync"
	"time"
)

// throttle prevents a repeated event from filling the log. It allows one line in each interval, with the count of all events.
type throttle struct {
	every time.Duration

	mu    sync.Mutex
	due   time.Time
	count int
}

// add counts n events. If a line is due, it returns the count since the last line.
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
