package repo

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

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

// listBy makes the statement of a list that follows an index (owner, job_id)
// backwards. Each row says whether it is wanted; the maxLooked-th row is
// answered even if it is not, to go on from there.
//
// The planner must not be free to gather all jobs of the owner and sort them,
// or to walk the primary key past other clients' jobs, however good that looks
// to it by what it knows of the tables. So the range is a comparison of rows,
// which no other index can search; the session takes bitmaps away.
func listBy(owner, value, guard string) string {
	return fmt.Sprintf(`
WITH looked AS (
  SELECT * FROM jobs WHERE (%[1]s, job_id) < (%[2]s, $3) AND (%[1]s, job_id) >= (%[2]s, $4) AND %[3]s
  ORDER BY %[1]s DESC, job_id DESC LIMIT %[4]d
), judged AS (
  SELECT *, row_number() OVER (ORDER BY %[1]s DESC, job_id DESC) AS place,
    client_id = $1 AND ($2::uuid IS NULL OR batch_id = $2) AND ($5::text IS NULL OR state = $5) AND ($6::text IS NULL OR type = $6)
      AND ($7::text IS NULL OR work_kind = $7) AND ($8::timestamptz IS NULL OR created_at >= $8)
      AND ($9::timestamptz IS NULL OR created_at < $9) AS wanted FROM looked
)
SELECT place = %[4]d, wanted, %[5]s FROM judged AS jobs WHERE wanted OR place = %[4]d
ORDER BY %[1]s DESC, job_id DESC LIMIT $10`, owner, value, guard, maxLooked, listColumns)
}

var (
	listByClient = listBy("client_id", "$1::uuid", "true")
	// A batch of somebody else costs the same as one that never was: its jobs
	// are not looked at.
	listByBatch = listBy("batch_id", "$2::uuid", "batch_id IS NOT NULL AND EXISTS (SELECT FROM batches WHERE batch_id = $2 AND client_id = $1)")
)

// Jobs lists a client's jobs, the newest first by their ids, without Params
// and Definition. A page that found fewer jobs than its limit among the first
// 20,000 of its range ends there.
func (s *Store) Jobs(ctx context.Context, client job.ID, q job.Query) (job.Page, error) {
	statement := listByClient
	if !q.BatchID.IsZero() {
		statement = listByBatch
	}
	from, to := idRange(q)
	rows, err := queryRows(ctx, s, scanListed, statement, uuid(client), uuid(q.BatchID), pgtype.UUID{Bytes: to, Valid: true}, pgtype.UUID{Bytes: from, Valid: true},
		nullable(string(q.State)), nullable(string(q.Type)), nullable(string(q.WorkKind)), q.CreatedAfter, q.CreatedBefore, q.Limit+1)
	if err != nil {
		return job.Page{}, err
	}
	var page job.Page
	for _, r := range rows {
		if r.last {
			page.Next = r.job.ID
		}
		if r.wanted {
			page.Jobs = append(page.Jobs, r.job)
		}
	}
	if len(page.Jobs) > q.Limit {
		page.Jobs = page.Jobs[:q.Limit]
		page.Next = page.Jobs[q.Limit-1].ID
	}
	return page, nil
}

// listed is a row of a list.
type listed struct {
	job    *job.Job
	last   bool // no more is looked at
	wanted bool
}

func scanListed(row pgx.CollectableRow) (listed, error) {
	l := listed{job: &job.Job{}}
	err := scanJob(row, l.job, &l.last, &l.wanted)
	return l, err
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
