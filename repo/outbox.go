package repo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// outcomesKept is how long an outcome that was published stays: the stream may
// lose what it was given last.
const outcomesKept = time.Minute

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

// RepublishOutcomes has everything published again that is still there, after
// the stream may have lost some, and tells how much that is.
func (s *Store) RepublishOutcomes(ctx context.Context) (n int, err error) {
	for {
		some, err := s.change(ctx, "republish", republishOutcomes, republishedAtOnce)
		n += some
		if err != nil || some < republishedAtOnce {
			return n, err
		}
	}
}

const republishedAtOnce = 5000

// republishOutcomes walks the index outcome_outbox_published. What somebody else
// has locked is waited for: nothing may be left out.
const republishOutcomes = `
WITH oldest AS MATERIALIZED (
  SELECT job_id FROM outcome_outbox WHERE published_at IS NOT NULL ORDER BY published_at LIMIT $1
)
UPDATE outcome_outbox SET published_at = NULL WHERE job_id = ANY (ARRAY(SELECT job_id FROM oldest))`
