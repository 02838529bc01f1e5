package repo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// unpublishedOutcomes walks the index outcome_outbox_waiting, and removes what
// has no job any more.
const unpublishedOutcomes = `
WITH waiting AS MATERIALIZED (
  SELECT job_id, attempt, finished_at FROM outcome_outbox WHERE published_at IS NULL ORDER BY finished_at, job_id LIMIT $1
), found AS MATERIALIZED (
  SELECT w.job_id, w.attempt, w.finished_at, j.created_at, coalesce(j.correlation_id, '') AS correlation_id, j.language,
    r.outcome, r.started_at, r.failure_reason, r.failure_code, r.failure_retryable, r.failure_retry_after, r.failure_stage, r.failure_detail
  FROM waiting w LEFT JOIN LATERAL (SELECT * FROM jobs WHERE job_id = w.job_id LIMIT 1) j ON true
  LEFT JOIN LATERAL (SELECT * FROM reports WHERE job_id = w.job_id AND attempt = w.attempt LIMIT 1) r ON true
), gone AS (
  DELETE FROM outcome_outbox WHERE job_id = ANY (ARRAY(SELECT job_id FROM found WHERE created_at IS NULL OR outcome IS NULL))
)
SELECT job_id, created_at, correlation_id, language, attempt, outcome, started_at, finished_at,
  failure_reason, failure_code, failure_retryable, failure_retry_after, failure_stage, failure_detail
FROM found WHERE created_at IS NOT NULL AND outcome IS NOT NULL ORDER BY finished_at, job_id`

// UnpublishedOutcomes gives at most limit outcomes that are to be appended to
// the outcome stream, the oldest first. Only processes with Config.OutcomeStream
// write any.
func (s *Store) UnpublishedOutcomes(ctx context.Context, limit int) ([]job.OutcomeMessage, error) {
	return queryRows(ctx, s, func(row pgx.CollectableRow) (m job.OutcomeMessage, err error) {
		var f failureScanner
		o, a := &m.Origin, &m.Ended
		err = row.Scan(scanID(&m.JobID), &o.CreatedAt, &o.CorrelationID, &o.Language, &m.Attempt, &a.Outcome, &a.StartedAt, &a.FinishedAt,
			&f.reason, &f.code, &f.retryable, &f.retryAfter, &f.stage, &f.detail)
		o.JobID, a.Number, a.State, a.Failure = m.JobID, m.Attempt, stateOf(a.Outcome), f.failure()
		return m, err
	}, unpublishedOutcomes, limit)
}

// MarkPublished notes that outcomes are in the stream.
func (s *Store) MarkPublished(ctx context.Context, messages []job.OutcomeMessage) error {
	return s.exec(ctx, "publish", markPublished,
		column(messages, func(m job.OutcomeMessage) pgtype.UUID { return uuid(m.JobID) }),
		column(messages, func(m job.OutcomeMessage) int { return m.Attempt }))
}

// markPublished finds the outcomes by primary key, and leaves out those that
// somebody else has locked: they are just being removed, or marked.
const markPublished = `
WITH sent AS MATERIALIZED (
  SELECT o.job_id, o.attempt FROM outcome_outbox o JOIN unnest($1::uuid[], $2::int[]) AS i(id, number) ON o.job_id = i.id AND o.attempt = i.number
  ORDER BY o.job_id FOR NO KEY UPDATE OF o SKIP LOCKED
)
UPDATE outcome_outbox SET published_at = clock_timestamp() FROM sent s
WHERE outcome_outbox.job_id = s.job_id AND outcome_outbox.attempt = s.attempt AND published_at IS NULL`

// outcomesAtOnce is how many outcomes one statement marks or removes.
const outcomesAtOnce = 5000

// RepublishOutcomes has everything published again that is still there, after
// the stream may have lost some, and tells how much that is.
func (s *Store) RepublishOutcomes(ctx context.Context) (n int, err error) {
	type round struct{ Found, Changed int }
	for {
		r, err := queryRows(ctx, s, pgx.RowToStructByPos[round], republishOutcomes, outcomesAtOnce)
		if err != nil || r[0].Found == 0 {
			return n, err
		}
		n += r[0].Changed
	}
}

// republishOutcomes walks the index outcome_outbox_published, and locks what it
// finds in order of the keys. What somebody else has locked is waited for:
// nothing may be left out. It may be gone then, so what was found counts.
const republishOutcomes = `
WITH oldest AS MATERIALIZED (
  SELECT job_id, attempt FROM outcome_outbox WHERE published_at IS NOT NULL ORDER BY published_at LIMIT $1
), held AS MATERIALIZED (
  SELECT job_id, attempt FROM outcome_outbox WHERE job_id = ANY (ARRAY(SELECT job_id FROM oldest)) AND num_nonnulls(published_at) = 1
  ORDER BY job_id, attempt FOR NO KEY UPDATE
), changed AS (
  UPDATE outcome_outbox SET published_at = NULL WHERE job_id = ANY (ARRAY(SELECT job_id FROM held)) AND num_nonnulls(published_at) = 1 RETURNING 1
)
SELECT (SELECT count(*)::int FROM oldest), (SELECT count(*)::int FROM changed)`

// RemovePublished removes outcomes that were published longer than minAge ago.
// The stream may lose what it was given last: whoever calls this knows that it
// still has what is that old.
func (s *Store) RemovePublished(ctx context.Context, minAge time.Duration) error {
	for {
		n, err := s.change(ctx, "publish", removePublished, minAge, outcomesAtOnce)
		if err != nil || n < outcomesAtOnce {
			return err
		}
	}
}

// removePublished walks the index outcome_outbox_published, and skips what
// somebody else has locked. IS TRUE keeps the planner from making a join of IN,
// which would compare all with all.
const removePublished = `
WITH old AS MATERIALIZED (
  SELECT job_id, attempt FROM outcome_outbox WHERE published_at <= now() - $1::interval ORDER BY published_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM outcome_outbox WHERE job_id = ANY (ARRAY(SELECT job_id FROM old)) AND ((job_id, attempt) IN (SELECT job_id, attempt FROM old)) IS TRUE`
