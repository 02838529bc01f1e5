package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

var errBulkNotFound = job.Errorf(job.CodeBulkNotFound, "No bulk operation with this id was found.")

func scanBulk(row pgx.CollectableRow) (*job.Bulk, error) {
	var b job.Bulk
	err := pg.ScanRow(row, &b.ID, &b.Owner.ClientID, &b.Owner.Operator, &b.Action, &b.Filter, &b.Rate, &b.Override, &b.RequestID,
		&b.CreatedAt, &b.StartedAt, &b.GatheredAt, &b.FinishedAt, &b.Aborted, &b.Position,
		&b.More, &b.Total, &b.Succeeded, &b.Skipped, &b.Failed)
	b.Done = b.Succeeded + b.Skipped + b.Failed
	return &b, err
}

var scanBulkItem = pgx.RowToStructByNameLax[job.BulkItem]

// InsertBulk stores a bulk operation and returns it with its time of creation. It returns after the commit, but a call inside Store.Once
// returns before Once commits. If the owner has too many open operations, it returns a conflict. If all clients together have too many, it
// returns job.CodeRateLimited.
func (s *Store) InsertBulk(ctx context.Context, b job.Bulk) (added *job.Bulk, err error) {
	err = s.db.InTx(ctx, "bulk", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statement("lockBulk")); err != nil {
			return err
		}
		var found bool
		added, found, err = pg.First(pg.RowsIn(ctx, tx, scanBulk, statement("insertBulk"),
			pg.UUID(b.ID), pg.UUID(b.Owner.ClientID), b.Owner.Operator, b.Action, b.Filter, b.Rate, b.Override, b.RequestID,
			b.Owner.MayOpen(), job.MaxOpenBulks-job.MaxOpenBulksOperator))
		if err == nil && !found {
			return manyBulks(ctx, tx, b.Owner)
		}
		return err
	})
	return added, err
}

func manyBulks(ctx context.Context, tx pgx.Tx, owner job.BulkOwner) error {
	var own int
	if err := tx.QueryRow(ctx, statement("countOpenBulks"), pg.UUID(owner.ClientID)).Scan(&own); err != nil {
		return err
	}
	if own >= owner.MayOpen() {
		return job.Errorf(job.CodeConflict, "%d bulk operations are unfinished, which is the maximum. Wait until one has ended, "+
			"or abort one.", own)
	}
	return &job.Error{Code: job.CodeRateLimited, RetryAfter: bulkRetryAfter,
		Detail: "The server has reached its limit of unfinished bulk operations. Nothing was started."}
}

// bulkRetryAfter is the Retry-After when all clients together have too many operations.
const bulkRetryAfter = 10 * time.Second

// Bulk reads a bulk operation of a client. If `client` is zero, the operation may belong to anyone.
func (s *Store) Bulk(ctx context.Context, client, id job.ID) (*job.Bulk, error) {
	return pg.QueryOne(ctx, s.db, errBulkNotFound, scanBulk, statement("readBulk"), pg.UUID(id), pg.UUID(client))
}

// Bulks lists the bulk operations of a client, the newest first. If `client` is zero, it lists the operations of all owners. It returns the
// id to continue after, zero at the end.
func (s *Store) Bulks(ctx context.Context, client job.ID, q job.BulkQuery) (list []*job.Bulk, next job.ID, err error) {
	id, before := func(b *job.Bulk) job.ID { return b.ID }, [16]byte(pg.AfterOf(q.After))
	if client.IsZero() {
		return pg.QueryPage(ctx, s.db, q.Limit, id, scanBulk, statement("listBulks"), before, q.Limit+1)
	}
	return pg.QueryPage(ctx, s.db, q.Limit, id, scanBulk, statement("listBulksOfClient"), pg.UUID(client), before, q.Limit+1)
}

// BulkItems lists the items of a client's operation in order of their jobs. `next` is the id to continue after, zero at the end.
func (s *Store) BulkItems(ctx context.Context, client, id job.ID, q job.BulkQuery) (items []job.BulkItem, next job.ID, err error) {
	if _, err := s.Bulk(ctx, client, id); err != nil {
		return nil, next, err
	}
	list, args := statement("listBulkItems"), []any{pg.UUID(id), [16]byte(q.After), q.Limit + 1}
	if q.Result != "" {
		list, args = statement("listBulkItemsWith"), append(args, string(q.Result))
	}
	return pg.QueryPage(ctx, s.db, q.Limit, func(i job.BulkItem) job.ID { return i.JobID }, scanBulkItem, list, args...)
}

