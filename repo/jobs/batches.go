package jobs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// batchEndpoint is the scope of idempotency keys of POST /jobs/batch.
const batchEndpoint = "batch"

// InsertBatch stores a batch with its jobs in one transaction, and returns only after the commit. The caller has checked that the key is
// free. If another submission takes the key meanwhile, InsertBatch returns the current state of the other submission's batch.
func (s *Store) InsertBatch(ctx context.Context, sub job.BatchSubmission) (b *job.Batch, replayed bool, err error) {
	insert := func() (*job.Batch, error) { return s.insertBatch(ctx, sub) }
	if sub.IdempotencyKey == "" {
		b, err = insert()
		return b, false, err
	}
	return oncePerKey(ctx, s, onceKey{sub.Batch.ClientID, batchEndpoint, sub.IdempotencyKey}, true, func() (*job.Batch, error) {
		return s.FindBatch(ctx, sub.Batch.ClientID, sub.IdempotencyKey, sub.RequestHash)
	}, insert)
}

// insertBatch locks only the key, because all other rows are new.
func (s *Store) insertBatch(ctx context.Context, sub job.BatchSubmission) (*job.Batch, error) {
	release, err := s.batchSlots.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	s.ensureClock()
	b := sub.Batch
	var p place
	err = s.db.InTx(ctx, "batch", func(ctx context.Context, tx pgx.Tx) error {
		if sub.IdempotencyKey != "" {
			tag, err := tx.Exec(ctx, statement("takeKey"), pg.UUID(b.ClientID), batchEndpoint, sub.IdempotencyKey, sub.RequestHash[:], pg.UUID(b.ID),
				idempotencyWindow)
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				return pg.ErrKeyTaken
			}
		}
		if len(sub.Jobs) > 0 {
			p = s.order.take(len(sub.Jobs)) // after takeKey, which may wait, because later flushes wait for this place
		}
		return s.insertItems(ctx, tx, &b, sub.Jobs, p)
	})
	if err != nil {
		sub.Committed = nil
	}
	if p.number > 0 {
		s.order.end(p, len(sub.Jobs), sub.Committed)
	}
	if err != nil {
		return nil, err
	}
	return &b, nil
}

func (s *Store) insertItems(ctx context.Context, tx pgx.Tx, b *job.Batch, jobs []job.Job, p place) error {
	items := make([]insertion, len(jobs))
	for i, j := range jobs {
		items[i] = insertion{job.Submission{Job: j}, p.at(i), job.KeyOf(ctx)}
	}
	answers, err := s.insertJobs(ctx, tx, items)
	if err != nil {
		return err
	}
	states := make(map[job.ID]job.State, len(answers))
	b.Counts = map[job.State]int{}
	var first *time.Time // created_at of the first job: the batch must not be younger than its jobs
	for i, a := range answers {
		if a.Err != nil {
			return a.Err
		}
		if i == 0 {
			first = &a.Value.CreatedAt
		}
		states[a.Value.JobID] = a.Value.State
		b.Counts[a.Value.State]++
	}
	b.Items = slices.Clone(b.Items)
	for i := range b.Items {
		b.Items[i].State = states[b.Items[i].JobID]
	}
	return tx.QueryRow(ctx, `INSERT INTO batches (batch_id, client_id, created_at, correlation_id, language, request_id, items, refused)
		VALUES ($1, $2, least($8, now()), $3, $4, $5, $6, $7) RETURNING created_at`,
		pg.UUID(b.ID), pg.UUID(b.ClientID), pg.Nullable(b.CorrelationID), b.Language, b.RequestID, b.Items, b.Refused(), first).Scan(&b.CreatedAt)
}

// FindBatch returns the batch of an idempotency key, nil if the key is unused or expired. If the key was used for a different request, it
// returns an idempotency conflict. If the batch was already removed, FindBatch returns an error. Without this error, the caller would store
// the batch again, and its jobs would run twice.
func (s *Store) FindBatch(ctx context.Context, client job.ID, key string, hash [32]byte) (*job.Batch, error) {
	known, err := s.findKey(ctx, client, batchEndpoint, key, hash)
	if err != nil || known == nil {
		return nil, err
	}
	b, err := s.Batch(ctx, client, known.JobID)
	if errors.Is(err, ErrBatchNotFound) {
		return nil, errBatchGone
	}
	return b, err
}

var errBatchGone = job.Errorf(job.CodeJobGone, "This idempotency key was used for a batch that was removed when its retention ended.")

// ErrBatchNotFound is returned for an unknown batch and for a batch of another client.
var ErrBatchNotFound = job.Errorf(job.CodeBatchNotFound, "No batch with this id was found.")

