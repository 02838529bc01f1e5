// Package notify sends messages between processes through Redis, other than
// tasks: events and progress of jobs, cancel signals, and wake-ups of consumers.
// One kind of sender sends all of it, one kind of subscriber receives it.
//
// Notifications are best effort: what cannot be sent is counted and dropped, and those who depend on it also poll.
package notify

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

// SenderConfig says what a sender does with its items. Buffer, Batch, Workers and Send are needed.
type SenderConfig[T comparable] struct {
	Buffer  int // how many items may wait; further ones are dropped
	Batch   int // how many items one Send gets at most
	Workers int // how many Sends run at once
	// Send sends the items, which it must not keep, and counts what became of them.
	Send func(ctx context.Context, items []T) error
	// Pause is the rest of a worker after a Send that left less than a batch.
	Pause time.Duration
	// Rest, if not 0, makes items unique: one that waits is not added again; one added within Rest after it was taken is sent at its end.
	Rest time.Duration
	// Retry, if not 0, is after how long a failed Send is repeated with the same items, until Stop or until it returns nil.
	Retry time.Duration
	// Circuit: nil if Send is to be tried whatever became of the one before.
	Circuit *redisconn.Circuit
	// Results counts items that are dropped or skipped; may be nil.
	Results *prometheus.CounterVec
	// Waiting is how many items wait; may be nil.
	Waiting prometheus.Gauge
}

// Sender buffers items and sends them in the background, many at once.
type Sender[T comparable] struct {
	cfg   SenderConfig[T]
	items chan T

	mu      sync.Mutex
	known   map[T]bool // with Rest: items that wait or rest; true if added since they were taken
	resting []rest[T]  // the first taken first

	start, halt sync.Once
	stopped     atomic.Bool
	stopping    chan struct{} // closed: send what is buffered, then end
	abort       chan struct{} // closed: drop what is buffered
	running     sync.WaitGroup
}

type rest[T any] struct {
	item  T
	until time.Time
}

// NewSender makes a sender that buffers until Start.
func NewSender[T comparable](cfg SenderConfig[T]) *Sender[T] {
	return &Sender[T]{
		cfg: cfg, items: make(chan T, cfg.Buffer), known: map[T]bool{}, stopping: make(chan struct{}), abort: make(chan struct{}),
	}
}

// Add has the item sent, soon. It never waits, and reports false when the item is dropped: no room, or the sender was stopped.
func (s *Sender[T]) Add(item T) bool {
	ok := !s.stopped.Load() && (s.cfg.Rest == 0 && s.offer(item) || s.cfg.Rest > 0 && s.offerOnce(item))
	if !ok {
		s.count(redisconn.ResultDropped, 1)
	}
	return ok
}

func (s *Sender[T]) offer(item T) bool {
	select {
	case s.items <- item:
		if s.cfg.Waiting != nil {
			s.cfg.Waiting.Inc()
		}
		return true
	default:
		return false
	}
}

func (s *Sender[T]) offerOnce(item T) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.known[item]; known {
		s.known[item] = true
		return true
	}
	if len(s.known) >= s.cfg.Buffer {
		return false
	}
	s.known[item] = true
	return s.offer(item)
}

// Len is how many items wait.
func (s *Sender[T]) Len() int { return len(s.items) }

// Start begins to send. It may be called again.
func (s *Sender[T]) Start() {
	s.start.Do(func() {
		for range s.cfg.Workers {
			s.running.Go(s.work)
		}
	})
}

// Stop sends what is buffered and ends. When ctx ends first it drops the rest and returns ctx's error; what is on its way to
// Redis then may still arrive. It may be called again, and before Start.
func (s *Sender[T]) Stop(ctx context.Context) error {
	s.start.Do(func() {}) // a later Start starts nothing
	s.halt.Do(func() {
		s.stopped.Store(true)
		close(s.stopping)
		if redisconn.WaitFor(ctx, s.running.Wait) != nil {
			close(s.abort)
		}
	})
	return ctx.Err()
}

func (s *Sender[T]) work() {
	batch := make([]T, 0, s.cfg.Batch)
	for {
		select {
		case item := <-s.items:
			s.taken()
			batch = s.gather(append(batch[:0], item))
			s.send(batch)
			if s.cfg.Pause > 0 && len(s.items) < s.cfg.Batch {
				redisconn.Pause(context.Background(), s.cfg.Pause, s.stopping)
			}
		case <-s.stopping:
			s.endRests(time.Now().Add(s.cfg.Rest)) // no send rests longer
			for batch = s.gather(batch[:0]); len(batch) > 0; batch = s.gather(batch[:0]) {
				s.send(batch)
			}
			return
		}
	}
}

// gather adds the items that wait.
func (s *Sender[T]) gather(batch []T) []T {
	for len(batch) < s.cfg.Batch {
		select {
		case item := <-s.items:
			s.taken()
			batch = append(batch, item)
		default:
			return batch
		}
	}
	return batch
}

func (s *Sender[T]) taken() {
	if s.cfg.Waiting != nil {
		s.cfg.Waiting.Dec()
	}
}

func (s *Sender[T]) send(batch []T) {
	s.rest(batch)
	for {
		switch {
		case closed(s.abort):
			s.count(redisconn.ResultDropped, len(batch))
			return
		case s.cfg.Circuit != nil && !s.cfg.Circuit.Allow():
			s.count(redisconn.ResultSkipped, len(batch))
			return
		}
		err := s.cfg.Send(context.Background(), batch)
		if s.cfg.Circuit != nil {
			s.cfg.Circuit.Report(err)
		}
		if err == nil || s.cfg.Retry == 0 || closed(s.stopping) {
			return
		}
		redisconn.Pause(context.Background(), s.cfg.Retry, s.stopping)
	}
}

// rest begins the rests of items before they are sent: who adds one from now on has it sent once more.
func (s *Sender[T]) rest(batch []T) {
	if s.cfg.Rest == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	until := time.Now().Add(s.cfg.Rest)
	for _, item := range batch {
		s.known[item] = false
		s.resting = append(s.resting, rest[T]{item, until})
	}
	time.AfterFunc(s.cfg.Rest, func() { s.endRests(time.Now()) })
}

// endRests ends the rests that are over: items that were added meanwhile wait, the others are forgotten. Known items never exceed
// the buffer, so it has room.
func (s *Sender[T]) endRests(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := 0
	for ; over < len(s.resting) && !now.Before(s.resting[over].until); over++ {
		if item := s.resting[over].item; s.known[item] {
			s.offer(item)
		} else {
			delete(s.known, item)
		}
	}
	s.resting = slices.Delete(s.resting, 0, over)
}

func (s *Sender[T]) count(result string, n int) {
	if s.cfg.Results != nil {
		s.cfg.Results.WithLabelValues(result).Add(float64(n))
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
