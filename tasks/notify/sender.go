// Package notify sends messages between processes through Redis, other than
// tasks: events and progress of jobs, and cancel signals.
// One kind of sender sends all of it, one kind of subscriber receives it.
//
// Notifications are best effort: what cannot be sent is counted and dropped, and those who depend on it also poll.
package notify

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

// SenderConfig says what a sender does with its items. Buffer, Batch and Send are needed.
type SenderConfig[T any] struct {
	Buffer int // how many items may wait; further ones are dropped
	Batch  int // how many items one Send gets at most
	// Send sends the items, which it must not keep, and counts what became of them.
	Send func(ctx context.Context, items []T) error
	// Pause is the rest after a Send that left less than a batch.
	Pause time.Duration
	// Circuit: nil if Send is to be tried whatever became of the one before.
	Circuit *redisconn.Circuit
	// Results counts items that are dropped or skipped; may be nil.
	Results *prometheus.CounterVec
	// Waiting is how many items wait; may be nil.
	Waiting prometheus.Gauge
}

// Sender buffers items and sends them in the background, in their order, many at once.
type Sender[T any] struct {
	cfg   SenderConfig[T]
	items chan T

	start, halt sync.Once
	stopped     atomic.Bool
	stopping    chan struct{} // closed: send what is buffered, then end
	abort       chan struct{} // closed: drop what is buffered
	running     sync.WaitGroup
}

// NewSender makes a sender that buffers until Start.
func NewSender[T any](cfg SenderConfig[T]) *Sender[T] {
	return &Sender[T]{cfg: cfg, items: make(chan T, cfg.Buffer), stopping: make(chan struct{}), abort: make(chan struct{})}
}

// Add has the item sent, soon. It never waits, and reports false when the item is dropped: no room, or the sender was stopped.
func (s *Sender[T]) Add(item T) bool {
	if !s.stopped.Load() {
		select {
		case s.items <- item:
			if s.cfg.Waiting != nil {
				s.cfg.Waiting.Inc()
			}
			return true
		default:
		}
	}
	s.count(redisconn.ResultDropped, 1)
	return false
}

// Start begins to send. It may be called again.
func (s *Sender[T]) Start() {
	s.start.Do(func() { s.running.Go(s.work) })
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
