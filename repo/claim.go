package repo

import (
	"context"
	"time"

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

// Claim gives the attempt to the worker, if it waits, is due and the worker
// is alive. Otherwise the claim is nil and NotClaimed tells why.
func (s *Store) Claim(ctx context.Context, worker, id job.ID, attempt int) (*job.Claim, job.NotClaimed, error) {
	a, err := s.claims.do(ctx, claimRequest{worker, id, attempt})
	return a.claim, a.not, err
}

// claimJobs moves waiting, due jobs to ASSIGNED and raises their fence. A job
// that was still CREATED passes through QUEUED, with the event for it.
//
// Locks the job rows; finds them by primary key.
const claimJobs = `
WITH input AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::int[], $3::uuid[]) AS i(id, attempt, worker)
), ready AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.state, j.event_seq, j.event_tx, j.attempt, j.updated_at, j.work_kind, j.definition, i.worker
  FROM jobs j JOIN input i ON j.job_id = i.id
  WHERE j.attempt = i.attempt AND j.state IN ('CREATED', 'QUEUED') AND j.run_at <= clock_timestamp()
    AND EXISTS (SELECT FROM workers w WHERE w.worker_id = i.worker AND w.state = 'ALIVE' AND w.expires_at > clock_timestamp())
  ORDER BY j.job_id FOR NO KEY UPDATE OF j` + stamped + `, changed AS (
  UPDATE jobs SET state = 'ASSIGNED', fence = fence + 1, worker_id = s.worker, assigned_at = s.at, updated_at = s.at,
    queued_at = coalesce(queued_at, s.at), event_tx = s.tx,
    event_seq = s.event_seq + CASE s.state WHEN 'CREATED' THEN 2 ELSE 1 END
  FROM stamped s WHERE jobs.job_id = s.job_id
  RETURNING s.state = 'CREATED' AS was_created, jobs.fence, ` + jobColumns + `
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data)
  SELECT s.job_id, s.client_id, s.event_seq + e.step - CASE s.state WHEN 'CREATED' THEN 0 ELSE 1 END,
    uuid7(s.at), e.name, e.prev, e.next, s.attempt, s.at, s.tx, event_data(s.work_kind, s.definition)
  FROM stamped s JOIN (VALUES (1, 'job.queued', 'CREATED', 'QUEUED'), (2, 'job.assigned', 'QUEUED', 'ASSIGNED')) AS e(step, name, prev, next)
    ON e.step = 2 OR s.state = 'CREATED'
)
SELECT * FROM changed`

// lookAtUnclaimed tells why claims got no row.
const lookAtUnclaimed = `
SELECT j.job_id, j.state IN ('CREATED', 'QUEUED') AND j.attempt = i.attempt, j.dispatch,
  greatest(j.run_at - clock_timestamp(), interval '0'),
  NOT EXISTS (SELECT FROM workers w WHERE w.worker_id = i.worker AND w.state = 'ALIVE' AND w.expires_at > clock_timestamp())
FROM unnest($1::uuid[], $2::int[], $3::uuid[]) AS i(id, attempt, worker) JOIN jobs j ON j.job_id = i.id`

func (s *Store) claimJobs(ctx context.Context, db querier, requests []claimRequest) ([]answer[claimAnswer], error) {
	ids, attempts, workers := claimColumns(requests)
	rows, err := db.Query(ctx, claimJobs, ids, attempts, workers)
	if err != nil {
		return nil, err
	}
	claims, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*job.Claim, error) {
		var c job.Claim
		err := scanJob(row, &c.Job, &c.WasCreated, &c.Fence)
		c.JobID, c.Attempt = c.Job.ID, c.Job.Attempt
		return &c, err
	})
	if err != nil {
		return nil, err
	}
	byID := make(map[job.ID]*job.Claim, len(claims))
	for _, c := range claims {
		byID[c.JobID] = c
	}
	answers := make([]answer[claimAnswer], len(requests))
	var left []claimRequest
	for i, r := range requests {
		answers[i].value.claim = byID[r.job]
		if answers[i].value.claim == nil {
			left = append(left, r)
		}
	}
	if len(left) == 0 {
		return answers, nil
	}
	why, err := s.lookAtUnclaimed(ctx, left)
	if err != nil {
		err = s.failed("claim", err) // the claims above are committed all the same
	}
	for i, r := range requests {
		if answers[i].value.claim == nil {
			not, known := why[r.job]
			not.Unknown = !known
			answers[i] = answer[claimAnswer]{value: claimAnswer{not: not}, err: err}
		}
	}
	return answers, nil
}

