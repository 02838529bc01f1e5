package repo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// errNotFound is the same for a job that never existed and for another
// client's.
var errNotFound = job.Errorf(job.CodeJobNotFound, "No job with this id was found.")

type cancelRequest struct{ client, id job.ID }

type canceled struct {
	job.Change
	before *job.Job
}

// Cancel ends a job that is not final yet, and tells what it was before: its
// identity, batch, state, start, definition, callback and trace, not more. A final job is
// left as it is (section 14), and before is nil.
func (s *Store) Cancel(ctx context.Context, client, id job.ID) (change job.Change, before *job.Job, err error) {
	c, err := s.cancels.do(ctx, cancelRequest{client, id})
	return c.Change, c.before, err
}

// cancelJobs moves jobs that are not final to CANCELED, if they belong to the
// client. Locks the job rows, by primary key. A worker that holds the job
// finds its later writes refused by the state.
const cancelJobs = `
WITH input AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::uuid[]) AS i(id, client)
), ready AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.batch_id, j.state, j.event_seq, j.event_tx, j.attempt, j.run_at, j.started_at, j.updated_at,
    j.worker_id, j.work_kind, j.definition, j.request_id, coalesce(j.correlation_id, '') AS correlation_id,
    coalesce(j.callback, '') AS callback, coalesce(j.traceparent, '') AS traceparent
  FROM jobs j JOIN input i ON j.job_id = i.id
  WHERE j.client_id = i.client AND j.state IN ('CREATED', 'QUEUED', 'ASSIGNED', 'RUNNING')
  ORDER BY j.job_id FOR NO KEY UPDATE OF j` + stamped + `, changed AS (
  UPDATE jobs SET state = 'CANCELED', outcome = 'CANCELED', finished_at = s.at, updated_at = s.at, worker_id = NULL,
    event_seq = s.event_seq + 1, event_tx = s.tx
  FROM stamped s WHERE jobs.job_id = s.job_id
), report AS (
  INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq, worker_id)
  SELECT job_id, attempt, 'CANCELED', started_at, at, coalesce((extract(epoch FROM at - started_at) * 1000)::bigint, 0), event_seq + 1, worker_id
  FROM stamped
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data)
  SELECT job_id, client_id, event_seq + 1, uuid7(at), 'job.canceled', state, 'CANCELED', attempt, at, tx, event_data(work_kind, definition) FROM stamped
)
SELECT job_id, attempt, at, run_at, state, work_kind, definition, request_id, batch_id, correlation_id, callback, traceparent, started_at FROM stamped`

func (s *Store) cancelJobs(ctx context.Context, db querier, requests []cancelRequest) ([]answer[canceled], error) {
	rows, err := db.Query(ctx, cancelJobs,
		column(requests, func(r cancelRequest) pgtype.UUID { return uuid(r.id) }),
		column(requests, func(r cancelRequest) pgtype.UUID { return uuid(r.client) }))
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (canceled, error) {
		c := canceled{Change: job.Change{State: job.Canceled, Changed: true}, before: &job.Job{}}
		var definition []byte
		err := row.Scan(scanID(&c.JobID), &c.Attempt, &c.UpdatedAt, &c.RunAt, &c.before.State, &c.before.WorkKind, &definition,
			&c.before.RequestID, scanID(&c.before.BatchID), &c.before.CorrelationID, &c.before.Callback, &c.before.TraceParent, &c.before.StartedAt)
		c.before.ID, c.before.Definition = c.JobID, decodeDefinition(definition)
		return c, err
	})
	if err != nil {
		return nil, err
	}
	done := make(map[job.ID]canceled, len(requests))
	for _, c := range all {
		done[c.JobID] = c
	}
	answers := make([]answer[canceled], len(requests))
	for i, r := range requests {
		if c, ok := done[r.id]; ok {
			c.before.ClientID = r.client
			answers[i].value = c
			continue
		}
		answers[i].value.Change, answers[i].err = s.look(ctx, r.client, r.id)
	}
	return answers, nil
}

type retryRequest struct {
	client, id  job.ID
	attempt     int
	wait        time.Duration
	traceparent string
}