// AbortBulk waits for the items that are being processed, then ends a client's operation and returns it. It returns an aborted operation
// unchanged, and a conflict for a finished one.
func (s *Store) AbortBulk(ctx context.Context, client, id job.ID) (b *job.Bulk, changed bool, err error) {
	b, changed, err = pg.QueryFirst(ctx, s.db, scanBulk, statement("abortBulk"), pg.UUID(id), pg.UUID(client))
	if err != nil || changed {
		return b, changed, err
	}
	b, err = s.Bulk(ctx, client, id)
	if err == nil && !b.Aborted {
		return nil, false, job.Errorf(job.CodeConflict, "The bulk operation is done: nothing is left to abort.")
	}
	return b, false, err
}

// CountBulk counts the matching jobs among the next `look` jobs that an operation would read. It begins with the newest job that has an id
// below `before`, or with the newest job of all if `before` is zero.
func (s *Store) CountBulk(ctx context.Context, client job.ID, f job.BulkFilter, before job.ID, look int) (job.BulkLook, error) {
	args := append(bulkArgs(client, f, before, time.Now().Add(pg.IDSkew)), look, job.BulkSample)
	count, _ := bulkAlong(client, f)
	return pg.QueryOne(ctx, s.db, nil, pgx.RowToStructByPos[job.BulkLook], count, args...)
}

// BulkJobs reads the given jobs in the given order, without their Params. It skips deleted jobs.
func (s *Store) BulkJobs(ctx context.Context, ids []job.ID) ([]*job.Job, error) {
	found, err := s.bulkJobs(ctx, ids)
	var jobs []*job.Job
	for _, id := range ids {
		if j := found[id]; j != nil {
			jobs = append(jobs, j)
		}
	}
	return jobs, err
}

func bulkAlong(client job.ID, f job.BulkFilter) (count, gather string) {
	switch {
	case !f.BatchID.IsZero():
		return statement("countBulkOfBatch"), statement("gatherBulkOfBatch")
	case !client.IsZero():
		return statement("countBulkOfClient"), statement("gatherBulkOfClient")
	}
	return statement("countBulkOfAll"), statement("gatherBulkOfAll")
}

// bulkArgs returns the arguments of bulkLooked. Jobs created after `until` do not match. The zero client id means all clients.
func bulkArgs(client job.ID, f job.BulkFilter, before job.ID, until time.Time) []any {
	after, earlier := (*time.Time)(f.CreatedAfter), (*time.Time)(f.CreatedBefore)
	bound := until.Add(time.Microsecond)
	if earlier != nil && earlier.Before(bound) {
		bound = *earlier
	}
	from, to := pg.IDRange(job.Query{After: before, CreatedAfter: after, CreatedBefore: &bound})
	return []any{
		pg.UUID(client), pg.UUID(f.BatchID), [16]byte(to), [16]byte(from), pg.Nullable(string(f.State)), pg.Nullable(string(f.Type)),
		pg.Nullable(string(f.WorkKind)), pg.Nullable(f.CorrelationID), pg.Nullable(string(f.FailureCode)),
		pg.Nullable(f.FailureDetail), after, earlier, until,
	}
}

// maxOpenBulks exceeds the number of operations that can be open, so OpenBulks returns all of them.
const maxOpenBulks = 1000

// OpenBulks reads all open operations, the oldest first. There are only a few.
func (s *Store) OpenBulks(ctx context.Context) ([]*job.Bulk, error) {
	return pg.Query(ctx, s.db, scanBulk, statement("openBulks"), maxOpenBulks)
}

// GatherBulk reads the next jobs for an operation and adds the matching ones as items. It returns the changed operation. It returns false
// if another process did the same step, or if the operation is finished.
func (s *Store) GatherBulk(ctx context.Context, b *job.Bulk, look, most int) (*job.Bulk, bool, error) {
	args := append(bulkArgs(b.JobsOf(), b.Filter, b.Position, b.CreatedAt), look, pg.UUID(b.ID), pg.UUID(b.Position), most)
	_, gather := bulkAlong(b.JobsOf(), b.Filter)
	gathered, found, err := pg.First(pg.QueryAs(ctx, s.db, "gather", scanBulk, gather, args...))
	if !found {
		gathered = b
	}
	return gathered, found, err
}

