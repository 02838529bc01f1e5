package repo

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// Attempts reads the attempts of a client's job, from the first one to the
// current one, in one snapshot. A finished attempt is what its report says; a
// job that is not final has one more, which has no report yet.
func (s *Store) Attempts(ctx context.Context, client, id job.ID) (job.Origin, []job.Attempt, error) {
	origin := job.Origin{JobID: id}
	attempts, err := queryRows(ctx, s, func(row pgx.CollectableRow) (a job.Attempt, err error) {
		var f failureScanner
		err = row.Scan(&origin.CreatedAt, &origin.CorrelationID, &origin.Language,
			&a.Number, &a.State, &a.Outcome, &a.StartedAt, &a.FinishedAt,
			&f.reason, &f.code, &f.retryable, &f.retryAfter, &f.stage, &f.detail)
		if a.Outcome != "" {
			a.State = stateOf(a.Outcome)
		}
		a.Failure = f.failure()
		return a, err
	}, `SELECT j.created_at, coalesce(j.correlation_id, ''), j.language, a.*
		FROM jobs j CROSS JOIN LATERAL (
			SELECT attempt, '' AS state, outcome, started_at, finished_at,
				failure_reason, failure_code, failure_retryable, failure_retry_after, failure_stage, failure_detail
			FROM reports r WHERE r.job_id = j.job_id
			UNION ALL
			SELECT j.attempt, j.state, '', j.started_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE j.finished_at IS NULL
		) AS a
		WHERE j.job_id = $1 AND j.client_id = $2 ORDER BY a.attempt`, uuid(id), uuid(client))
	if err != nil {
		return job.Origin{}, nil, err
	}
	if len(attempts) == 0 { // every job has an attempt
		return job.Origin{}, nil, s.missing(ctx, client, id)
	}
	return origin, attempts, nil
}