// Batch reads a client's batch with its job counts by state. Deleted jobs do not count.
func (s *Store) Batch(ctx context.Context, client, id job.ID) (*job.Batch, error) {
	return pg.QueryOne(ctx, s.db, ErrBatchNotFound, ScanBatch, statement("readBatch"), pg.UUID(id), pg.UUID(client))
}

// ScanBatch reads batchColumns, then the items, the number of omitted items, and the job counts.
func ScanBatch(row pgx.CollectableRow) (*job.Batch, error) {
	var b job.Batch
	var o job.BatchOutcome
	err := pg.ScanRow(row, &b.ID, &b.ClientID, &b.CreatedAt, &b.CorrelationID, &b.Language, &b.RequestID,
		&o.Status, &o.CompletedAt, &o.Succeeded, &o.Failed, &o.Canceled, &o.Failures, &b.Items, &b.Unread, &b.Counts)
	if o.Status != "" {
		b.Outcome = &o
	}
	return &b, err
}

// OpenJobs returns the unfinished jobs of a client's batch in any order. For another client's batch, it returns none.
func (s *Store) OpenJobs(ctx context.Context, client, batch job.ID) ([]job.ID, error) {
	return pg.Query(ctx, s.db, pg.RowToID, statement("openJobs"), pg.UUID(batch), pg.UUID(client))
}

// ReadyBatches reads at most `look` open batches after the batch `after`, in order of id. `ready` are the batches without an unfinished
// job. `last` is the last batch that was read, zero at the end. ReadyBatches locks nothing, and takes some microseconds per batch.
func (s *Store) ReadyBatches(ctx context.Context, after job.ID, look int) (ready []job.ID, last job.ID, err error) {
	type seen struct {
		ID          job.ID
		Ready, Last bool
	}
	batches, err := pg.Query(ctx, s.db, pgx.RowToStructByPos[seen], statement("readyAfter"), [16]byte(after), look)
	for _, b := range batches {
		if b.Ready {
			ready = append(ready, b.ID)
		}
		if b.Last {
			last = b.ID
		}
	}
	return ready, last, err
}

// CompleteBatches completes the given batches that are open and have no unfinished job: it stores their outcome and records
// batch.completed. It returns the identity, items and outcome of the batches that it completed. It reads before it locks, because usually
// no batch is ready.
//
// An outcome counts the jobs' states at the time of the completion, when all of them are finished. Later retries do not change the outcome.
// Jobs of open batches cannot be deleted (see notInOpenBatch), so no job is missing from the outcome.
func (s *Store) CompleteBatches(ctx context.Context, ids []job.ID) (completed []job.Batch, err error) {
	found, err := pg.Query(ctx, s.db, pg.RowToID, statement("readyGiven"), pg.Column(ids, pg.UUID))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	err = s.db.InTx(ctx, "complete", func(ctx context.Context, tx pgx.Tx) error {
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
	return pg.RowsIn(ctx, tx, func(row pgx.CollectableRow) (b job.Batch, err error) {
		var succeeded, canceled int
		var failed map[job.ID]*job.Failure
		err = row.Scan(&b.ID, &b.ClientID, &b.RequestID, &b.CorrelationID, &b.Items, &succeeded, &canceled, &failed)
		b.Outcome = batchOutcome(b.Items, succeeded, canceled, failed)
		return b, err
	}, statement("lockGiven"), pg.Column(ids, pg.UUID))
}

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

func writeOutcomes(ctx context.Context, tx pgx.Tx, ready []job.Batch) ([]job.Batch, error) {
	type batch = job.Batch
	failures, err := pg.JSONColumn(ready, func(b batch) ([]job.ItemFailure, bool) { return b.Outcome.Failures, true })
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, statement("completeBatches"),
		pg.Column(ready, func(b batch) pgtype.UUID { return pg.UUID(b.ID) }),
		pg.Column(ready, func(b batch) string { return string(b.Outcome.Status) }),
		pg.Column(ready, func(b batch) int { return b.Outcome.Succeeded }),
		pg.Column(ready, func(b batch) int { return b.Outcome.Failed }),
		pg.Column(ready, func(b batch) int { return b.Outcome.Canceled }),
		failures,
		pg.Column(ready, func(b batch) int { return len(b.Items) }))
	times, err := pg.CollectByID(rows, err, func(at *time.Time) []any { return []any{at} })
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

// CountsInBatch reports whether a job belongs to an open batch. Such a job cannot be deleted.
func (s *Store) CountsInBatch(ctx context.Context, id job.ID) (bool, error) {
	return pg.QueryValue[bool](ctx, s.db, statement("inOpenBatch"), pg.UUID(id))
}
