package repo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

var (
	claimJobs     = statement("claimJobs")
	claimedBefore = statement("claimedBefore")
	whyUnclaimed  = statement("whyUnclaimed")
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

// Claim gives the attempt to the worker and starts it, if it waits, is due and
// the worker is alive. A claim of this worker's whose answer was lost is
// answered again; whether the worker runs the attempt already, only it knows.
// Otherwise the claim is nil and NotClaimed says why.
func (s *Store) Claim(ctx context.Context, worker, id job.ID, attempt int) (*job.Claim, job.NotClaimed, error) {
	a, err := s.claims.do(ctx, claimRequest{worker, id, attempt})
	return a.claim, a.not, err
}

func (s *Store) claimJobs(ctx context.Context, db querier, requests []claimRequest) ([]answer[claimAnswer], error) {
	ids, attempts, workers := claimColumns(requests)
	claims, err := collectClaims(db.Query(ctx, claimJobs, ids, attempts, workers, eventIDs(3*len(requests))))
	if err != nil {
		return nil, err
	}
	answers := make([]answer[claimAnswer], len(requests))
	var left []claimRequest
	for i, r := range requests {
		answers[i].value.claim = claims[r.job]
		if answers[i].value.claim == nil {
			left = append(left, r)
		}
	}
	if len(left) == 0 {
		return answers, nil
	}
	claims, why, err := s.lookAtUnclaimed(ctx, left)
	if err != nil {
		err = s.failed("claim", err) // the claims above are committed all the same
	}
	for i, r := range requests {
		if answers[i].value.claim == nil {
			not, known := why[r.job]
			not.Unknown = !known
			answers[i] = answer[claimAnswer]{value: claimAnswer{claims[r.job], not}, err: err}
		}
	}
	return answers, nil
}

func collectClaims(rows pgx.Rows, err error) (map[job.ID]*job.Claim, error) {
	if err != nil {
		return nil, err
	}
	collected, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*job.Claim, error) {
		var c job.Claim
		err := scanJob(row, &c.Job, &c.WasCreated, &c.Fence)
		c.JobID, c.Attempt = c.Job.ID, c.Job.Attempt
		return &c, err
	})
	claims := make(map[job.ID]*job.Claim, len(collected))
	for _, c := range collected {
		claims[c.JobID] = c
	}
	return claims, err
}

// lookAtUnclaimed says why claims got no row: which of the jobs run already,
// under the same worker, and what keeps the others.
func (s *Store) lookAtUnclaimed(ctx context.Context, requests []claimRequest) (map[job.ID]*job.Claim, map[job.ID]job.NotClaimed, error) {
	ids, attempts, workers := claimColumns(requests)
	rows, err := s.pool.Query(ctx, whyUnclaimed, ids, attempts, workers)
	why, err := collectByID(rows, err, func(n *job.NotClaimed) []any {
		return []any{&n.StillWaiting, &n.Dispatch, &n.Wait, &n.WorkerDead}
	})
	if err != nil {
		return nil, nil, err
	}
	before, err := collectClaims(s.pool.Query(ctx, claimedBefore, ids, attempts, workers))
	return before, why, err
}

func claimColumns(requests []claimRequest) (ids []pgtype.UUID, attempts []int, workers []pgtype.UUID) {
	return column(requests, func(r claimRequest) pgtype.UUID { return uuid(r.job) }),
		column(requests, func(r claimRequest) int { return r.attempt }),
		column(requests, func(r claimRequest) pgtype.UUID { return uuid(r.worker) })
}

func leaseKey(l job.Lease) string { return string(l.JobID[:]) }

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
const taskColumns = `jobs.job_id, jobs.attempt, jobs.dispatch, jobs.run_at, coalesce(jobs.traceparent, '') AS traceparent`

func scanTask(row pgx.CollectableRow) (t job.Task, err error) {
	return t, row.Scan(scanID(&t.JobID), &t.Attempt, &t.Dispatch, &t.RunAt, &t.TraceParent)
}

func taskArrays(tasks []job.Task) (ids []pgtype.UUID, attempts, dispatches []int) {
	return column(tasks, func(t job.Task) pgtype.UUID { return uuid(t.JobID) }),
		column(tasks, func(t job.Task) int { return t.Attempt }),
		column(tasks, func(t job.Task) int { return t.Dispatch })
}
