// Package notify sends messages other than tasks between processes through Redis: events and progress of jobs, and cancel signals. All
// messages use Sender and Subscriber.
//
// Notifications are best effort: unsent notifications are counted and dropped, so receivers also poll.
package notify

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

// SenderConfig configures a sender. Buffer, Batch, Send and Circuit are required.
type SenderConfig[T any] struct {
	Buffer int // maximum number of buffered items; further items are dropped
	Batch  int
	// Send sends the items and counts the results. It must not retain the slice.
	Send func(ctx context.Context, items []T) error
	// While Circuit is open, items are skipped without a call of Send.
	Circuit *redisconn.Circuit
	// Pause is how long the sender waits after a Send. If a full batch is buffered, the sender does not wait.
	Pause time.Duration
	// Results counts dropped and skipped items; may be nil.
	Results *prometheus.CounterVec
	// Waiting is the number of buffered items; may be nil.
	Waiting prometheus.Gauge
}

// Sender buffers items and sends them in the background, in order, in batches.
type Sender[T any] struct {
	SenderConfig[T]
	items chan T

	start    sync.Once
	halt     sync.Once
	stopping chan struct{} // closed by Stop: send the buffered items, then end
	stopped  atomic.Bool   // Add drops all items
	aborted  atomic.Bool   // Stop gave up: the buffered items are dropped
	running  sync.WaitGroup
}

// NewSender makes a sender that buffers until Start.
func NewSender[T any](cfg SenderConfig[T]) *Sender[T] {
	return &Sender[T]{SenderConfig: cfg, items: make(chan T, cfg.Buffer), stopping: make(chan struct{})}
}

// Add queues the item. It never blocks: if the buffer is full, or after Stop, the item is dropped.
func (s *Sender[T]) Add(item T) {
	if !s.stopped.Load() {
		select {
		case s.items <- item:
			s.waiting(1)
			return
		default:
		}
	}
	s.count(redisconn.ResultDropped, 1)
}

// Start starts sending.
func (s *Sender[T]) Start() {
	s.start.Do(func() { s.running.Go(s.work) })
}

// Stop sends the buffered items and ends. If ctx ends first, it drops the rest and returns ctx's error; items that are being sent may
// still arrive. Stop may be called twice, or before Start.
func (s *Sender[T]) Stop(ctx context.Context) error {
	s.start.Do(func() {}) // a later Start does nothing
	s.halt.Do(func() {
		s.stopped.Store(true)
		close(s.stopping)
		s.aborted.Store(redisconn.WaitFor(ctx, s.running.Wait) != nil)
	})
	return ctx.Err()
}

func (s *Sender[T]) work() {
	batch := make([]T, 0, s.Batch)
	for stopping := false; !stopping || len(s.items) > 0; {
		batch = batch[:0]
		select {
		case item := <-s.items:
			batch = append(batch, item)
		case <-s.stopping:
			stopping = true
		}
		for len(batch) < s.Batch && len(s.items) > 0 { // cannot block: no other goroutine receives from s.items
			batch = append(batch, <-s.items)
		}
		s.send(batch)
		if s.Pause > 0 && len(s.items) < s.Batch {
			redisconn.Pause(context.Background(), s.Pause, s.stopping)
		}
	}
}

func (s *Sender[T]) send(batch []T) {
	s.waiting(-len(batch))
	switch {
	case len(batch) == 0:
	case s.aborted.Load():
		s.count(redisconn.ResultDropped, len(batch))
	case !s.Circuit.Allow():
		s.count(redisconn.ResultSkipped, len(batch))
	default:
		s.Circuit.Report(s.Send(context.Background(), batch))
	}
}

func (s *Sender[T]) waiting(n int) {
	if s.Waiting != nil {
		s.Waiting.Add(float64(n))
	}
}

func (s *Sender[T]) count(result string, n int) {
	if s.Results != nil {
		s.Results.WithLabelValues(result).Add(float64(n))
	}
}
