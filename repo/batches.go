package repo

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forgerun/forgerun/job"
)

var (
	takeKey   = statement("takeKey")
	readBatch = statement("readBatch")
	openJobs  = statement("openJobs")
)

// batchEndpoint is the scope of idempotency keys of POST /jobs/batch.
const batchEndpoint = "batch"

// errKeyTaken: the idempotency key stands for an earlier request.
var errKeyTaken = errors.New("the idempotency key is taken")

// InsertBatch stores a batch with its jobs in one transaction. It returns only
// after the commit. A submission whose key is known gets the earlier batch
// instead, as it is now. Those with one key wait here for each other: in the
// database each would wait on a connection.
func (s *Store) InsertBatch(ctx context.Context, sub job.BatchSubmission) (b *job.Batch, replayed bool, err error) {
	if sub.IdempotencyKey != "" {
		waited, unlock, err := s.batchKeys.lock(ctx, batchKey{sub.Batch.ClientID, sub.IdempotencyKey})
		if err != nil {
			return nil, false, err
		}
		defer unlock()
		if waited {
			b, err := s.FindBatch(ctx, sub.Batch.ClientID, sub.IdempotencyKey, sub.RequestHash)
			if b != nil || err != nil {
				return b, true, err
			}
		}
	}
	b, err = s.insertBatch(ctx, sub)
	if !errors.Is(err, errKeyTaken) {
		return b, false, err
	}
	b, err = s.FindBatch(ctx, sub.Batch.ClientID, sub.IdempotencyKey, sub.RequestHash)
	if err == nil && b == nil { // the key expired in between
		err = errKeyInFlight
	}
	return b, true, err
}

