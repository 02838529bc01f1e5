// Package maintenance does the leader's work on all rows: it counts the backlog, removes expired rows, publishes outcomes, and repairs the
// effects of a jump of Postgres' clock.
package maintenance

import (
	"embed"
	"time"

	"github.com/forgerun/forgerun/repo/clients"
	"github.com/forgerun/forgerun/repo/pg"
)

//go:embed *.sql
var files embed.FS

var statement = pg.Statements(files, nil)

// Store does maintenance.
type Store struct {
	db        *pg.DB
	clients   *clients.Store
	retention time.Duration
}

// New makes a Store.
func New(db *pg.DB, c *clients.Store, retention time.Duration) *Store {
	return &Store{db: db, clients: c, retention: retention}
}
