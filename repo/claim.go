package repo

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// Every transition below has the same shape:
//
//	input    the batch, as arrays
//	ready    the rows that pass the guard, locked in job_id order
//	stamped  the same with the time of the event, taken after the lock and
//	         never before the row's last change, so that an event log does
//	         not run backwards; and with the label of the event, the later
//	         of this transaction and the label of the job's event before
//	changed  the guarded UPDATE
//	log      the events, numbered on from event_seq
//
// An item whose row is not in ready is an answer, not an error: the caller
// came too late, too early, or asked for what is not its own.
const stamped = `
), stamped AS MATERIALIZED (
  SELECT *, greatest(clock_timestamp(), updated_at) AS at, greatest(pg_current_xact_id(), event_tx) AS tx FROM ready
)`

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
// Otherwise the claim is nil and NotClaimed tells why.
func (s *Store) Claim(ctx context.Context, worker, id job.ID, attempt int) (*job.Claim, job.NotClaimed, error) {
	a, err := s.claims.do(ctx, claimRequest{worker, id, attempt})
	return a.claim, a.not, err
}

// claimJobs moves waiting, due jobs through ASSIGNED to RUNNING, as one new
// version of the row, and raises their fence. A job that was still CREATED
// passes through QUEUED as well. Each step has its event.
//
// Locks the job rows; finds them by primary key.
const claimJobs = `
WITH input AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::int[], $3::uuid[]) WITH ORDINALITY AS i(id, attempt, worker, n)
), ready AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.state, j.event_seq - CASE j.state WHEN 'CREATED' THEN 0 ELSE 1 END AS before, j.event_tx, j.attempt, j.updated_at,
    event_data(j.work_kind, j.definition) AS data, j.callback IS NOT NULL AS called_back, i.worker, i.n
  FROM jobs j JOIN input i ON j.job_id = i.id
  WHERE j.attempt = i.attempt AND j.state IN ('CREATED', 'QUEUED') AND j.run_at <= clock_timestamp()
    AND EXISTS (SELECT FROM workers w WHERE w.worker_id = i.worker AND w.state = 'ALIVE' AND w.expires_at > clock_timestamp())
  ORDER BY j.job_id FOR NO KEY UPDATE OF j` + stamped + `, changed AS (
  UPDATE jobs SET state = 'RUNNING', fence = fence + 1, worker_id = s.worker, assigned_at = s.at, started_at = s.at, updated_at = s.at,
    queued_at = coalesce(queued_at, s.at), event_tx = s.tx, event_seq = s.before + 3
  FROM stamped s WHERE jobs.job_id = s.job_id
  RETURNING s.state = 'CREATED' AS was_created, jobs.fence, ` + jobColumns + `
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data, called_back)
  SELECT s.job_id, s.client_id, s.before + e.step, ($4::uuid[])[3 * s.n - 3 + e.step], e.name, e.prev, e.next, s.attempt, s.at, s.tx, s.data, s.called_back
  FROM stamped s JOIN (VALUES (1, 'job.queued', 'CREATED', 'QUEUED'), (2, 'job.assigned', 'QUEUED', 'ASSIGNED'),
    (3, 'job.running', 'ASSIGNED', 'RUNNING')) AS e(step, name, prev, next) ON e.step > 1 OR s.state = 'CREATED'
)
SELECT * FROM changed`

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
	claims := map[job.ID]*job.Claim{}
	collected, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*job.Claim, error) {
		var c job.Claim
		err := scanJob(row, &c.Job, &c.WasCreated, &c.Fence)
		c.JobID, c.Attempt = c.Job.ID, c.Job.Attempt
		return &c, err
	})
	for _, c := range collected {
		claims[c.JobID] = c
	}
	return claims, err
}

// Two statements tell why claims got no row: which of the jobs run already,
// under the same worker, and what keeps the others.
const (
	// claimedBefore finds the jobs by primary key: compared so, the worker is of no
	// use to the index jobs_held.
	claimedBefore = `
SELECT false, jobs.fence, ` + jobColumns + `
FROM unnest($1::uuid[], $2::int[], $3::uuid[]) AS i(id, attempt, worker) JOIN jobs ON jobs.job_id = i.id
WHERE jobs.state = 'RUNNING' AND jobs.attempt = i.attempt AND jobs.worker_id IS NOT DISTINCT FROM i.worker`

	lookAtUnclaimed = `
SELECT j.job_id, j.state IN ('CREATED', 'QUEUED') AND j.attempt = i.attempt, j.dispatch,
  greatest(j.run_at - clock_timestamp(), interval '0'),
  NOT EXISTS (SELECT FROM workers w WHERE w.worker_id = i.worker AND w.state = 'ALIVE' AND w.expires_at > clock_timestamp())
FROM unnest($1::uuid[], $2::int[], $3::uuid[]) AS i(id, attempt, worker) JOIN jobs j ON j.job_id = i.id`
)

func (s *Store) lookAtUnclaimed(ctx context.Context, requests []claimRequest) (map[job.ID]*job.Claim, map[job.ID]job.NotClaimed, error) {
	ids, attempts, workers := claimColumns(requests)
	rows, err := s.pool.Query(ctx, lookAtUnclaimed, ids, attempts, workers)
	if err != nil {
		return nil, nil, err
	}
	why := make(map[job.ID]job.NotClaimed, len(requests))
	var id job.ID
	var n job.NotClaimed
	_, err = pgx.ForEachRow(rows, []any{scanID(&id), &n.StillWaiting, &n.Dispatch, &n.Wait, &n.WorkerDead}, func() error {
		why[id] = n
		return nil
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
