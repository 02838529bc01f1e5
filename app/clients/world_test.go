package clients

import (
	"testing"

	"github.com/forgerun/forgerun/app/apptest"
)

// worldClients is everything around clients and keys.
type worldClients struct{ *apptest.World }

func newWorldClients(t testing.TB) *worldClients { return &worldClients{apptest.NewWorld(t)} }
