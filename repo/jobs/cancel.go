package jobs

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// ErrNotFound is returned for an unknown job and for a job of another client.
var ErrNotFound = job.Errorf(job.CodeJobNotFound, "No job with this id was found.")

type cancelRequest struct {
	client, id job.ID
	apiKey     string
}

// Cancel ends an unfinished job. `before` is the job as it was before the cancel. It has only identity, batch, state, start time,
// definition, callback and trace. For a final job, Cancel changes nothing, and `before` is nil.
func (s *Store) Cancel(ctx context.Context, client, id job.ID) (change job.Change, before *job.Job, err error) {
	c, err := s.cancels.Do(ctx, cancelRequest{client, id, job.KeyOf(ctx)})
	return c.Change, c.Before, err
}

// CancelAll cancels the unfinished jobs among the given jobs of a client, and returns their earlier state. It skips missing jobs.
func (s *Store) CancelAll(ctx context.Context, client job.ID, ids []job.ID) ([]job.Canceling, error) {
	answers, err := s.cancels.DoAll(ctx, pg.Column(ids, func(id job.ID) cancelRequest { return cancelRequest{client, id, job.KeyOf(ctx)} }))
	var done []job.Canceling
	for _, a := range answers {
		code := job.CodeOf(a.Err)
		switch {
		case a.Err != nil && code != job.CodeJobGone && code != job.CodeJobNotFound:
			err = cmp.Or(err, a.Err)
		case a.Value.Before != nil:
			done = append(done, a.Value)
		}
	}
	return done, err
}

// UnfinishedJobs returns at most `limit` of a client's unfinished jobs.
func (s *Store) UnfinishedJobs(ctx context.Context, client job.ID, limit int) ([]job.ID, error) {
	return pg.Query(ctx, s.db, pg.RowToID, statement("unfinishedJobs"), pg.UUID(client), limit)
}

func (s *Store) cancelJobs(ctx context.Context, db pg.Conn, requests []cancelRequest) ([]pg.Answer[job.Canceling], error) {
	done := make(map[job.ID]job.Canceling, len(requests))
	_, err := pg.RowsIn(ctx, db, func(row pgx.CollectableRow) (c job.Canceling, err error) {
		now, before := job.Change{State: job.Canceled, Changed: true}, &job.Job{}
		var definition []byte
		err = pg.ScanRow(row, &before.ID, &now.Attempt, &now.UpdatedAt, &now.RunAt, &now.Dispatch, &before.State, &before.WorkKind, &definition,
			&before.RequestID, &before.BatchID, &before.CorrelationID, &before.Callback, &before.TraceParent, &before.StartedAt)
		now.JobID, before.Definition = before.ID, decodeDefinition(definition)
		done[now.JobID] = job.Canceling{Change: now, Before: before}
		return c, err
	}, statement("cancelJobs"),
		pg.Column(requests, func(r cancelRequest) pgtype.UUID { return pg.UUID(r.id) }),
		pg.Column(requests, func(r cancelRequest) pgtype.UUID { return pg.UUID(r.client) }),
		pg.Column(requests, func(r cancelRequest) *string { return pg.Nullable(r.apiKey) }))
	if err != nil {
		return nil, err
	}
	answers := make([]pg.Answer[job.Canceling], len(requests))
	for i, r := range requests {
		if c, ok := done[r.id]; ok {
			c.Before.ClientID = r.client
			answers[i].Value = c
			continue
		}
		answers[i].Value.Change, answers[i].Err = s.unchanged(ctx, r.apiKey, r.client, r.id)
	}
	return answers, nil
}

type retryRequest struct {
	client, id  job.ID
	attempt     int
	wait        time.Duration
	traceparent string
	apiKey      string
	lease       job.ID // headroom lease
	override    bool   // ignore max_attempts, and whether the failure is retryable
}

// Retry queues the next attempt after the failed attempt `attempt`. The next attempt becomes due after `wait`. If the job is no longer
// FAILED at `attempt`, Retry does not change the job. The next attempt belongs to the trace `traceparent`, or to the previous attempt's
// trace if `traceparent` is "".
func (s *Store) Retry(ctx context.Context, client, id job.ID, attempt int, wait time.Duration, traceparent string) (job.Change, error) {
	return s.retries.Do(ctx, retryRequest{client, id, attempt, wait, traceparent, job.KeyOf(ctx), job.LeaseOf(ctx), false})
}

