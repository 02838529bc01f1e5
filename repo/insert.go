package repo

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// jobsEndpoint is the scope of idempotency keys of POST /jobs.
const jobsEndpoint = "jobs"

// errKeyReused is the answer to a known key with another payload.
var errKeyReused = job.Errorf(job.CodeIdempotencyConflict, "This idempotency key was used for a different request.")

// InsertJob stores a submission: the key's row, the job and its first events,
// in one statement. It returns only after the commit. A submission whose key
// is known gets the first answer instead.
func (s *Store) InsertJob(ctx context.Context, sub job.Submission) (job.Receipt, error) {
	return s.inserts.do(ctx, sub)
}

func submissionKey(sub job.Submission) string {
	if sub.IdempotencyKey == "" {
		return ""
	}
	return string(sub.Job.ClientID[:]) + sub.IdempotencyKey
}

func submissionBytes(sub job.Submission) int {
	n := len(sub.Job.Params) + 512
	if d := sub.Job.Definition; d != nil && d.Emit != nil {
		n += len(d.Emit.Data)
	}
	return n
}

// insertJobs writes a batch of submissions.
//
// Locks: the rows of idempotency keys, in key order. A key that somebody else
// is inserting makes the statement wait for that transaction; a key that is
// taken and not expired yields no row, and its item is answered by
// replay in a second statement, because the snapshot of this one cannot see a
// concurrent winner. An expired key is taken over.
const insertJobs = `
WITH input AS MATERIALIZED (
  SELECT *, clock_timestamp() AS at FROM unnest(
    $1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::jsonb[], $6::json[], $7::int[], $8::boolean[],
    $9::timestamptz[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::bytea[], $17::uuid[]) WITH ORDINALITY
  AS i(job_id, client_id, type, work_kind, definition, params, max_attempts, auto_retry,
    execution_at, callback, correlation_id, traceparent, language, request_id, key, request_hash, batch_id, n)
), keys AS (
  INSERT INTO idempotency_keys AS k (client_id, endpoint, key, request_hash, resource_id, state, created_at, expires_at)
  SELECT client_id, '` + jobsEndpoint + `', key, request_hash, job_id,
    CASE WHEN execution_at IS NULL THEN 'QUEUED' ELSE 'CREATED' END, at, at + $18::interval
  FROM input WHERE key IS NOT NULL ORDER BY client_id, key
  ON CONFLICT (client_id, endpoint, key) DO UPDATE SET request_hash = excluded.request_hash, resource_id = excluded.resource_id,
    state = excluded.state, created_at = excluded.created_at, expires_at = excluded.expires_at
    WHERE k.expires_at <= clock_timestamp()
  RETURNING k.resource_id
), new AS (
  INSERT INTO jobs (job_id, client_id, batch_id, type, work_kind, definition, params, state, max_attempts, auto_retry, event_seq, event_tx,
    created_at, updated_at, execution_at, run_at, queued_at, callback, correlation_id, traceparent, language, request_id)
  SELECT job_id, client_id, batch_id, type, work_kind, definition, params,
    CASE WHEN execution_at IS NULL THEN 'QUEUED' ELSE 'CREATED' END, max_attempts, auto_retry,
    CASE WHEN execution_at IS NULL THEN 2 ELSE 1 END, pg_current_xact_id(),
    at, at, execution_at, coalesce(execution_at, at), CASE WHEN execution_at IS NULL THEN at END,
    callback, correlation_id, traceparent, language, request_id
  FROM input WHERE key IS NULL OR job_id IN (SELECT resource_id FROM keys)
  RETURNING job_id, state, created_at
), log AS (
  INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, tx, data, called_back)
  SELECT i.job_id, i.client_id, e.seq, ($19::uuid[])[2 * i.n - 2 + e.seq], e.name, e.prev, e.next, 1, i.at, pg_current_xact_id(), i.data, i.callback IS NOT NULL
  FROM (SELECT job_id, client_id, n, at, callback, execution_at, event_data(work_kind, definition) AS data
    FROM input WHERE key IS NULL OR job_id IN (SELECT resource_id FROM keys) OFFSET 0) AS i
  JOIN (VALUES (1, 'job.created', NULL, 'CREATED'), (2, 'job.queued', 'CREATED', 'QUEUED')) AS e(seq, name, prev, next)
    ON e.seq = 1 OR i.execution_at IS NULL
)
SELECT job_id, state, created_at FROM new`

