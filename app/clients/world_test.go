package clients

import (
	"testing"

	"github.com/forgerun/forgerun/app/apptest"
)

// worldClients is everything around clients and keys.
type worldClients struct{ *apptest.World }

func newWorldClients(t testing.TB) *worldClients { return &worldClients{apptest.NewWorld(t)} }

// second gives the error of a call that answers with a value, too.
func second[T any](_ T, err error) error { return err }
