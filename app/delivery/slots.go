package delivery

import (
	"sync"

	"github.com/forgerun/forgerun/internal/fair"
	"github.com/forgerun/forgerun/job"
)

// slots limits concurrent requests to receivers. Clients share the slots fairly. Requests to the same receiver use at most `limit`
// slots. A request above this limit waits without occupying a slot. For each client, an origin is a separate receiver.
type slots struct {
	all   *fair.Semaphore[job.ID]
	limit int

	mu        sync.Mutex
	receivers map[receiver]*turns
}

// receiver is an origin (scheme, host and port) used by one client, for any of its webhooks and callbacks.
type receiver struct {
	client job.ID
	origin string
}

type turns struct {
	taken chan struct{}
	users int // requests that hold or wait for a slot
}

func newSlots(n, limit int) *slots {
	return &slots{all: fair.New[job.ID](n), limit: limit, receivers: map[receiver]*turns{}}
}

// acquire waits for a slot until giveUp is closed. It returns the function that releases the slot, or nil if it got no slot.
func (s *slots) acquire(at receiver, giveUp <-chan struct{}) (release func()) {
	s.mu.Lock()
	r := s.receivers[at]
	if r == nil {
		r = &turns{taken: make(chan struct{}, s.limit)}
		s.receivers[at] = r
	}
	r.users++
	s.mu.Unlock()
	forget := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.users--; r.users == 0 {
			delete(s.receivers, at)
		}
	}
	select {
	case r.taken <- struct{}{}:
	case <-giveUp:
		forget()
		return nil
	}
	if !s.all.Acquire(at.client, giveUp) {
		<-r.taken
		forget()
		return nil
	}
	return func() {
		s.all.Release(at.client)
		<-r.taken
		forget()
	}
}
