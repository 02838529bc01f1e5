package repo

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

const (
	// maxLooked is how many jobs one page may look at to find those that its
	// filters want.
	maxLooked = 20_000

	// idSkew is how far the time in a job's id, which the api process gave it,
	// may be from created_at, which is Postgres' time.
	idSkew = 5 * time.Minute
)

// listColumns are jobColumns without what a client sent, which can be 256 KiB
// for each job.
var listColumns = strings.NewReplacer("jobs.definition", "NULL::jsonb", "jobs.params", "NULL::json").Replace(jobColumns)

var (
	listByClient = statement("listJobs", "{{owner}}", "client_id", "{{value}}", "@client::uuid", "{{guard}}", "true")
	// A batch of another client costs the same as one that never was: its jobs
	// are not looked at.
	listByBatch = statement("listJobs", "{{owner}}", "batch_id", "{{value}}", "@batch::uuid",
		"{{guard}}", "batch_id IS NOT NULL AND EXISTS (SELECT FROM batches WHERE batch_id = @batch AND client_id = @client)")
	// A schedule may be deleted, so its jobs say whose it is.
	listBySchedule = statement("listJobs", "{{owner}}", "schedule_id", "{{value}}", "@schedule::uuid", "{{guard}}",
		"schedule_id IS NOT NULL AND (SELECT client_id FROM jobs WHERE schedule_id = @schedule ORDER BY schedule_id, job_id LIMIT 1) = @client")
)

// Jobs lists a client's jobs, the newest first by their ids, without Params
// and Definition. A page that found fewer jobs than its limit among the first
// 20,000 of its range ends there.
func (s *Store) Jobs(ctx context.Context, client job.ID, q job.Query) (job.Page, error) {
	list := listByClient
	switch {
	case !q.BatchID.IsZero():
		list = listByBatch
	case !q.ScheduleID.IsZero():
		list = listBySchedule
	}
	from, to := idRange(q)
	rows, err := queryRows(ctx, s, func(row pgx.CollectableRow) (l listed[*job.Job], err error) {
		l.item = &job.Job{}
		return l, scanJob(row, l.item, &l.last, &l.wanted)
	}, list, uuid(client), uuid(q.BatchID), uuid(q.ScheduleID), [16]byte(to), [16]byte(from),
		nullable(string(q.State)), nullable(string(q.Type)), nullable(string(q.WorkKind)), nullable(q.CorrelationID),
		q.CreatedAfter, q.CreatedBefore, q.Limit+1)
	jobs, next := onePage(rows, q.Limit, func(j *job.Job) job.ID { return j.ID })
	return job.Page{Jobs: jobs, Next: next}, err
}

// listed is a row of a list.
type listed[T any] struct {
	item   T
	last   bool // no more is looked at
	wanted bool
}

// onePage gives the wanted items of a list, limit of them at most, and the place
// after which the next page begins; the zero place if there is none.
func onePage[T, P any](rows []listed[T], limit int, place func(T) P) (items []T, next P) {
	for _, r := range rows {
		if r.last {
			next = place(r.item)
		}
		if r.wanted {
			items = append(items, r.item)
		}
	}
	if len(items) > limit {
		items = items[:limit]
		next = place(items[limit-1])
	}
	return items, next
}

// idRange gives the ids between which the jobs of q lie: from the first one
// up to, but without, the second.
func idRange(q job.Query) (from, to job.ID) {
	for i := range to {
		to[i] = 0xff
	}
	if !q.After.IsZero() {
		to = q.After
	}
	if q.CreatedBefore != nil {
		if latest := firstIDOf(q.CreatedBefore.Add(idSkew)); bytes.Compare(latest[:], to[:]) < 0 {
			to = latest
		}
	}
	if q.CreatedAfter != nil {
		from = firstIDOf(q.CreatedAfter.Add(-idSkew))
	}
	return from, to
}

// firstIDOf is not above any version 7 UUID of t's millisecond or later, and
// above those of earlier ones.
func firstIDOf(t time.Time) (id job.ID) {
	const most = 1<<48 - 1
	binary.BigEndian.PutUint64(id[:8], uint64(min(max(t.UnixMilli(), 0), most))<<16)
	return id
}
