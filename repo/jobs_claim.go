package repo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

var (
	lockClaims    = statement("lockClaims")
	claimedBefore = statement("claimedBefore")
	releaseJobs   = statement("releaseJobs")
)

type claimRequest struct {
	worker, job job.ID
	attempt     int
}

type claimAnswer struct {
	claim *job.Claim
	not   job.NotClaimed
}

// Claim gives the attempt to the worker, if it waits, is due and the worker is
// alive. A claim of this worker's whose answer was lost is answered again;
// whether the worker runs the attempt already, only it knows. Otherwise the claim
// is nil and NotClaimed says why.
func (s *Store) Claim(ctx context.Context, worker, id job.ID, attempt int) (*job.Claim, job.NotClaimed, error) {
	done, err := s.step(ctx, step{claim: &claimRequest{worker, id, attempt}})
	return done.claimed.claim, done.claimed.not, err
}

// Start moves a claimed job to RUNNING, while its worker is alive, and gives the
// moment of it. A start whose answer was lost is answered again. job.ErrStale:
// the claim is no longer current and nothing was written.
func (s *Store) Start(ctx context.Context, lease job.Lease) (time.Time, error) {
	done, err := s.step(ctx, step{start: &lease})
	return done.started, err
}

func claimColumns(requests []claimRequest) []any {
	return []any{
		column(requests, func(r claimRequest) pgtype.UUID { return uuid(r.job) }),
		column(requests, func(r claimRequest) int { return r.attempt }),
		column(requests, func(r claimRequest) pgtype.UUID { return uuid(r.worker) }),
	}
}

func collectClaims(rows pgx.Rows) (map[job.ID]*job.Claim, error) {
	collected, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*job.Claim, error) {
		var c job.Claim
		err := scanJob(row, &c.Job, &c.WasCreated, &c.Fence, &c.QueuedAt)
		c.JobID, c.Attempt = c.Job.ID, c.Job.Attempt
		return &c, err
	})
	claims := make(map[job.ID]*job.Claim, len(collected))
	for _, c := range collected {
		claims[c.JobID] = c
	}
	return claims, err
}

func leaseColumns(leases []job.Lease) (ids []pgtype.UUID, attempts []int, fences []int64) {
	return column(leases, func(l job.Lease) pgtype.UUID { return uuid(l.JobID) }),
		column(leases, func(l job.Lease) int { return l.Attempt }),
		column(leases, func(l job.Lease) int64 { return l.Fence })
}

// Release gives claimed jobs that never started back to the queue
// (section 12: ASSIGNED -> QUEUED when the lease expired), each to run again
// after its wait. It answers with the tasks to dispatch; a lease that is no
// longer current is skipped.
func (s *Store) Release(ctx context.Context, leases []job.Lease, waits []time.Duration) ([]job.Task, error) {
	ids, attempts, fences := leaseColumns(leases)
	return queryRowsAs(ctx, s, "release", scanTask, releaseJobs, ids, attempts, fences, waits)
}

// taskColumns is the one column list of a task, read by scanTask.
// Why the attempt before failed is in its report; for a first attempt none is looked for.
const taskColumns = `jobs.job_id, jobs.attempt, jobs.dispatch, jobs.run_at, coalesce(jobs.traceparent, '') AS traceparent, jobs.client_id,
  jobs.work_kind, CASE WHEN jobs.attempt > 1 THEN coalesce((SELECT failure_reason FROM reports
    WHERE reports.job_id = jobs.job_id AND reports.attempt = jobs.attempt - 1), '') ELSE '' END AS reason`

func scanTask(row pgx.CollectableRow) (t job.Task, err error) {
	return t, row.Scan(scanID(&t.JobID), &t.Attempt, &t.Dispatch, &t.RunAt, &t.TraceParent, scanID(&t.ClientID), &t.WorkKind, &t.Reason)
}

func collectTasks(rows pgx.Rows) ([]job.Task, error) { return pgx.CollectRows(rows, scanTask) }

func taskArrays(tasks []job.Task) (ids []pgtype.UUID, attempts, dispatches []int) {
	return column(tasks, func(t job.Task) pgtype.UUID { return uuid(t.JobID) }),
		column(tasks, func(t job.Task) int { return t.Attempt }),
		column(tasks, func(t job.Task) int { return t.Dispatch })
}
