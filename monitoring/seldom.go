package monitoring

import (
	"sync"
	"time"
)

// seldom keeps what happens again and again from filling the log: it lets one
// line through in each interval and counts for all.
type seldom struct {
	every time.Duration

	mu    sync.Mutex
	due   time.Time
	count int
}

// add counts n. When a line is due it gives the count since the last one.
func (s *seldom) add(n int, now time.Time) (count int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count += n
	if now.Before(s.due) {
		return 0, false
	}
	count, s.count, s.due = s.count, 0, now.Add(s.every)
	return count, true
}
