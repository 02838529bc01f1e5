// Package migrations embeds the SQL files of the database schema. Package repo runs them.
package migrations

import "embed"

// FS holds the migration files.
//
//go:embed *.sql
var FS embed.FS