// RetryAnyway is like Retry, but ignores whether the failure is retryable. It raises max_attempts by one if no attempt is left.
func (s *Store) RetryAnyway(
	ctx context.Context, client, id job.ID, attempt int, wait time.Duration, traceparent string,
) (job.Change, error) {
	return s.retries.Do(ctx, retryRequest{client, id, attempt, wait, traceparent, job.KeyOf(ctx), job.LeaseOf(ctx), true})
}

func (s *Store) retryJobs(ctx context.Context, db pg.Conn, requests []retryRequest) ([]pg.Answer[job.Change], error) {
	rows, err := db.Query(ctx, statement("retryJobs"),
		pg.Column(requests, func(r retryRequest) pgtype.UUID { return pg.UUID(r.id) }),
		pg.Column(requests, func(r retryRequest) pgtype.UUID { return pg.UUID(r.client) }),
		pg.Column(requests, func(r retryRequest) int { return r.attempt }),
		pg.Column(requests, func(r retryRequest) time.Duration { return r.wait }),
		pg.Column(requests, func(r retryRequest) *string { return pg.Nullable(r.traceparent) }),
		pg.Column(requests, func(r retryRequest) *string { return pg.Nullable(r.apiKey) }),
		leaseColumn(requests, func(r retryRequest) job.ID { return r.lease }),
		pg.Column(requests, func(r retryRequest) bool { return r.override }))
	done, err := pg.CollectByID(rows, err, func(c *job.Change) []any { return []any{&c.Attempt, &c.UpdatedAt, &c.RunAt} })
	if err != nil {
		return nil, err
	}
	answers := make([]pg.Answer[job.Change], len(requests))
	for i, r := range requests {
		if c, ok := done[r.id]; ok {
			c.JobID, c.State, c.Changed = r.id, job.Queued, true
			answers[i].Value = c
			continue
		}
		if err := s.requireLease(ctx, r.lease); err != nil {
			answers[i].Err = err
			continue
		}
		answers[i].Value, answers[i].Err = s.unchanged(ctx, r.apiKey, r.client, r.id)
	}
	return answers, nil
}

// unchanged returns why a job was not changed: an error if the API key of the request has ended, otherwise the job's state.
func (s *Store) unchanged(ctx context.Context, apiKey string, client, id job.ID) (job.Change, error) {
	if apiKey != "" {
		if err := s.db.RequireKey(ctx, apiKey); err != nil {
			return job.Change{}, err
		}
	}
	return s.Look(ctx, client, id)
}

// Look returns a job's state as a job.Change with Changed false.
func (s *Store) Look(ctx context.Context, client, id job.ID) (job.Change, error) {
	c, found, err := pg.QueryFirst(ctx, s.db, pgx.RowToStructByNameLax[job.Change],
		`SELECT job_id, state, attempt, updated_at, run_at FROM jobs WHERE job_id = $1 AND client_id = $2`, pg.UUID(id), pg.UUID(client))
	if err == nil && !found {
		err = s.Missing(ctx, client, id)
	}
	return c, err
}

const deleteTries = 3

// Delete removes a client's final job with all its data. It returns a conflict if the job is not final or belongs to an open batch.
// Deleting a missing job is no error.
func (s *Store) Delete(ctx context.Context, client, id job.ID) error {
	for range deleteTries {
		n, err := s.db.Change(ctx, "delete", statement("deleteJob"), pg.UUID(id), pg.UUID(client))
		if err != nil || n > 0 {
			return err
		}
		found, err := s.Look(ctx, client, id)
		switch {
		case job.CodeOf(err) == job.CodeJobGone:
			return nil
		case err != nil:
			return err
		case !found.State.Final():
			return job.RefusalOfDelete(found.State)
		}
		counts, err := s.CountsInBatch(ctx, id)
		switch {
		case err != nil:
			return err
		case counts:
			return job.ErrCountsInBatch
		}
	}
	return &job.Error{Code: job.CodeStorageUnavailable, RetryAfter: pg.RetryAfter,
		Detail: "The job is changing at the moment. Repeat the request."}
}