func (s *Store) lookAtUnclaimed(ctx context.Context, requests []claimRequest) (map[job.ID]job.NotClaimed, error) {
	ids, attempts, workers := claimColumns(requests)
	rows, err := s.pool.Query(ctx, lookAtUnclaimed, ids, attempts, workers)
	if err != nil {
		return nil, err
	}
	why := make(map[job.ID]job.NotClaimed, len(requests))
	var id job.ID
	var n job.NotClaimed
	_, err = pgx.ForEachRow(rows, []any{scanID(&id), &n.StillWaiting, &n.Dispatch, &n.Wait, &n.WorkerDead}, func() error {
		why[id] = n
		return nil
	})
	return why, err
}

func claimColumns(requests []claimRequest) (ids []pgtype.UUID, attempts []int, workers []pgtype.UUID) {
	return column(requests, func(r claimRequest) pgtype.UUID { return uuid(r.job) }),
		column(requests, func(r claimRequest) int { return r.attempt }),
		column(requests, func(r claimRequest) pgtype.UUID { return uuid(r.worker) })
}

// Start moves a claimed job to RUNNING and returns the moment of it.
// job.ErrStale: the claim is no longer current.
func (s *Store) Start(ctx context.Context, lease job.Lease) (time.Time, error) {
	return s.starts.do(ctx, lease)
}

// startJobs moves ASSIGNED jobs to RUNNING under their lease. Locks the job
// rows, by primary key; touches no indexed column.
const startJobs = `
WITH input AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[]) AS i(id, attempt, fence)
), ready AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.event_seq, j.event_tx, j.attempt, j.updated_at, j.work_kind, j.definition
  FROM jobs j JOIN input i ON j.job_id = i.id
  WHERE j.state = 'ASSIGNED' AND j.attempt = i.attempt AND j.fence = i.fence
  ORDER BY j.job_id FOR NO KEY UPDATE OF j` + stamped + `, changed AS (
  UPDATE jobs SET state = 'RUNNING', started_at = s.at, updated_at = s.at, event_seq = s.event_seq + 1, event_tx = s.tx
  FROM stamped s WHERE jobs.job_id = s.job_id
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data)
  SELECT job_id, client_id, event_seq + 1, uuid7(at), 'job.running', 'ASSIGNED', 'RUNNING', attempt, at, tx, event_data(work_kind, definition) FROM stamped
)
SELECT job_id, at FROM stamped`

func (s *Store) startJobs(ctx context.Context, db querier, leases []job.Lease) ([]answer[time.Time], error) {
	ids, attempts, fences := leaseColumns(leases)
	rows, err := db.Query(ctx, startJobs, ids, attempts, fences)
	if err != nil {
		return nil, err
	}
	started := make(map[job.ID]time.Time, len(leases))
	var id job.ID
	var at time.Time
	if _, err = pgx.ForEachRow(rows, []any{scanID(&id), &at}, func() error { started[id] = at; return nil }); err != nil {
		return nil, err
	}
	answers := make([]answer[time.Time], len(leases))
	for i, l := range leases {
		if at, ok := started[l.JobID]; ok {
			answers[i].value = at
			continue
		}
		answers[i] = s.startedBefore(ctx, l)
	}
	return answers, nil
}

// startedBefore answers a start that changed nothing. Only the holder knows
// the fence, so a job that runs under it was started by the same holder, whose
// first answer was lost.
func (s *Store) startedBefore(ctx context.Context, l job.Lease) answer[time.Time] {
	at, err := queryRows(ctx, s, pgx.RowTo[time.Time], `SELECT started_at FROM jobs
		WHERE job_id = $1 AND attempt = $2 AND fence = $3 AND state = 'RUNNING'`, uuid(l.JobID), l.Attempt, l.Fence)
	switch {
	case err != nil:
		return answer[time.Time]{err: err}
	case len(at) == 0:
		return answer[time.Time]{err: job.ErrStale}
	}
	return answer[time.Time]{value: at[0]}
}

func leaseKey(l job.Lease) string { return string(l.JobID[:]) }

func leaseColumns(leases []job.Lease) (ids []pgtype.UUID, attempts []int, fences []int64) {
	return column(leases, func(l job.Lease) pgtype.UUID { return uuid(l.JobID) }),
		column(leases, func(l job.Lease) int { return l.Attempt }),
		column(leases, func(l job.Lease) int64 { return l.Fence })
}
