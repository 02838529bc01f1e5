package repo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forgerun/forgerun/job"
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
		waited, leave, err := s.batchKeys.enter(ctx, batchKey{sub.Batch.ClientID, sub.IdempotencyKey})
		if err != nil {
			return nil, false, err
		}
		defer leave()
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
		err = &job.Error{Code: job.CodeStorageUnavailable, RetryAfter: retryAfter,
			Detail: "Another request with this idempotency key was in flight. Repeat the request."}
	}
	return b, true, err
}

// takeKey takes an idempotency key that is new or expired. Somebody else who is
// inserting it is waited for. No row: the key is taken.
const takeKey = `
INSERT INTO idempotency_keys AS k (client_id, endpoint, key, request_hash, resource_id, created_at, expires_at)
SELECT $1, $2, $3, $4, $5, at, at + $6::interval FROM (VALUES (clock_timestamp())) AS v(at)
ON CONFLICT (client_id, endpoint, key) DO UPDATE SET request_hash = excluded.request_hash, resource_id = excluded.resource_id,
  created_at = excluded.created_at, expires_at = excluded.expires_at
  WHERE k.expires_at <= clock_timestamp()`

// insertBatch takes the key, then writes the jobs and the batch. It locks
// nothing but the key: all other rows are new.
func (s *Store) insertBatch(ctx context.Context, sub job.BatchSubmission) (*job.Batch, error) {
	leave, err := s.batchSlots.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := s.bound(ctx)
	defer cancel()
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return nil, s.failed("batch", err)
	}
	defer func() { _ = tx.Rollback(ctx) }()

	b := sub.Batch
	if sub.IdempotencyKey != "" {
		tag, err := tx.Exec(ctx, takeKey, uuid(b.ClientID), batchEndpoint, sub.IdempotencyKey, sub.RequestHash[:], uuid(b.ID), s.cfg.IdempotencyWindow)
		if err != nil {
			return nil, s.failed("batch", err)
		}
		if tag.RowsAffected() == 0 {
			return nil, errKeyTaken
		}
	}
	if err := s.insertItems(ctx, tx, &b, sub.Jobs); err != nil {
		return nil, s.failed("batch", err)
	}
	if err := s.commit(ctx, tx, "batch"); err != nil {
		return nil, err
	}
	return &b, nil
}

// insertItems writes the jobs, and then the batch with the states they got.
func (s *Store) insertItems(ctx context.Context, tx pgx.Tx, b *job.Batch, jobs []job.Job) error {
	answers, err := s.insertJobs(ctx, tx, column(jobs, func(j job.Job) job.Submission { return job.Submission{Job: j} }))
	if err != nil {
		return err
	}
	states := make(map[job.ID]job.State, len(answers))
	b.Counts = map[job.State]int{}
	for _, a := range answers {
		if a.err != nil {
			return a.err
		}
		states[a.value.JobID] = a.value.State
		b.Counts[a.value.State]++
	}
	b.Items = slices.Clone(b.Items)
	for i := range b.Items {
		b.Items[i].State = states[b.Items[i].JobID]
	}
	items, err := json.Marshal(b.Items)
	if err != nil {
		return err
	}
	return tx.QueryRow(ctx, `INSERT INTO batches (batch_id, client_id, created_at, correlation_id, language, request_id, items, refused)
		VALUES ($1, $2, now(), $3, $4, $5, $6, $7) RETURNING created_at`,
		uuid(b.ID), uuid(b.ClientID), nullable(b.CorrelationID), b.Language, b.RequestID, items, b.Refused()).Scan(&b.CreatedAt)
}

// commit ends a transaction. Unless the server itself refused, or was never
// asked, a failed commit may have come about all the same.
func (s *Store) commit(ctx context.Context, tx pgx.Tx, operation string) error {
	err := tx.Commit(ctx)
	if err == nil {
		return nil
	}
	known := s.failed(operation, err)
	var refused *pgconn.PgError
	if errors.Is(err, pgx.ErrTxCommitRollback) || pgconn.SafeToRetry(err) || errors.As(err, &refused) && refused.SeverityUnlocalized == "ERROR" {
		return known
	}
	return errUnknown(err)
}

// FindBatch gives the batch that an idempotency key stands for: nil when the
// client never used it or its window is over, an idempotency conflict when it
// stands for a different request. A batch whose retention ended before the
// key's window is gone: the jobs were done, so the key is not free.
func (s *Store) FindBatch(ctx context.Context, client job.ID, key string, hash [32]byte) (*job.Batch, error) {
	type known struct {
		id   job.ID
		hash []byte
	}
	found, err := queryRows(ctx, s, func(row pgx.CollectableRow) (k known, err error) {
		return k, row.Scan(scanID(&k.id), &k.hash)
	}, `SELECT resource_id, request_hash FROM idempotency_keys
		WHERE client_id = $1 AND endpoint = '`+batchEndpoint+`' AND key = $2 AND expires_at > clock_timestamp()`, uuid(client), key)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, nil
	case !bytes.Equal(found[0].hash, hash[:]):
		return nil, errKeyReused
	}
	b, err := s.Batch(ctx, client, found[0].id)
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

// readBatch counts the batch's jobs by the index jobs_batch.
const readBatch = `
SELECT ` + batchColumns + `, items, 0,
  (SELECT coalesce(jsonb_object_agg(state, n), '{}') FROM (
    SELECT state, count(*) AS n FROM jobs WHERE jobs.batch_id = batches.batch_id GROUP BY state) AS counted)
FROM batches WHERE batch_id = $1 AND client_id = $2`

// Batch reads a client's batch, with the numbers of its jobs by state. Jobs
// that were deleted are in none of them.
func (s *Store) Batch(ctx context.Context, client, id job.ID) (*job.Batch, error) {
	found, err := queryRows(ctx, s, scanBatch, readBatch, uuid(id), uuid(client))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errBatchNotFound
	}
	return found[0], nil
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
// Somebody else's batch has none, like one that never was.
func (s *Store) OpenJobs(ctx context.Context, client, batch job.ID) ([]job.ID, error) {
	return queryRows(ctx, s, func(row pgx.CollectableRow) (id job.ID, err error) {
		return id, row.Scan(scanID(&id))
	}, openJobs, uuid(batch), uuid(client))
}

// openJobs finds them by the index jobs_batch_open.
const openJobs = `
SELECT job_id FROM jobs WHERE batch_id = $1 AND finished_at IS NULL
  AND EXISTS (SELECT FROM batches WHERE batch_id = $1 AND client_id = $2)`
