// Package migrations embeds the SQL files of the database schema: one for each subject of the first schema, then one for each later change.
// Package repo runs them.
package migrations

import "embed"

// FS holds the migration files.
//
//go:embed *.sql
var FS embed.FS
