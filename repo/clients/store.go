// Package clients stores clients and their API keys, and removes clients: those that were never used, and those that are to
// be erased with all that belongs to them.
package clients

import (
	"embed"
	"log/slog"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

//go:embed *.sql
var files embed.FS

var statement, variant = pg.Statements(files, map[string]string{"erasureColumns": erasureColumns})

// Store stores clients.
type Store struct {
	db     *pg.DB
	logger *slog.Logger
	unused pg.Walk[job.ID] // through clients, for those that were never used
}

// New makes a Store.
func New(db *pg.DB, logger *slog.Logger) *Store { return &Store{db: db, logger: logger} }
