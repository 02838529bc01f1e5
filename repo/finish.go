package repo

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// Finish ends an attempt: final state, outcome, events, report and result in
// one statement, and with RetryWait the next attempt as well.
// job.ErrStale: the claim is no longer current and nothing was written.
func (s *Store) Finish(ctx context.Context, f job.Finish) (job.Finished, error) {
	return s.ends.do(ctx, f)
}

// finishJobs moves RUNNING jobs to SUCCEEDED or FAILED under their lease.
// Locks the job rows, by primary key. The events of an attempt's end, in
// order: event.emitted, the final one, job.retries_exhausted, job.retried;
// the report's log ends before job.retried, which belongs to the next attempt.
const finishJobs = `
WITH input AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::text[],
    $5::text[], $6::text[], $7::boolean[], $8::int[], $9::text[], $10::text[],
    $11::interval[], $12::boolean[], $13::jsonb[], $14::text[], $15::bytea[], $16::bytea[], $18::uuid[])
  AS i(id, attempt, fence, next, reason, code, retryable, retry_after, stage, detail,
    retry_wait, exhausted, emit, media_type, sha256, body, event_id)
), ready AS MATERIALIZED (
  SELECT j.job_id, j.client_id, j.batch_id, j.event_seq, j.event_tx, j.attempt AS number, j.started_at, j.updated_at, j.worker_id, j.work_kind, j.traceparent, i.*,
    event_data(j.work_kind, j.definition) AS data, j.callback IS NOT NULL AS called_back,
    CASE WHEN i.emit IS NULL THEN 0 ELSE 1 END AS emitted
  FROM jobs j JOIN input i ON j.job_id = i.id
  WHERE j.state = 'RUNNING' AND j.attempt = i.attempt AND j.fence = i.fence
  ORDER BY j.job_id FOR NO KEY UPDATE OF j` + stamped + `, numbered AS MATERIALIZED (
  SELECT *, event_seq + emitted + 1 + CASE WHEN exhausted THEN 1 ELSE 0 END AS last_seq,
    (extract(epoch FROM at - started_at) * 1000)::bigint AS duration_ms, at + retry_wait AS retry_at
  FROM stamped
), changed AS (
  UPDATE jobs SET updated_at = s.at, worker_id = NULL, event_tx = s.tx,
    event_seq = s.last_seq + CASE WHEN s.retry_at IS NULL THEN 0 ELSE 1 END,
    state = CASE WHEN s.retry_at IS NULL THEN s.next ELSE 'QUEUED' END,
    outcome = CASE WHEN s.retry_at IS NULL THEN CASE s.next WHEN 'SUCCEEDED' THEN 'SUCCESS' ELSE 'FAILED' END END,
    finished_at = CASE WHEN s.retry_at IS NULL THEN s.at END,
    started_at = CASE WHEN s.retry_at IS NULL THEN jobs.started_at END,
    failure_reason = CASE WHEN s.retry_at IS NULL THEN s.reason END,
    failure_code = CASE WHEN s.retry_at IS NULL THEN s.code END,
    failure_retryable = CASE WHEN s.retry_at IS NULL THEN s.retryable END,
    failure_retry_after = CASE WHEN s.retry_at IS NULL THEN s.retry_after END,
    failure_stage = CASE WHEN s.retry_at IS NULL THEN s.stage END,
    failure_detail = CASE WHEN s.retry_at IS NULL THEN s.detail END,
    attempt = CASE WHEN s.retry_at IS NULL THEN s.number ELSE s.number + 1 END,
    run_at = coalesce(s.retry_at, jobs.run_at),
    queued_at = CASE WHEN s.retry_at IS NULL THEN jobs.queued_at ELSE s.at END,
    dispatch = CASE WHEN s.retry_at IS NULL THEN jobs.dispatch ELSE 0 END,
    dispatch_epoch = CASE WHEN s.retry_at IS NULL THEN jobs.dispatch_epoch END
  FROM numbered s WHERE jobs.job_id = s.job_id
), report AS (
  INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq, worker_id,
    failure_reason, failure_code, failure_retryable, failure_retry_after, failure_stage, failure_detail)
  SELECT job_id, number, CASE next WHEN 'SUCCEEDED' THEN 'SUCCESS' ELSE 'FAILED' END, started_at, at, duration_ms, last_seq, worker_id,
    reason, code, retryable, retry_after, stage, detail
  FROM numbered
), result AS (
  INSERT INTO results (job_id, attempt, media_type, size, sha256, expires_at, body)
  SELECT job_id, number, media_type, length(body), sha256, at + $17::interval, body FROM numbered WHERE body IS NOT NULL
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data, called_back)
  SELECT s.job_id, s.client_id, e.seq, coalesce(e.id, uuid7(s.at)), e.name, e.prev, e.next, e.attempt, s.at, s.tx, coalesce(s.data || e.extra, s.data), s.called_back
  FROM numbered s CROSS JOIN LATERAL (VALUES
    (s.emit IS NOT NULL, s.event_seq + 1, 'event.emitted', NULL, NULL, s.number, s.emit, NULL),
    (true, s.event_seq + s.emitted + 1, CASE s.next WHEN 'SUCCEEDED' THEN 'job.succeeded' ELSE 'job.failed' END, 'RUNNING', s.next, s.number,
      CASE WHEN s.code IS NOT NULL THEN jsonb_build_object('code', s.code, 'reason', s.reason) END, s.event_id),
    (s.exhausted, s.last_seq, 'job.retries_exhausted', NULL, NULL, s.number, NULL, NULL),
    (s.retry_at IS NOT NULL, s.last_seq + 1, 'job.retried', 'FAILED', 'QUEUED', s.number + 1, NULL, NULL)
  ) AS e(present, seq, name, prev, next, attempt, extra, id) WHERE e.present
)
SELECT job_id, client_id, batch_id, work_kind, duration_ms, retry_at, coalesce(traceparent, '') FROM numbered`