func (s *Store) insertJobs(ctx context.Context, db querier, subs []job.Submission) ([]answer[job.Receipt], error) {
	definitions := make([][]byte, len(subs))
	for i, sub := range subs {
		encoded, err := json.Marshal(sub.Job.Definition)
		if err != nil {
			return nil, err
		}
		definitions[i] = encoded
	}
	type sub = job.Submission
	rows, err := db.Query(ctx, insertJobs,
		column(subs, func(x sub) pgtype.UUID { return uuid(x.Job.ID) }),
		column(subs, func(x sub) pgtype.UUID { return uuid(x.Job.ClientID) }),
		column(subs, func(x sub) string { return string(x.Job.Type) }),
		column(subs, func(x sub) string { return string(x.Job.WorkKind) }),
		definitions,
		column(subs, func(x sub) []byte { return x.Job.Params }),
		column(subs, func(x sub) int { return x.Job.MaxAttempts }),
		column(subs, func(x sub) bool { return x.Job.AutoRetry }),
		column(subs, func(x sub) *time.Time { return x.Job.ExecutionAt }),
		column(subs, func(x sub) *string { return nullable(x.Job.Callback) }),
		column(subs, func(x sub) *string { return nullable(x.Job.CorrelationID) }),
		column(subs, func(x sub) *string { return nullable(x.Job.TraceParent) }),
		column(subs, func(x sub) string { return x.Job.Language }),
		column(subs, func(x sub) string { return x.Job.RequestID }),
		column(subs, func(x sub) *string { return nullable(x.IdempotencyKey) }),
		column(subs, func(x sub) []byte { return x.RequestHash[:] }),
		column(subs, func(x sub) pgtype.UUID { return uuid(x.Job.BatchID) }),
		s.cfg.IdempotencyWindow, eventIDs(2*len(subs)))
	if err != nil {
		return nil, err
	}
	receipts := make(map[job.ID]job.Receipt, len(subs))
	var r job.Receipt
	_, err = pgx.ForEachRow(rows, []any{scanID(&r.JobID), &r.State, &r.CreatedAt}, func() error {
		receipts[r.JobID] = r
		return nil
	})
	if err != nil {
		return nil, err
	}
	answers := make([]answer[job.Receipt], len(subs))
	for i, sub := range subs {
		if receipt, ok := receipts[sub.Job.ID]; ok {
			answers[i].value = receipt
			continue
		}
		answers[i] = s.replay(ctx, sub)
	}
	return answers, nil
}

// replay answers a submission whose key was taken.
func (s *Store) replay(ctx context.Context, sub job.Submission) answer[job.Receipt] {
	receipt, err := s.FindReceipt(ctx, sub.Job.ClientID, sub.IdempotencyKey, sub.RequestHash)
	if err == nil && receipt == nil { // the winner rolled back or expired in between
		err = &job.Error{Code: job.CodeStorageUnavailable, RetryAfter: retryAfter,
			Detail: "Another request with this idempotency key was in flight. Repeat the request."}
	}
	if err != nil {
		return answer[job.Receipt]{err: err}
	}
	return answer[job.Receipt]{value: *receipt}
}

// FindReceipt looks up what an idempotency key was answered with: nil when the
// client never used it or its window is over, an idempotency conflict when it
// stood for a different request.
func (s *Store) FindReceipt(ctx context.Context, client job.ID, key string, hash [32]byte) (*job.Receipt, error) {
	type known struct {
		job.Receipt
		hash []byte
	}
	found, err := queryRows(ctx, s, func(row pgx.CollectableRow) (k known, err error) {
		k.Replayed = true
		return k, row.Scan(scanID(&k.JobID), &k.State, &k.CreatedAt, &k.hash)
	}, `SELECT resource_id, state, created_at, request_hash FROM idempotency_keys
		WHERE client_id = $1 AND endpoint = '`+jobsEndpoint+`' AND key = $2 AND expires_at > clock_timestamp()`, uuid(client), key)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, nil
	case !bytes.Equal(found[0].hash, hash[:]):
		return nil, errKeyReused
	}
	return &found[0].Receipt, nil
}
