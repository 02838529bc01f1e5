package repo

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// SettleBatches freezes the outcome of at most limit open batches that have no
// unfinished job, and records batch.completed for each. It looks at the given
// batches, or with nil at all open ones, the oldest first, which takes about a
// microsecond for each; and answers with those it settled: their identity,
// items and outcome, not more.
//
// An outcome is what was true in one moment in which no job was unfinished; a
// job that is retried later changes nothing. A job that was deleted before
// that moment is in none of the counts.
func (s *Store) SettleBatches(ctx context.Context, ids []job.ID, limit int) (settled []job.Batch, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		ready, err := readyBatches(ctx, tx, ids, limit)
		if err == nil && len(ready) > 0 {
			settled, err = writeOutcomes(ctx, tx, ready)
		}
		return err
	})
	if err != nil {
		return nil, s.failed("settle", err)
	}
	return settled, nil
}

// settleAny finds batches by the index batches_open, settleGiven by that or
// their primary key. They ask the index jobs_batch_open about each (OFFSET 0
// keeps this from becoming a join with all unfinished jobs), lock those that
// are ready, and skip those that somebody else is settling. All is read in this
// one statement, so that what is counted is what was found finished.
const (
	settleAny   = settleHead + settleTail
	settleGiven = settleHead + ` AND batch_id = ANY ($2::uuid[])` + settleTail

	settleHead = `
WITH ready AS MATERIALIZED (
  SELECT batch_id, client_id, request_id, correlation_id, items FROM batches b
  WHERE completed_at IS NULL AND NOT EXISTS (SELECT FROM jobs WHERE jobs.batch_id = b.batch_id AND jobs.finished_at IS NULL OFFSET 0)`

	settleTail = `
  ORDER BY batch_id LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
)
SELECT batch_id, client_id, request_id, coalesce(correlation_id, ''), items, ended.succeeded, ended.canceled, ended.failed
FROM ready CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE state = 'SUCCEEDED') AS succeeded, count(*) FILTER (WHERE state = 'CANCELED') AS canceled,
    coalesce(jsonb_object_agg(job_id, jsonb_build_object('Reason', failure_reason, 'Code', failure_code, 'Retryable', failure_retryable,
      'Stage', failure_stage, 'Detail', failure_detail)) FILTER (WHERE state = 'FAILED'), '{}') AS failed
  FROM jobs WHERE jobs.batch_id = ready.batch_id
) AS ended`
)

func readyBatches(ctx context.Context, tx pgx.Tx, ids []job.ID, limit int) ([]job.Batch, error) {
	statement, args := settleAny, []any{limit}
	if ids != nil {
		statement, args = settleGiven, append(args, column(ids, uuid))
	}
	rows, err := tx.Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (b job.Batch, err error) {
		var succeeded, canceled int
		var failed map[job.ID]*job.Failure
		err = row.Scan(scanID(&b.ID), scanID(&b.ClientID), &b.RequestID, &b.CorrelationID, &b.Items, &succeeded, &canceled, &failed)
		b.Outcome = batchOutcome(b.Items, succeeded, canceled, failed)
		return b, err
	})
}

// batchOutcome puts together how a batch ended; failed holds the failures of
// its failed jobs.
func batchOutcome(items []job.BatchItem, succeeded, canceled int, failed map[job.ID]*job.Failure) *job.BatchOutcome {
	o := job.BatchOutcome{Succeeded: succeeded, Canceled: canceled, Failures: []job.ItemFailure{}}
	for _, item := range items {
		f := failed[item.JobID]
		if f == nil && item.Refusal == nil {
			continue
		}
		o.Failed++
		if len(o.Failures) < job.MaxFailedItems {
			o.Failures = append(o.Failures, itemFailure(item, f))
		}
	}
	o.Status = job.BatchStatus(o.Succeeded, o.Failed, o.Canceled)
	return &o
}

func itemFailure(item job.BatchItem, f *job.Failure) job.ItemFailure {
	if item.Refusal != nil {
		return job.ItemFailure{ItemID: item.ItemID, Status: job.StatusFailed, Detail: item.Refusal.Detail, Stage: job.StageValidation}
	}
	return job.ItemFailure{
		ItemID: item.ItemID, JobID: item.JobID, Status: job.StatusOf(job.Failed, f),
		Reason: f.Reason, Detail: f.Detail, Retryable: f.Retryable, Stage: f.Stage,
	}
}

// settleBatches writes outcomes and their events. Finds the batches, which the
// transaction has locked already, by primary key: the guard names status, and not
// completed_at, because all open batches are searched with that one.
const settleBatches = `
WITH input AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::int[], $4::int[], $5::int[], $6::jsonb[], $7::int[])
  AS i(id, status, succeeded, failed, canceled, failures, total)
), settled AS (
  UPDATE batches SET status = i.status, completed_at = clock_timestamp(),
    succeeded = i.succeeded, failed = i.failed, canceled = i.canceled, failures = i.failures
  FROM input i WHERE batches.batch_id = i.id AND batches.status IS NULL
  RETURNING batches.batch_id, client_id, completed_at, batches.status, batches.succeeded, batches.failed, batches.canceled, i.total
), told AS (
  INSERT INTO client_events (event_id, client_id, event_name, occurred_at, batch_id, data)
  SELECT uuid7(completed_at), client_id, '` + job.EventBatchCompleted + `', completed_at, batch_id,
    jsonb_build_object('status', status, 'total', total, 'succeeded', succeeded, 'failed', failed, 'canceled', canceled)
  FROM settled
)
SELECT batch_id, completed_at FROM settled`

// writeOutcomes gives those of the batches that it settled, with the time of it.
func writeOutcomes(ctx context.Context, tx pgx.Tx, ready []job.Batch) ([]job.Batch, error) {
	failures := make([][]byte, len(ready))
	for i, b := range ready {
		encoded, err := json.Marshal(b.Outcome.Failures)
		if err != nil {
			return nil, err
		}
		failures[i] = encoded
	}
	type batch = job.Batch
	rows, err := tx.Query(ctx, settleBatches,
		column(ready, func(b batch) pgtype.UUID { return uuid(b.ID) }),
		column(ready, func(b batch) string { return string(b.Outcome.Status) }),
		column(ready, func(b batch) int { return b.Outcome.Succeeded }),
		column(ready, func(b batch) int { return b.Outcome.Failed }),
		column(ready, func(b batch) int { return b.Outcome.Canceled }),
		failures,
		column(ready, func(b batch) int { return len(b.Items) }))
	if err != nil {
		return nil, err
	}
	completed := make(map[job.ID]time.Time, len(ready))
	var id job.ID
	var at time.Time
	if _, err = pgx.ForEachRow(rows, []any{scanID(&id), &at}, func() error { completed[id] = at; return nil }); err != nil {
		return nil, err
	}
	var settled []batch
	for _, b := range ready {
		if at, ok := completed[b.ID]; ok {
			b.Outcome.CompletedAt = at
			settled = append(settled, b)
		}
	}
	return settled, nil
}
