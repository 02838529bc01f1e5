package repo

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// deleteJob removes a client's final job with all that belongs to it, and
// leaves a tombstone. Locks the job's row, found by primary key.
//
// The statement sees the events and reports of its beginning, but waits for
// the row of the job. A job that was retried and ended again meanwhile would
// leave its newer events behind, so event_seq must still be what it was.
const deleteJob = `
WITH seen AS MATERIALIZED (
  SELECT job_id, event_seq FROM jobs WHERE job_id = $1 AND client_id = $2 AND finished_at IS NOT NULL AND ` + notInOpenBatch + `
), old AS MATERIALIZED (
  SELECT j.job_id, j.client_id FROM seen JOIN jobs j ON j.job_id = seen.job_id AND j.event_seq = seen.event_seq
  WHERE j.finished_at IS NOT NULL ORDER BY j.job_id FOR UPDATE OF j` + removeOld

// notInOpenBatch guards the jobs whose end still counts in the outcome of
// their batch.
const notInOpenBatch = `(batch_id IS NULL OR NOT EXISTS (SELECT FROM batches WHERE batches.batch_id = jobs.batch_id AND completed_at IS NULL))`

// deleteTries bounds how often a job that changes meanwhile is tried again.
const deleteTries = 3

// Delete removes a client's job and all that belongs to it, if it is final and
// not of a batch that is still open; otherwise it is a conflict. A job that is
// gone already is no error.
func (s *Store) Delete(ctx context.Context, client, id job.ID) error {
	for range deleteTries {
		deleted, err := s.deleteFinal(ctx, client, id)
		if err != nil || deleted {
			return err
		}
		found, err := s.look(ctx, client, id)
		switch {
		case job.CodeOf(err) == job.CodeJobGone:
			return nil
		case err != nil:
			return err
		case !found.State.Final():
			return job.Errorf(job.CodeConflict, "The job is %s; only a job that is SUCCEEDED, FAILED or CANCELED can be deleted.", found.State)
		}
		counts, err := queryRows(ctx, s, pgx.RowTo[bool], `SELECT NOT `+notInOpenBatch+` FROM jobs WHERE job_id = $1`, uuid(id))
		switch {
		case err != nil:
			return err
		case len(counts) > 0 && counts[0]:
			return job.Errorf(job.CodeConflict, "The job belongs to a batch that is not complete. Delete it once the batch is, or cancel the batch first.")
		}
	}
	return &job.Error{Code: job.CodeStorageUnavailable, RetryAfter: retryAfter, Detail: "The job is changing at the moment. Repeat the request."}
}

func (s *Store) deleteFinal(ctx context.Context, client, id job.ID) (deleted bool, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	tag, err := s.pool.Exec(ctx, deleteJob, uuid(id), uuid(client))
	if err != nil {
		return false, s.failed("delete", err)
	}
	return tag.RowsAffected() > 0, nil
}
