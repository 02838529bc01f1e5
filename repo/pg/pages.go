package pg

import (
	"bytes"
	"context"
	"encoding/binary"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// LastID sorts behind all other ids.
var LastID = job.ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// AfterOf returns id, or LastID if id is zero. A list from new to old continues below it.
func AfterOf(id job.ID) job.ID {
	if id.IsZero() {
		return LastID
	}
	return id
}

const (
	// maxLooked is how many rows one statement of a list may read to find matching rows.
	maxLooked = 20_000

	// IDSkew is the largest difference between the time in a job's id, set by the api process, and created_at, set by Postgres.
	IDSkew = 5 * time.Minute
)

// Listed is a row of a list. Place is where the list continues after this row.
type Listed[T, P any] struct {
	Item   T
	Place  P
	Last   bool // the statement stopped here because it had read maxLooked rows
	Wanted bool
}

// OnePage returns up to `limit` matching items. `next` is zero if the list has no more.
func OnePage[T, P any](rows []Listed[T, P], limit int) (items []T, next P) {
	var taken P
	for _, r := range rows {
		if r.Last {
			next = r.Place
		}
		if r.Wanted && len(items) == limit {
			return items, taken
		}
		if r.Wanted {
			items, taken = append(items, r.Item), r.Place
		}
	}
	return items, next
}

// IDRange returns the range of ids for the jobs of q: from <= id < to.
func IDRange(q job.Query) (from, to job.ID) {
	for i := range to {
		to[i] = 0xff
	}
	if !q.After.IsZero() {
		to = q.After
	}
	if q.CreatedBefore != nil {
		if latest := FirstIDOf(q.CreatedBefore.Add(IDSkew)); bytes.Compare(latest[:], to[:]) < 0 {
			to = latest
		}
	}
	if q.CreatedAfter != nil {
		from = FirstIDOf(q.CreatedAfter.Add(-IDSkew))
	}
	return from, to
}

// FirstIDOf returns the smallest version 7 UUID of t's millisecond.
func FirstIDOf(t time.Time) (id job.ID) {
	const most = 1<<48 - 1
	binary.BigEndian.PutUint64(id[:8], uint64(min(max(t.UnixMilli(), 0), most))<<16)
	return id
}

// QueryPage returns a page from a statement that reads limit+1 rows. It drops the additional row. `next` is the id to continue after, zero
// at the end.
func QueryPage[T any](
	ctx context.Context, d *DB, limit int, id func(T) job.ID, scan pgx.RowToFunc[T], sql string, args ...any,
) (page []T, next job.ID, err error) {
	page, err = Query(ctx, d, scan, sql, args...)
	if len(page) > limit {
		page = page[:limit]
		next = id(page[limit-1])
	}
	return page, next, err
}
