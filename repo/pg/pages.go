package pg

import (
	"bytes"
	"context"
	"encoding/binary"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// LastID sorts after all other ids.
var LastID = job.ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// AfterOf returns id, or LastID if id is zero. The next page of a list from new to old has only ids below the returned id.
func AfterOf(id job.ID) job.ID {
	if id.IsZero() {
		return LastID
	}
	return id
}

const (
	// maxLooked is how many rows one statement of a list may read to find matching rows.
	maxLooked = 20_000

	// IDSkew is the largest expected difference between a job's created_at and the time in its id. created_at comes from Postgres' clock, and
	// the time in the id from the clock of the api process.
	IDSkew = 5 * time.Minute
)

// Listed is a row of a list. Place is where the list continues after this row.
type Listed[T, P any] struct {
	Item   T
	Place  P
	Last   bool // this is row number maxLooked; more rows may follow
	Wanted bool
}

// OnePage returns up to `limit` matching items. `next` is zero if there are no more items.
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

// IDRange returns a range of ids that contains all jobs of q: from <= id < to. It allows for IDSkew.
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

// FirstIDOf returns an id that sorts before all version 7 UUIDs of t's millisecond.
func FirstIDOf(t time.Time) (id job.ID) {
	const most = 1<<48 - 1
	binary.BigEndian.PutUint64(id[:8], uint64(min(max(t.UnixMilli(), 0), most))<<16)
	return id
}

// QueryPage returns a page from a statement that reads limit+1 rows. It drops the additional row. `next` is the last id of the page, or
// zero if there are no more rows.
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
