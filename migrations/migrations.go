// Package migrations holds the database schema, one numbered SQL file per
// step, each with its way up and its way down. It holds files only; package
// repo runs them.
package migrations

import "embed"

// FS holds the migration files.
//
//go:embed *.sql
var FS embed.FS
