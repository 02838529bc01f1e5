// Package migrations holds the database schema in numbered SQL files, each with its way up and its way down: one for each subject of the
// first schema, then one for each later change. It holds files only; package repo runs them.
package migrations

import "embed"

// FS holds the migration files.
//
//go:embed *.sql
var FS embed.FS
