package events

import (
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

func newWorldEvents(t testing.TB) *worldEvents {
	w := &worldEvents{World: apptest.NewWorld(t)}
	w.listener = &fakeListener{watched: map[job.ID]bool{}}
	w.listener.up.Store(true)
	w.hub = NewHub(w.Store, w.listener, w.Metrics, w.Logger)
	w.reader = NewReader(w.Store, w.hub)
	return w
}
