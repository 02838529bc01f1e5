package events

import (
	"testing"

	"github.com/forgerun/forgerun/app/apptest"
)

// worldEvents is the hub with everything around it.
type worldEvents struct {
	*apptest.World
	hub    *Hub
	reader *Reader
}

func newWorldEvents(t testing.TB) *worldEvents {
	w := &worldEvents{World: apptest.NewWorld(t)}
	w.hub = NewHub(w.Store, w.Listener, w.Metrics, w.Logger)
	w.reader = NewReader(w.Store, w.hub)
	return w
}
