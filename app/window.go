package app

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// directHorizon is how soon a job must be due for its task to be enqueued with
// its commit. The relay enqueues later ones, as many as the queue has room for.
const directHorizon = 5 * time.Second

// Window decides whether a newly queued job is given to the queue at once, or
// left to the relay: only the jobs that come next live in the queue, the others
// wait in storage alone. It closes when more than its size are queued. It opens
// again when half of it is left, and not at once: by then the relay has given
// the queue everything that waited, and what comes overtakes nothing.
type Window struct {
	size     int
	capacity *Capacity
	gauge    prometheus.Gauge
	closed   atomic.Bool
}

// NewWindow makes the window of a process, of so many jobs in the whole system.
func NewWindow(size int, c *Capacity, m *Metrics) *Window {
	return &Window{size: size, capacity: c, gauge: m.windowClosed}
}

// open reports whether a task that is enqueued now overtakes nothing. It is
// closed until the jobs were counted for the first time: there may be many.
func (w *Window) open() bool {
	if w == nil {
		return true
	}
	queued := w.capacity.queued()
	switch {
	case w.capacity.liveWorkers() == unknownWorkers:
		return false
	case queued > w.size:
		w.set(true)
	case queued <= w.size/2:
		w.set(false)
	}
	return !w.closed.Load()
}

func (w *Window) set(closed bool) {
	if w.closed.CompareAndSwap(!closed, closed) {
		w.gauge.Set(0)
		if closed {
			w.gauge.Set(1)
		}
	}
}
