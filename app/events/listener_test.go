package events

import (
	"sync"
	"sync/atomic"

	"github.com/forgerun/forgerun/job"
)

// fakeListener is the way that notifications come by.
type fakeListener struct {
	mu      sync.Mutex
	watched map[job.ID]bool
	changes int
	up      atomic.Bool
}

func (l *fakeListener) Watch(client job.ID)   { l.set(client, true) }
func (l *fakeListener) Unwatch(client job.ID) { l.set(client, false) }
func (l *fakeListener) Connected() bool       { return l.up.Load() }

func (l *fakeListener) set(client job.ID, watched bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	l.watched[client] = watched
}

// watching says whether a client is watched, and how often that changed.
func (l *fakeListener) watching(client job.ID) (bool, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watched[client], l.changes
}
