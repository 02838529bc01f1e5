package batch

import (
	"sync"
	"time"
)

// startTime is how long a task may take to its handler. Some never come there: asynq cannot read them, or their time is over.
const startTime = 5 * time.Second

// slots counts the tasks that the asynq servers of a consumer have.
type slots struct {
	total int

	mu       sync.Mutex
	running  int
	starting []time.Time // when tasks were handed over whose handlers do not run yet
}

// free is how many more tasks would be handled at once.
func (s *slots) free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.starting) > 0 && time.Since(s.starting[0]) > startTime {
		s.starting = s.starting[1:]
	}
	return s.total - s.running - len(s.starting)
}

// handOver is called before a task goes to asynq.
func (s *slots) handOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting = append(s.starting, time.Now())
}

// enter is called when a handler begins. It takes its task for the latest, so those that never come to a handler are the oldest.
func (s *slots) enter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
	if n := len(s.starting); n > 0 {
		s.starting = s.starting[:n-1]
	}
}

// leave is called when a handler has ended.
func (s *slots) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}
