// Package clients stores clients and their API keys. It removes clients that were never used, and erases clients with all their data.
package clients

import (
	"embed"
	"log/slog"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

//go:embed *.sql
var files embed.FS

var statement = pg.Statements(files, map[string]string{"revocationChannel": revocationChannel})

// Store stores clients.
type Store struct {
	db     *pg.DB
	logger *slog.Logger
	unused pg.Walk[job.ID]
}

// New makes a Store.
func New(db *pg.DB, logger *slog.Logger) *Store { return &Store{db: db, logger: logger} }