func (s *Store) finishJobs(ctx context.Context, db querier, ends []job.Finish) ([]answer[job.Finished], error) {
	emits, err := emissions(ends)
	if err != nil {
		return nil, err
	}
	leases := column(ends, func(f job.Finish) job.Lease { return f.Lease })
	ids, attempts, fences := leaseColumns(leases)
	failures := column(ends, func(f job.Finish) job.Failure {
		if f.Failure == nil {
			return job.Failure{}
		}
		return *f.Failure
	})
	type fail = job.Failure
	rows, err := db.Query(ctx, finishJobs, ids, attempts, fences,
		column(ends, func(f job.Finish) string { return string(f.State) }),
		column(failures, func(f fail) *string { return nullable(string(f.Reason)) }),
		column(failures, func(f fail) *string { return nullable(string(f.Code)) }),
		column(failures, func(f fail) pgtype.Bool { return pgtype.Bool{Bool: f.Retryable, Valid: f.Code != ""} }),
		column(failures, func(f fail) *int { return nullable(f.RetryAfter) }),
		column(failures, func(f fail) *string { return nullable(string(f.Stage)) }),
		column(failures, func(f fail) *string { return nullable(f.Detail) }),
		column(ends, func(f job.Finish) *time.Duration { return f.RetryWait }),
		column(ends, func(f job.Finish) bool { return f.Exhausted }),
		emits,
		column(ends, func(f job.Finish) *string {
			if f.Result == nil {
				return nil
			}
			return &f.Result.MediaType
		}),
		column(ends, func(f job.Finish) []byte {
			if f.Result == nil {
				return nil
			}
			return f.Result.SHA256[:]
		}),
		column(ends, func(f job.Finish) []byte {
			if f.Result == nil {
				return nil
			}
			return f.Result.Body
		}),
		s.cfg.ResultTTL, eventIDs(len(ends)))
	if err != nil {
		return nil, err
	}
	return collectFinished(rows, ends)
}

func collectFinished(rows pgx.Rows, ends []job.Finish) ([]answer[job.Finished], error) {
	type row struct {
		client, batch job.ID
		kind          job.Kind
		ms            int64
		retryAt       *time.Time
		traceparent   string
	}
	ended := make(map[job.ID]row, len(ends))
	var id job.ID
	var r row
	_, err := pgx.ForEachRow(rows, []any{scanID(&id), scanID(&r.client), scanID(&r.batch), &r.kind, &r.ms, &r.retryAt, &r.traceparent}, func() error {
		ended[id] = r
		r = row{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	answers := make([]answer[job.Finished], len(ends))
	for i, f := range ends {
		r, ok := ended[f.JobID]
		if !ok {
			answers[i].err = job.ErrStale
			continue
		}
		done := job.Finished{
			Lease: f.Lease, ClientID: r.client, BatchID: r.batch,
			State: f.State, WorkKind: r.kind, Duration: time.Duration(r.ms) * time.Millisecond,
		}
		if r.retryAt != nil {
			done.State = job.Queued
			done.Next = &job.Task{JobID: f.JobID, Attempt: f.Attempt + 1, RunAt: *r.retryAt, TraceParent: r.traceparent}
		}
		answers[i].value = done
	}
	return answers, nil
}

// emissions encodes the data of event.emitted: the client's name and data.
func emissions(ends []job.Finish) ([][]byte, error) {
	out := make([][]byte, len(ends))
	for i, f := range ends {
		if f.Emit == nil {
			continue
		}
		encoded, err := json.Marshal(struct {
			Name string          `json:"name"`
			Data json.RawMessage `json:"data"`
		}{f.Emit.Name, f.Emit.Data})
		if err != nil {
			return nil, err
		}
		out[i] = encoded
	}
	return out, nil
}

func finishBytes(f job.Finish) int {
	if f.Result == nil {
		return 512
	}
	return len(f.Result.Body) + 512
}
