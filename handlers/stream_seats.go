package handlers

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
)

// seats bounds what clients hold open: event streams and waiting requests. It
// also knows when the last of them has gone, which a shutdown waits for.
type seats struct {
	perClient, total int

	// ctx ends when the server shuts down, with endShutdown as its cause. What
	// sits here ends with it.
	ctx context.Context
	end context.CancelCauseFunc

	mu    sync.Mutex
	taken int
	of    map[job.ID]int // only clients that have any
	empty chan struct{}  // not nil: closed once nobody sits any more
}

func newSeats(cfg Config) *seats {
	s := &seats{perClient: cfg.MaxStreamsPerClient, total: cfg.MaxStreams, of: map[job.ID]int{}}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	return s
}

// maxSeatRetry is the longest wait that is advised when no seat is free.
const maxSeatRetry = 5 * time.Second

// take gives a client a seat until release is called, which may come twice. No
// seat is a 429 where the client itself has too many, and a 503 otherwise.
func (s *seats) take(client job.ID) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var full *job.Error
	switch {
	case s.ctx.Err() != nil:
		full = job.Errorf(job.CodeStorageUnavailable, "The server is shutting down.")
	case s.of[client] >= s.perClient:
		full = job.Errorf(job.CodeRateLimited, "This client holds as many event streams and waiting requests as it may have: %d.", s.perClient)
	case s.taken >= s.total:
		full = job.Errorf(job.CodeQueueFull, "The server has as many event streams as it may hold.")
	}
	if full != nil {
		full.RetryAfter = time.Second + rand.N(maxSeatRetry-time.Second) // so that they do not all come back at once
		return nil, full
	}
	s.taken++
	s.of[client]++
	return sync.OnceFunc(func() { s.leave(client) }), nil
}

func (s *seats) leave(client job.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.of[client]--; s.of[client] == 0 {
		delete(s.of, client)
	}
	if s.taken == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
}

// close ends what sits here, and lets nobody sit down any more.
func (s *seats) close() { s.end(endShutdown) }

// wait returns once nobody sits here, or ctx ends.
func (s *seats) wait(ctx context.Context) error {
	s.mu.Lock()
	if s.taken == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.empty == nil {
		s.empty = make(chan struct{})
	}
	empty := s.empty
	s.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
