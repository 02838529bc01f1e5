package app

import "testing"

// worldClients is everything around clients and keys.
type worldClients struct{ *testWorld }

func newWorldClients(t testing.TB) *worldClients { return &worldClients{newTestWorld(t)} }
