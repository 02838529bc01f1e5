package repo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

var (
	endedBatches    = statement("endedBatches")
	readyAfter      = statement("readyAfter")
	readyGiven      = statement("readyGiven")
	lockGiven       = statement("lockGiven")
	completeBatches = statement("completeBatches")
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
// with those it completed: their identity, items and outcome, not more. It reads
// before it locks: most of the time no batch is ready.
//
// An outcome is what was true in one moment in which no job was unfinished; a
// job that is retried later changes nothing. Until then its jobs cannot be
// deleted (see notInOpenBatch), so all of them are counted.
func (s *Store) CompleteBatches(ctx context.Context, ids []job.ID) (completed []job.Batch, err error) {
	found, err := queryRows(ctx, s, rowToID, readyGiven, column(ids, uuid))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	err = s.inTx(ctx, "complete", func(ctx context.Context, tx pgx.Tx) error {
		ready, err := lockReady(ctx, tx, found)
		if err == nil && len(ready) > 0 {
			completed, err = writeOutcomes(ctx, tx, ready)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return completed, nil
}

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

// writeOutcomes gives those of the batches that it completed, with the time of it.
func writeOutcomes(ctx context.Context, tx pgx.Tx, ready []job.Batch) ([]job.Batch, error) {
	type batch = job.Batch
	failures, err := jsonColumn(ready, func(b batch) ([]job.ItemFailure, bool) { return b.Outcome.Failures, true })
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, completeBatches,
		column(ready, func(b batch) pgtype.UUID { return uuid(b.ID) }),
		column(ready, func(b batch) string { return string(b.Outcome.Status) }),
		column(ready, func(b batch) int { return b.Outcome.Succeeded }),
		column(ready, func(b batch) int { return b.Outcome.Failed }),
		column(ready, func(b batch) int { return b.Outcome.Canceled }),
		failures,
		column(ready, func(b batch) int { return len(b.Items) }))
	times, err := collectByID(rows, err, func(at *time.Time) []any { return []any{at} })
	if err != nil {
		return nil, err
	}
	var completed []batch
	for _, b := range ready {
		if at, ok := times[b.ID]; ok {
			b.Outcome.CompletedAt = at
			completed = append(completed, b)
		}
	}
	return completed, nil
}
