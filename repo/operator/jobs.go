package operator

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/repo/jobs"
	"github.com/forgerun/forgerun/repo/pg"
)

const (
	// maxCounted limits the jobs that Count reads. Reading 200,000 jobs takes about a third of a second.
	maxCounted = 200_000

	// MaxCount is the largest number that Count returns.
	MaxCount = 100_000

	// searchFor limits the time for filling a page. After this time, the page is returned although it is not full.
	searchFor = 250 * time.Millisecond

	maxShownEvents     = 1000
	maxShownDeliveries = 100
)

// jobRange describes the part of an index that a list of jobs reads.
type jobRange struct {
	list, count string
	start       admin.Place
	byID        bool // sorted by id, newest first, so a time range becomes a range of ids
}

var (
	farPast   = time.Date(1, time.January, 1, 0, 0, 0, 0, time.UTC)
	farFuture = time.Date(9999, time.January, 1, 0, 0, 0, 0, time.UTC)
	newest    = admin.Place{At: farFuture, ID: pg.LastID}
	soonest   = admin.Place{At: farPast}

	anyJobs       = jobRange{statement("anyJobs"), statement("anyJobsCount"), newest, true}
	clientJobs    = jobRange{statement("clientJobs"), statement("clientJobsCount"), newest, true}
	batchJobs     = jobRange{statement("batchJobs"), statement("batchJobsCount"), newest, true}
	runsJobs      = jobRange{statement("scheduleJobs"), statement("scheduleJobsCount"), newest, true}
	endedJobs     = jobRange{statement("endedJobs"), statement("endedJobsCount"), newest, false}
	queuedJobs    = jobRange{statement("queuedJobs"), statement("queuedJobsCount"), soonest, false}
	scheduledJobs = jobRange{statement("scheduledJobs"), statement("scheduledJobsCount"), soonest, false}
	heldJobs      = jobRange{statement("heldJobs"), statement("heldJobsCount"), newest, true}
)

// rangeOf returns the part of an index that a query reads. A filter by batch, schedule or client takes precedence over a filter by state.
func rangeOf(q admin.JobQuery) jobRange {
	switch {
	case !q.BatchID.IsZero():
		return batchJobs
	case !q.ScheduleID.IsZero():
		return runsJobs
	case !q.ClientID.IsZero():
		return clientJobs
	case q.State.Final() || q.State == "" && q.FailureCode != "":
		return endedJobs
	case q.State == job.Created:
		return scheduledJobs
	case q.State == job.Queued:
		return queuedJobs
	case q.State != "":
		return heldJobs
	}
	return anyJobs
}

var likePattern = strings.NewReplacer(`\`, `\\`, `_`, `\_`, `%`, `\%`, `*`, `%`)

func (r jobRange) arguments(q admin.JobQuery) []any {
	after := q.After
	if after.IsZero() {
		after = r.start
	}
	from, to := pg.IDRange(job.Query{CreatedAfter: q.From, CreatedBefore: q.To})
	if r.byID && bytes.Compare(to[:], after.ID[:]) < 0 {
		after.ID = to
	}
	return []any{
		pg.UUID(q.ClientID), pg.UUID(q.BatchID), pg.UUID(q.ScheduleID), pg.Nullable(string(q.State)), pg.Nullable(string(q.Type)),
		pg.Nullable(string(q.WorkKind)), pg.Nullable(likePattern.Replace(q.CorrelationID)), pg.Nullable(string(q.FailureCode)),
		q.From, q.To, after.At, [16]byte(after.ID), [16]byte(from),
	}
}

// Jobs lists jobs in the order of the index that rangeOf chooses.
func (a Admin) Jobs(ctx context.Context, q admin.JobQuery) (page admin.JobPage, err error) {
	r := rangeOf(q)
	page.Jobs, page.Next, err = pageThrough(ctx, a.store, q.Limit, q.After, scanPlaced, func(after admin.Place, limit int) (string, []any) {
		q.After = after
		return r.list, append(r.arguments(q), limit+1)
	})
	return page, err
}

func scanPlaced(row pgx.CollectableRow) (l pg.Listed[admin.JobSummary, admin.Place], err error) {
	var stored struct {
		admin.JobSummary
		Retryable *bool `json:"failure_retryable"`
	}
	err = row.Scan(&l.Last, &l.Wanted, &l.Place.At, &stored)
	l.Item, l.Place.ID = stored.JobSummary, stored.JobID
	l.Item.CanRetry = canRetry(l.Item.State, l.Item.Attempt, l.Item.MaxAttempts, pg.Deref(stored.Retryable))
	return l, err
}

// Count counts matching jobs up to MaxCount. It reads at most maxCounted rows.
func (a Admin) Count(ctx context.Context, q admin.JobQuery) (admin.Count, error) {
	r := rangeOf(q)
	return pg.QueryOne(ctx, a.store.db, nil, pg.ScanJSON[admin.Count], r.count, append(r.arguments(q), MaxCount)...)
}

func canRetry(state job.State, attempt, most int, retryable bool) bool {
	return (&job.Job{State: state, Attempt: attempt, MaxAttempts: most, Failure: &job.Failure{Retryable: retryable}}).CanRetry()
}

// Job reads a job. Waiting.Detail has the general text of the reason. The caller may replace it by a more precise text.
func (a Admin) Job(ctx context.Context, id job.ID) (*admin.Job, error) {
	type stored struct {
		admin.Job
		AsOf    job.Time `json:"as_of"`
		Workers int      `json:"workers"`
	}
	j, err := pg.QueryOne(ctx, a.store.db, jobs.ErrNotFound, pg.ScanJSON[stored], statement("adminJob"),
		pg.UUID(id), maxShownEvents, maxShownDeliveries+1)
	if err != nil {
		return nil, err
	}
	j.CanRetry = canRetry(j.State, j.Attempt, j.MaxAttempts, j.Failure != nil && j.Failure.Retryable)
	if j.MoreDeliveries = len(j.Deliveries) > maxShownDeliveries; j.MoreDeliveries {
		j.Deliveries = j.Deliveries[:maxShownDeliveries]
	}
	waits := &job.Job{State: j.State, RunAt: time.Time(j.RunAt)}
	if reason := waits.WaitingFor(time.Time(j.AsOf), j.Workers); reason != "" {
		j.Waiting = &admin.Waiting{Reason: reason, Detail: reason.Text()}
		if reason == job.WaitingScheduled || reason == job.WaitingBackoff {
			j.Waiting.Until = &j.RunAt
		}
	}
	return &j.Job, nil
}

// OwnerOf finds the owner of a job.
func (a Admin) OwnerOf(ctx context.Context, id job.ID) (job.ID, error) {
	return pg.QueryOne(ctx, a.store.db, jobs.ErrNotFound, pg.RowToID, statement("adminOwner"), pg.UUID(id))
}
