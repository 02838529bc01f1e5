package app

import "testing"

// worldEvents is the hub with everything around it.
type worldEvents struct {
	*testWorld
	hub    *Hub
	reader *EventReader
}

func newWorldEvents(t testing.TB) *worldEvents {
	w := &worldEvents{testWorld: newTestWorld(t)}
	w.hub = NewHub(w.store, w.listener, w.metrics, w.logger)
	w.reader = NewEventReader(w.store, w.hub)
	return w
}
