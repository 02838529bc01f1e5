package loadgen

import (
	"context"
	"sync"
)

// Gate bounds the jobs that are submitted and have not finished. A nil gate is open.
type Gate struct {
	bound int

	mu        sync.Mutex
	changed   *sync.Cond
	submitted int
	finished  int
	open      bool // for good
}

// NewGate lets so many jobs through before the first has finished.
func NewGate(bound int) *Gate {
	g := &Gate{bound: bound}
	g.changed = sync.NewCond(&g.mu)
	return g
}

// enter waits until one more may be submitted.
func (g *Gate) enter(ctx context.Context) error {
	if g == nil {
		return ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.open && g.submitted-g.finished >= g.bound {
		g.changed.Wait()
	}
	g.submitted++
	return ctx.Err()
}

// Update sets how many have finished in all.
func (g *Gate) Update(finished int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.finished = finished
	g.changed.Broadcast()
}

// unlock opens the gate for good, so that no client waits after the end.
func (g *Gate) unlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
	g.changed.Broadcast()
}
