package repo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// Result reads the result of a client's job, until it expires: afterwards it
// is gone, whether the cleaner has removed the body yet or not.
func (s *Store) Result(ctx context.Context, client, id job.ID) (*job.StoredResult, error) {
	type stored struct {
		job.StoredResult
		exists, kept bool
	}
	found, err := queryRows(ctx, s, func(row pgx.CollectableRow) (r stored, err error) {
		var mediaType *string
		var sum []byte
		var expires *time.Time
		err = row.Scan(&mediaType, &sum, &expires, &r.kept, &r.Body)
		r.exists, r.MediaType, r.ExpiresAt = expires != nil, deref(mediaType), deref(expires)
		copy(r.SHA256[:], sum)
		return r, err
	}, `SELECT r.media_type, r.sha256, r.expires_at, kept, CASE WHEN kept THEN r.body END
		FROM jobs j LEFT JOIN results r ON r.job_id = j.job_id
		CROSS JOIN LATERAL (SELECT coalesce(r.expires_at > clock_timestamp() AND r.body IS NOT NULL, false)) AS k(kept)
		WHERE j.job_id = $1 AND j.client_id = $2`, uuid(id), uuid(client))
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, s.missing(ctx, client, id)
	case !found[0].exists:
		return nil, job.Errorf(job.CodeJobNotFound, "The job has no result; a result exists once the job has succeeded.")
	case !found[0].kept:
		at := found[0].ExpiresAt
		return nil, &job.Error{Code: job.CodeResultGone, Detail: "The result expired at " + at.Format(time.RFC3339) + ".", ExpiredAt: &at}
	}
	return &found[0].StoredResult, nil
}
