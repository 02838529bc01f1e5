package jobs

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/app"
)

// windowInterval is the time between two counts of what waits.
const windowInterval = time.Second

// DueStore counts the jobs that wait and are due, but no further than limit.
type DueStore interface {
	CountDue(ctx context.Context, limit int) (int, error)
}

// Window decides whether a newly queued job is given to the queue at once, or
// left to the relay: only the jobs that come next live in the queue, the others
// wait in storage alone. It closes when more than its size are due and wait. It
// opens again when half of it is left, and not at once: by then the relay, unless
// it is out of work itself, has given the queue everything that waited, and what
// comes overtakes nothing.
type Window struct {
	size  int
	store DueStore
	gauge prometheus.Gauge
	log   *slog.Logger

	mu      sync.Mutex
	known   bool // something was counted: until then there may be many
	closed  bool
	counted int // by storage
	added   int // here, since the count began

	countedAt time.Time // when the latest count ended
}

// NewWindow makes the window of a process, of so many jobs in the whole system.
// Run keeps its count fresh.
func NewWindow(size int, store DueStore, m *app.Metrics, log *slog.Logger) *Window {
	return &Window{size: size, store: store, gauge: m.WindowClosed, log: log}
}

// admit counts a job that is queued now, and reports whether a task that is
// enqueued for it overtakes nothing.
func (w *Window) admit() bool {
	if w == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.added++
	w.judge()
	return w.known && !w.closed
}

// judge closes or opens the window; the caller holds the lock.
func (w *Window) judge() {
	switch n := w.counted + w.added; {
	case !w.closed && n > w.size:
		w.closed = true
		w.gauge.Set(1)
	case w.closed && n <= w.size/2:
		w.closed = false
		w.gauge.Set(0)
	}
}

// countIfOld counts, unless that was done not long ago: who dispatches in a process without Run calls it before.
func (w *Window) countIfOld(ctx context.Context) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	old := time.Since(w.countedAt) >= windowInterval
	w.mu.Unlock()
	if !old {
		return nil
	}
	return w.Count(ctx)
}

// Run counts until ctx ends.
func (w *Window) Run(ctx context.Context) {
	app.Repeat(ctx, windowInterval, w.log, "cannot count the jobs that are due", "count", w.Count)
}

// Count counts once. Before the first time nothing is known, and all is left to the
// relay.
func (w *Window) Count(ctx context.Context) error {
	w.mu.Lock()
	before := w.added
	w.mu.Unlock()
	n, err := w.store.CountDue(ctx, w.size+1)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known, w.counted, w.countedAt = true, n, time.Now()
	w.added -= before
	w.judge()
	return nil
}
