// Package fair has a semaphore that is shared fairly between clients.
package fair

import (
	"slices"
	"sync"
)

// Semaphore divides a number of places among clients, which have keys of type K. A client gets another place only while it holds fewer
// places than are free. So one client holds at most half of all places, and some places usually stay free for new clients. A freed place
// goes to the waiting client that holds the fewest places, so new clients come first.
type Semaphore[K comparable] struct {
	mu      sync.Mutex
	free    int
	clients map[K]*places
	waiting []*places // clients with waiting callers; a client moves to the end when it gets a place
}

type places struct {
	held    int
	tickets []chan struct{} // a channel for each waiting caller, oldest first; it is closed when the caller gets a place
}

// New makes a semaphore of n places.
func New[K comparable](n int) *Semaphore[K] {
	return &Semaphore[K]{free: n, clients: map[K]*places{}}
}

// Acquire waits for a place. It returns false if giveUp is closed first.
func (s *Semaphore[K]) Acquire(client K, giveUp <-chan struct{}) bool {
	if s.TryAcquire(client) {
		return true
	}
	ticket := s.ask(client)
	select {
	case <-ticket:
		return true
	case <-giveUp:
		s.withdraw(client, ticket)
		return false
	}
}

// TryAcquire takes a place without waiting. It returns false if the client may not get another place now, or if another caller of the same
// client waits.
func (s *Semaphore[K]) TryAcquire(client K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.clients[client]
	if p != nil && (len(p.tickets) > 0 || p.held >= s.free) || s.free == 0 {
		return false
	}
	if p == nil {
		p = &places{}
		s.clients[client] = p
	}
	s.free--
	p.held++
	return true
}

// Release releases a place.
func (s *Semaphore[K]) Release(client K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(client)
}

func (s *Semaphore[K]) ask(client K) (ticket chan struct{}) {
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

// withdraw removes a ticket. If the ticket got a place in the meantime, withdraw releases this place.
func (s *Semaphore[K]) withdraw(client K, ticket chan struct{}) {
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

func (s *Semaphore[K]) put(client K) {
	s.free++
	s.clients[client].held--
	s.forget(client)
	s.serve()
}

func (s *Semaphore[K]) forget(client K) {
	if p := s.clients[client]; p.held == 0 && len(p.tickets) == 0 {
		delete(s.clients, client)
	}
}

// serve lets waiting clients have the free places. The client with the fewest places always comes next. If this client may not get another
// place, serve stops.
func (s *Semaphore[K]) serve() {
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