// insertBatch takes the key, then writes the jobs and the batch. It locks
// nothing but the key: all other rows are new.
func (s *Store) insertBatch(ctx context.Context, sub job.BatchSubmission) (*job.Batch, error) {
	release, err := s.batchSlots.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	s.learnClock()
	b := sub.Batch
	var p place
	err = s.insertTx(ctx, "batch", func(ctx context.Context, tx pgx.Tx) error {
		err := s.takeKey(ctx, tx, sub)
		if err != nil {
			return err
		}
		if len(sub.Jobs) > 0 {
			p = s.order.take(len(sub.Jobs)) // not before the key, for which it may wait
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

// takeKey stores the idempotency key, if there is one. errKeyTaken: it is stored already.
func (s *Store) takeKey(ctx context.Context, tx pgx.Tx, sub job.BatchSubmission) error {
	if sub.IdempotencyKey == "" {
		return nil
	}
	tag, err := tx.Exec(ctx, takeKey, uuid(sub.Batch.ClientID), batchEndpoint, sub.IdempotencyKey, sub.RequestHash[:], uuid(sub.Batch.ID),
		idempotencyWindow)
	if err == nil && tag.RowsAffected() == 0 {
		err = errKeyTaken
	}
	return err
}

// insertTx runs write in a transaction of its own and commits it.
func (s *Store) insertTx(ctx context.Context, operation string, write func(context.Context, pgx.Tx) error) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return s.failed(operation, err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	err = write(ctx, tx)
	if err == nil {
		err = requireKeyIn(ctx, tx)
	}
	if err != nil {
		if errors.Is(err, errKeyTaken) {
			return err
		}
		return s.failed(operation, err)
	}
	return s.commit(ctx, tx, operation)
}

// insertItems writes the jobs, and then the batch with the states they got.
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
	var first *time.Time // the batch is no younger than its jobs
	for i, a := range answers {
		if a.err != nil {
			return a.err
		}
		if i == 0 {
			first = &a.value.CreatedAt
		}
		states[a.value.JobID] = a.value.State
		b.Counts[a.value.State]++
	}
	b.Items = slices.Clone(b.Items)
	for i := range b.Items {
		b.Items[i].State = states[b.Items[i].JobID]
	}
	answer, err := json.Marshal(b.Items)
	if err != nil {
		return err
	}
	return tx.QueryRow(ctx, `INSERT INTO batches (batch_id, client_id, created_at, correlation_id, language, request_id, items, refused)
		VALUES ($1, $2, least($8, now()), $3, $4, $5, $6, $7) RETURNING created_at`,
		uuid(b.ID), uuid(b.ClientID), nullable(b.CorrelationID), b.Language, b.RequestID, answer, b.Refused(), first).Scan(&b.CreatedAt)
}

// commit ends a transaction. Unless the server itself refused, or was never
// asked, a failed commit may have taken effect all the same.
func (s *Store) commit(ctx context.Context, tx pgx.Tx, operation string) error {
	err := tx.Commit(ctx)
	if err == nil {
		return nil
	}
	known := s.failed(operation, err)
	var refused *pgconn.PgError
	if errors.Is(err, pgx.ErrTxCommitRollback) || pgconn.SafeToRetry(err) ||
		errors.As(err, &refused) && refused.SeverityUnlocalized == "ERROR" {
		return known
	}
	return errUnknown(err)
}

// FindBatch gives the batch that an idempotency key stands for: nil when the
// client never used it or its window is over, an idempotency conflict when it
// stands for a different request. A batch whose retention ended before the
// key's window is gone: the jobs were done, so the key is not free.
func (s *Store) FindBatch(ctx context.Context, client job.ID, key string, hash [32]byte) (*job.Batch, error) {
	known, err := s.findKey(ctx, client, batchEndpoint, key, hash)
	if err != nil || known == nil {
		return nil, err
	}
	b, err := s.Batch(ctx, client, known.JobID)
	if errors.Is(err, errBatchNotFound) {
		return nil, errBatchGone
	}
	return b, err
}

// errBatchGone answers a request that was accepted before.
var errBatchGone = job.Errorf(job.CodeJobGone, "This idempotency key stands for a batch whose retention has ended.")

// errBatchNotFound is the same for a batch that never existed and for another
// client's.
var errBatchNotFound = job.Errorf(job.CodeBatchNotFound, "No batch with this id was found.")

// batchColumns is the one column list of a batch. After it come its items, the
// number of items that are left out, and the numbers of its jobs by state.
const batchColumns = `batch_id, client_id, created_at, coalesce(correlation_id, ''), language, request_id,
  status, completed_at, succeeded, failed, canceled, failures`

// Batch reads a client's batch, with the numbers of its jobs by state. Jobs
// that were deleted are in none of them.
func (s *Store) Batch(ctx context.Context, client, id job.ID) (*job.Batch, error) {
	b, found, err := queryFirst(ctx, s, scanBatch, readBatch, uuid(id), uuid(client))
	if err == nil && !found {
		err = errBatchNotFound
	}
	return b, err
}

func scanBatch(row pgx.CollectableRow) (*job.Batch, error) {
	var b job.Batch
	var status *job.Status
	var completed *time.Time
	var succeeded, failed, canceled *int
	var failures []byte
	err := row.Scan(scanID(&b.ID), scanID(&b.ClientID), &b.CreatedAt, &b.CorrelationID, &b.Language, &b.RequestID,
		&status, &completed, &succeeded, &failed, &canceled, &failures, &b.Items, &b.Unread, &b.Counts)
	if err != nil || status == nil {
		return &b, err
	}
	b.Outcome = &job.BatchOutcome{Status: *status, CompletedAt: *completed, Succeeded: *succeeded, Failed: *failed, Canceled: *canceled}
	return &b, json.Unmarshal(failures, &b.Outcome.Failures)
}

// OpenJobs gives the jobs of a client's batch that are not final, in no order.
// Another client's batch has none, like one that never was.
func (s *Store) OpenJobs(ctx context.Context, client, batch job.ID) ([]job.ID, error) {
	return queryRows(ctx, s, rowToID, openJobs, uuid(batch), uuid(client))
}
