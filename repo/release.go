package repo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// Release gives claimed jobs that never started back to the queue
// (section 12: ASSIGNED -> QUEUED when the lease expired), each to run again
// after its wait. It answers with the tasks to dispatch; a lease that is no
// longer current is skipped.
func (s *Store) Release(ctx context.Context, leases []job.Lease, waits []time.Duration) ([]job.Task, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	ids, attempts, fences := leaseColumns(leases)
	rows, err := s.pool.Query(ctx, releaseJobs, ids, attempts, fences, waits)
	if err != nil {
		return nil, s.failed("release", err)
	}
	tasks, err := pgx.CollectRows(rows, scanTask)
	if err != nil {
		return nil, s.failed("release", err)
	}
	return tasks, nil
}

// releaseJobs moves ASSIGNED jobs back to QUEUED under their lease. Locks the
// job rows in job_id order, found by primary key.
const releaseJobs = `
WITH input AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::interval[]) AS i(id, attempt, fence, wait)
), ready AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.event_seq, j.event_tx, j.attempt, j.updated_at, j.work_kind, j.definition, i.wait
  FROM jobs j JOIN input i ON j.job_id = i.id
  WHERE j.state = 'ASSIGNED' AND j.attempt = i.attempt AND j.fence = i.fence
  ORDER BY j.job_id FOR NO KEY UPDATE OF j` + stamped + `, changed AS (
  UPDATE jobs SET state = 'QUEUED', worker_id = NULL, assigned_at = NULL, run_at = s.at + s.wait, queued_at = s.at, updated_at = s.at,
    lease_expiries = lease_expiries + 1, dispatch = dispatch + 1, dispatch_epoch = NULL,
    event_seq = s.event_seq + 1, event_tx = s.tx
  FROM stamped s WHERE jobs.job_id = s.job_id
  RETURNING ` + taskColumns + `
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data)
  SELECT job_id, client_id, event_seq + 1, uuid7(at), 'job.lease_expired', 'ASSIGNED', 'QUEUED', attempt, at, tx, event_data(work_kind, definition) FROM stamped
)
SELECT * FROM changed`

// QueueDue moves at most limit jobs whose time has come from CREATED to
// QUEUED, the earliest first, and answers with them: their identity, definition,
// callback and trace, the time that had come and that of the change, not more. A
// time that was missed is due at once (section 10).
func (s *Store) QueueDue(ctx context.Context, limit int) ([]job.Job, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, queueDue, limit)
	if err != nil {
		return nil, s.failed("schedule", err)
	}
	jobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (j job.Job, err error) {
		var definition []byte
		err = row.Scan(scanID(&j.ID), scanID(&j.ClientID), &j.RequestID, &j.CorrelationID, &j.Callback, &j.TraceParent,
			&j.WorkKind, &definition, &j.ExecutionAt, &j.UpdatedAt)
		j.Definition = decodeDefinition(definition)
		return j, err
	})
	if err != nil {
		return nil, s.failed("schedule", err)
	}
	return jobs, nil
}

// queueDue locks due CREATED jobs that nobody else has locked, found by the
// index jobs_scheduled; touches queued_at, which leaves the job in jobs_waiting.
//
// Here and in every search by time it is now(), the statement's begin, and not
// clock_timestamp(): a volatile function cannot end an index scan, and the
// search would read all jobs of the future too.
const queueDue = `
WITH ready AS MATERIALIZED (
  SELECT job_id, client_id, request_id, event_seq, event_tx, attempt, updated_at, work_kind, definition, execution_at,
    correlation_id, callback, traceparent FROM jobs
  WHERE queued_at IS NULL AND finished_at IS NULL AND state = 'CREATED' AND execution_at <= now()
  ORDER BY execution_at, job_id LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED` + stamped + `, changed AS (
  UPDATE jobs SET state = 'QUEUED', queued_at = s.at, updated_at = s.at, event_seq = s.event_seq + 1, event_tx = s.tx
  FROM stamped s WHERE jobs.job_id = s.job_id
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data, called_back)
  SELECT job_id, client_id, event_seq + 1, uuid7(at), 'job.queued', 'CREATED', 'QUEUED', attempt, at, tx, event_data(work_kind, definition),
    callback IS NOT NULL FROM stamped
)
SELECT job_id, client_id, request_id, coalesce(correlation_id, ''), coalesce(callback, ''), coalesce(traceparent, ''),
  work_kind, definition, execution_at, at FROM stamped`

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
