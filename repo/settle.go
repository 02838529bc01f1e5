package repo

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// ReadyBatches looks at so many open batches after the given one, in order of
// their ids, and finds those that have no unfinished job. It answers with the
// last one that it looked at, or with zero when there are no more. It locks
// nothing, and takes some microseconds for each.
func (s *Store) ReadyBatches(ctx context.Context, after job.ID, look int) (ready []job.ID, last job.ID, err error) {
	type seen struct {
		id          job.ID
		ready, last bool
	}
	batches, err := queryRows(ctx, s, func(row pgx.CollectableRow) (b seen, err error) {
		return b, row.Scan(scanID(&b.id), &b.ready, &b.last)
	}, readyAfter, [16]byte(after), look)
	for _, b := range batches {
		if b.ready {
			ready = append(ready, b.id)
		}
		if b.last {
			last = b.id
		}
	}
	return ready, last, err
}

// CompleteBatches freezes the outcome of those of the given batches that are open
// and have no unfinished job, and records batch.completed for each. It answers
// with those it settled: their identity, items and outcome, not more. It looks
// before it locks: most of the time no batch is ready.
//
// An outcome is what was true in one moment in which no job was unfinished; a
// job that is retried later changes nothing. Until then its jobs cannot be
// deleted (see notInOpenBatch), so all of them are counted.
func (s *Store) CompleteBatches(ctx context.Context, ids []job.ID) (settled []job.Batch, err error) {
	found, err := queryRows(ctx, s, func(row pgx.CollectableRow) (id job.ID, err error) {
		return id, row.Scan(scanID(&id))
	}, readyGiven, column(ids, uuid))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		ready, err := lockReady(ctx, tx, found)
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

// These find batches by the index batches_open, given ones by that or their
// primary key, and ask the index jobs_batch_open about each: OFFSET 0 keeps this
// from becoming a join with all unfinished jobs.
const (
	isReady = `NOT EXISTS (SELECT FROM jobs WHERE jobs.batch_id = b.batch_id AND jobs.finished_at IS NULL OFFSET 0)`

	// readyAfter tells of the last one in any case, if there may be more.
	readyAfter = `
WITH looked AS MATERIALIZED (
  SELECT batch_id, ` + isReady + ` AS ready, row_number() OVER (ORDER BY batch_id) = $2 AS last FROM (
    SELECT batch_id FROM batches WHERE completed_at IS NULL AND batch_id > $1 ORDER BY batch_id LIMIT $2) AS b
)
SELECT batch_id, ready, last FROM looked WHERE ready OR last ORDER BY batch_id`

	readyGiven = `SELECT batch_id FROM batches b WHERE completed_at IS NULL AND batch_id = ANY ($1::uuid[]) AND ` + isReady

	// lockGiven skips those that somebody else is settling. All is read in this one
	// statement, so that what is counted is what was found finished.
	lockGiven = `
WITH ready AS MATERIALIZED (
  SELECT batch_id, client_id, request_id, correlation_id, items FROM batches b
  WHERE completed_at IS NULL AND batch_id = ANY ($1::uuid[]) AND ` + isReady + `
  ORDER BY batch_id FOR NO KEY UPDATE SKIP LOCKED
)
SELECT batch_id, client_id, request_id, coalesce(correlation_id, ''), items, ended.succeeded, ended.canceled, ended.failed
FROM ready CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE state = 'SUCCEEDED') AS succeeded, count(*) FILTER (WHERE state = 'CANCELED') AS canceled,
    coalesce(jsonb_object_agg(job_id, jsonb_build_object('Reason', failure_reason, 'Code', failure_code, 'Retryable', failure_retryable,
      'Stage', failure_stage, 'Detail', failure_detail)) FILTER (WHERE state = 'FAILED'), '{}') AS failed
  FROM jobs WHERE jobs.batch_id = ready.batch_id
) AS ended`
)

func lockReady(ctx context.Context, tx pgx.Tx, ids []job.ID) ([]job.Batch, error) {
	rows, err := tx.Query(ctx, lockGiven, column(ids, uuid))
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
