package delivery

import (
	"slices"
	"sync"

	"github.com/forgerun/forgerun/job"
)

// fairSemaphore divides a number of places among clients. A client gets another
// one only while it has fewer than are free: so one client has half of them at
// most, and several leave some free most of the time. Places that become free go
// to who waits: first to the client that has the fewest. So who comes new waits
// at worst until one of the others gives a place back.
type fairSemaphore struct {
	mu      sync.Mutex
	free    int
	clients map[job.ID]*places
	waiting []*places // those with tickets, who was served last at the end
}

// places are those that a client has, and wants.
type places struct {
	held    int
	tickets []chan struct{} // closed when there is a cursor, in order
}

func newFairSemaphore(n int) *fairSemaphore {
	return &fairSemaphore{free: n, clients: map[job.ID]*places{}}
}

// acquire waits for a place until giveUp is closed, and reports whether it got
// one.
func (s *fairSemaphore) acquire(client job.ID, giveUp <-chan struct{}) bool {
	ticket := s.ask(client)
	select {
	case <-ticket:
		return true
	case <-giveUp:
		s.withdraw(client, ticket)
		return false
	}
}

// tryAcquire takes a place if the client may have one now.
func (s *fairSemaphore) tryAcquire(client job.ID) bool {
	ticket := s.ask(client)
	select {
	case <-ticket:
		return true
	default:
		s.withdraw(client, ticket)
		return false
	}
}

// release gives a place back.
func (s *fairSemaphore) release(client job.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(client)
}

func (s *fairSemaphore) ask(client job.ID) (ticket chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.clients[client]
	if p == nil {
		p = &places{}
		s.clients[client] = p
	}
	if len(p.tickets) == 0 {
		s.waiting = append(s.waiting, p)
	}
	ticket = make(chan struct{})
	p.tickets = append(p.tickets, ticket)
	s.serve()
	return ticket
}

// withdraw gives up a ticket, or the place that it has got meanwhile.
func (s *fairSemaphore) withdraw(client job.ID, ticket chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.clients[client]
	i := slices.Index(p.tickets, ticket)
	if i < 0 {
		s.put(client)
		return
	}
	p.tickets = slices.Delete(p.tickets, i, i+1)
	if len(p.tickets) == 0 {
		s.waiting = slices.DeleteFunc(s.waiting, func(other *places) bool { return other == p })
	}
	s.forget(client)
}

func (s *fairSemaphore) put(client job.ID) {
	s.free++
	s.clients[client].held--
	s.forget(client)
	s.serve()
}

// forget drops a client that has nothing and wants nothing.
func (s *fairSemaphore) forget(client job.ID) {
	if p := s.clients[client]; p.held == 0 && len(p.tickets) == 0 {
		delete(s.clients, client)
	}
}

// serve hands out what is free. If the client that has the fewest may not have
// another one, nobody may.
func (s *fairSemaphore) serve() {
	for len(s.waiting) > 0 {
		next := 0
		for i, p := range s.waiting {
			if p.held < s.waiting[next].held {
				next = i
			}
		}
		p := s.waiting[next]
		if p.held >= s.free {
			return
		}
		s.free--
		p.held++
		close(p.tickets[0])
		p.tickets = p.tickets[1:]
		s.waiting = slices.Delete(s.waiting, next, next+1)
		if len(p.tickets) > 0 {
			s.waiting = append(s.waiting, p)
		}
	}
}