// DoItems calls `do` with the next items of an operation that have no result: at most `limit` items, after the given job. Each item
// contains its job as it is now. `do` must change jobs through this store, with the context that it gets. `do` returns the items that now
// have a result. Changes and results are committed together, so each item takes effect exactly once even after a crash (see recordItems).
//
// DoItems returns the items that it passed to `do`. It returns no items if all items have a result, if the operation is finished, or if
// another process works on the operation. If another transaction has locked one of the jobs, DoItems returns an error after a short wait
// and changes no job.
func (s *Store) DoItems(ctx context.Context, bulk, after job.ID, limit int,
	do func(context.Context, []job.BulkItem) ([]job.BulkItem, error),
) (items []job.BulkItem, err error) {
	ctx, cancel := s.db.Bound(ctx)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.db.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = `+pg.Milliseconds(s.db.Timeout/pg.LockedRowFraction)); err != nil {
			return err
		}
		locked, err := tx.Exec(ctx, statement("lockOpenBulk"), pg.UUID(bulk))
		if err != nil || locked.RowsAffected() == 0 {
			return err
		}
		items, err = pg.RowsIn(ctx, tx, scanBulkItem, statement("nextBulkItems"), pg.UUID(bulk), [16]byte(after), limit)
		if err != nil || len(items) == 0 {
			return err
		}
		within, ended := pg.Share(ctx, tx)
		defer ended()
		jobs, err := s.bulkJobs(within, pg.Column(items, func(i job.BulkItem) job.ID { return i.JobID }))
		if err != nil {
			return err
		}
		for i := range items {
			if j := jobs[items[i].JobID]; j != nil && j.ClientID == items[i].ClientID {
				items[i].Job = j
			}
		}
		done, err := do(within, items)
		if err != nil || len(done) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, statement("recordItems"), pg.UUID(bulk),
			pg.Column(done, func(i job.BulkItem) pgtype.UUID { return pg.UUID(i.JobID) }),
			pg.Column(done, func(i job.BulkItem) string { return string(i.Result) }),
			pg.Column(done, func(i job.BulkItem) *string { return pg.Nullable(string(i.Code)) }),
			pg.Column(done, func(i job.BulkItem) *string { return pg.Nullable(i.Detail) }),
			pg.UUID(items[0].JobID), pg.UUID(items[len(items)-1].JobID))
		return err
	})
	if err != nil {
		return items, s.db.Failed("bulk", err)
	}
	return items, nil
}

func (s *Store) bulkJobs(ctx context.Context, ids []job.ID) (map[job.ID]*job.Job, error) {
	jobs, err := pg.Query(ctx, s.db, func(row pgx.CollectableRow) (*job.Job, error) {
		var j job.Job
		return &j, scanJob(row, &j)
	}, statement("bulkJobs"), pg.Column(ids, pg.UUID))
	return pg.ByID(jobs, func(j *job.Job) job.ID { return j.ID }), err
}

// FinishBulk ends an operation if all its items have a result, and returns it. It returns false if an item has no result yet, or if the
// operation is already finished.
func (s *Store) FinishBulk(ctx context.Context, id job.ID) (*job.Bulk, bool, error) {
	return pg.First(pg.QueryAs(ctx, s.db, "bulk", scanBulk, statement("finishBulk"), pg.UUID(id)))
}

// RetryItems queues the next attempts of jobs and returns the results in order. If a job is no longer FAILED at the item's attempt,
// Changed is false in its job.Change. With `override`, RetryItems ignores whether the failures are retryable and how many attempts are
// left. RetryItems runs one statement in the transaction of ctx.
func (s *Store) RetryItems(ctx context.Context, retries []job.ItemRetry, override bool) ([]job.Change, error) {
	answers, err := s.retryJobs(ctx, s.db.Conn(ctx), pg.Column(retries, func(r job.ItemRetry) retryRequest {
		return retryRequest{client: r.Item.ClientID, id: r.Item.JobID, attempt: r.Item.Attempt, wait: r.Wait, lease: r.Lease, override: override}
	}))
	if err != nil {
		return nil, s.db.Failed("bulk", err)
	}
	for _, a := range answers {
		if errors.Is(a.Err, job.ErrLeaseEnded) { // the transaction is rolled back, and all items are tried again later
			return nil, a.Err
		}
	}
	return pg.Column(answers, func(a pg.Answer[job.Change]) job.Change { return a.Value }), nil
}

// CancelItems cancels unfinished jobs, and returns the earlier state of the jobs that it canceled. It runs one statement in the
// transaction of ctx.
func (s *Store) CancelItems(ctx context.Context, items []job.BulkItem) ([]job.Canceling, error) {
	requests := pg.Column(items, func(i job.BulkItem) cancelRequest { return cancelRequest{client: i.ClientID, id: i.JobID} })
	answers, err := s.cancelJobs(ctx, s.db.Conn(ctx), requests)
	if err != nil {
		return nil, s.db.Failed("bulk", err)
	}
	var done []job.Canceling
	for _, a := range answers {
		if a.Value.Before != nil {
			done = append(done, a.Value)
		}
	}
	return done, nil
}

// DeleteItems removes final jobs with all their data, if the jobs have not changed since the operation selected them. It returns the
// removed jobs. It runs one statement in the transaction of ctx.
func (s *Store) DeleteItems(ctx context.Context, items []job.BulkItem) ([]job.ID, error) {
	return pg.QueryAs(ctx, s.db, "bulk", pg.RowToID, statement("deleteItems"),
		pg.Column(items, func(i job.BulkItem) pgtype.UUID { return pg.UUID(i.JobID) }),
		pg.Column(items, func(i job.BulkItem) int { return i.EventSeq }))
}
