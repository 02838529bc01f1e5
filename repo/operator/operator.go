// Package operator implements the operators' view of all clients: reads for the operator API, the history of the service, and the audit log
// of operators.
package operator

import (
	"context"
	"embed"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/repo/pg"
)

//go:embed *.sql
var files embed.FS

var statement = pg.Statements(files, map[string]string{"maxCounted": strconv.Itoa(maxCounted)})

// Store writes the history. Its method Admin returns an Admin, which reads for operators.
type Store struct{ db *pg.DB }

// New makes a Store.
func New(db *pg.DB) *Store { return &Store{db} }

// Admin reads data of all clients for operators. Its statements return JSON in the form of the operator API.
type Admin struct{ store *Store }

// Admin returns an Admin that reads from the store's database.
func (s *Store) Admin() Admin { return Admin{s} }

// pageThrough runs a statement repeatedly until the page is full, the list ends, or searchFor has passed.
func pageThrough[T any, P comparable](
	ctx context.Context, s *Store, limit int, after P, scan pgx.RowToFunc[pg.Listed[T, P]], portion func(after P, limit int) (string, []any),
) (page []T, next P, err error) {
	began := time.Now()
	for page = []T{}; ; after = next {
		sql, args := portion(after, limit-len(page))
		rows, err := pg.Query(ctx, s.db, scan, sql, args...)
		if err != nil {
			return nil, next, err
		}
		var found []T
		found, next = pg.OnePage(rows, limit-len(page))
		page = append(page, found...)
		if next == *new(P) || len(page) == limit || time.Since(began) > searchFor {
			return page, next, nil
		}
	}
}

// pageByID is pageThrough for lists that are sorted by id.
func pageByID[T any](
	ctx context.Context, s *Store, limit int, after job.ID, id func(T) job.ID, portion func(after job.ID, limit int) (string, []any),
) (page admin.Page[T], err error) {
	page.Data, page.Next, err = pageThrough(ctx, s, limit, after, func(row pgx.CollectableRow) (l pg.Listed[T, job.ID], err error) {
		err = row.Scan(&l.Last, &l.Wanted, &l.Item)
		l.Place = id(l.Item)
		return l, err
	}, portion)
	return page, err
}