// Retry queues the attempt after the given failed one, to run after wait. If
// the job is not FAILED at that attempt any more, it is left as it is. The new
// attempt goes on from the given traceparent, or with "" from the one before.
func (s *Store) Retry(ctx context.Context, client, id job.ID, attempt int, wait time.Duration, traceparent string) (job.Change, error) {
	return s.retries.do(ctx, retryRequest{client, id, attempt, wait, traceparent})
}

// retryJobs moves FAILED jobs with attempts left back to QUEUED. Locks the job
// rows, by primary key. The failed attempt stays in its report.
const retryJobs = `
WITH input AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::interval[], $5::text[]) AS i(id, client, attempt, wait, traceparent)
), ready AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.event_seq, j.event_tx, j.attempt + 1 AS number, j.updated_at, j.work_kind, j.definition, i.wait, i.traceparent
  FROM jobs j JOIN input i ON j.job_id = i.id
  WHERE j.client_id = i.client AND j.state = 'FAILED' AND j.attempt = i.attempt AND j.attempt < j.max_attempts
  ORDER BY j.job_id FOR NO KEY UPDATE OF j` + stamped + `, changed AS (
  UPDATE jobs SET state = 'QUEUED', attempt = s.number, outcome = NULL, finished_at = NULL, started_at = NULL,
    failure_reason = NULL, failure_code = NULL, failure_retryable = NULL, failure_retry_after = NULL,
    failure_stage = NULL, failure_detail = NULL,
    run_at = s.at + s.wait, queued_at = s.at, updated_at = s.at, dispatch = 0, dispatch_epoch = NULL, traceparent = coalesce(s.traceparent, jobs.traceparent),
    event_seq = s.event_seq + 1, event_tx = s.tx
  FROM stamped s WHERE jobs.job_id = s.job_id
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data)
  SELECT job_id, client_id, event_seq + 1, uuid7(at), 'job.retried', 'FAILED', 'QUEUED', number, at, tx, event_data(work_kind, definition) FROM stamped
)
SELECT job_id, number, at, at + wait FROM stamped`

func (s *Store) retryJobs(ctx context.Context, db querier, requests []retryRequest) ([]answer[job.Change], error) {
	rows, err := db.Query(ctx, retryJobs,
		column(requests, func(r retryRequest) pgtype.UUID { return uuid(r.id) }),
		column(requests, func(r retryRequest) pgtype.UUID { return uuid(r.client) }),
		column(requests, func(r retryRequest) int { return r.attempt }),
		column(requests, func(r retryRequest) time.Duration { return r.wait }),
		column(requests, func(r retryRequest) *string { return nullable(r.traceparent) }))
	if err != nil {
		return nil, err
	}
	done := make(map[job.ID]job.Change, len(requests))
	c := job.Change{State: job.Queued, Changed: true}
	_, err = pgx.ForEachRow(rows, []any{scanID(&c.JobID), &c.Attempt, &c.UpdatedAt, &c.RunAt}, func() error {
		done[c.JobID] = c
		return nil
	})
	if err != nil {
		return nil, err
	}
	answers := make([]answer[job.Change], len(requests))
	for i, r := range requests {
		if c, ok := done[r.id]; ok {
			answers[i].value = c
			continue
		}
		answers[i].value, answers[i].err = s.look(ctx, r.client, r.id)
	}
	return answers, nil
}

// look gives an unchanged job's state.
func (s *Store) look(ctx context.Context, client, id job.ID) (job.Change, error) {
	found, err := queryRows(ctx, s, func(row pgx.CollectableRow) (c job.Change, err error) {
		return c, row.Scan(scanID(&c.JobID), &c.State, &c.Attempt, &c.UpdatedAt, &c.RunAt)
	}, `SELECT job_id, state, attempt, updated_at, run_at FROM jobs WHERE job_id = $1 AND client_id = $2`, uuid(id), uuid(client))
	if err != nil {
		return job.Change{}, err
	}
	if len(found) == 0 {
		return job.Change{}, s.missing(ctx, client, id)
	}
	return found[0], nil
}
