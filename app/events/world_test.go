package events

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// worldEvents is the hub with everything around it.
type worldEvents struct {
	*apptest.World
	listener *fakeListener
	hub      *Hub
	reader   *Reader
}

// bubble runs a test in a world of its own.
func bubble(t *testing.T, f func(t *testing.T, w *worldEvents)) {
	t.Helper()
	apptest.Bubble(t, func(t *testing.T) { f(t, newWorldEvents(t)) })
}

func newWorldEvents(t testing.TB) *worldEvents {
	w := &worldEvents{World: apptest.NewWorld(t)}
	w.listener = &fakeListener{watched: map[job.ID]bool{}}
	w.listener.up.Store(true)
	w.hub = NewHub(w.Store, w.listener, w.Metrics, w.Logger)
	w.reader = NewReader(w.Store, w.hub)
	return w
}

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
