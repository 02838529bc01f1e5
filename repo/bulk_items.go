package repo

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

var (
	openBulks          = statement("openBulks")
	gatherBulkOfClient = statement("gatherBulk", bulkOfClient...)
	gatherBulkOfBatch  = statement("gatherBulk", bulkOfBatch...)
	gatherBulkOfAll    = statement("gatherBulk", bulkOfAll...)
	lockOpenBulk       = statement("lockOpenBulk")
	nextBulkItems      = statement("nextBulkItems")
	bulkJobs           = statement("bulkJobs")
	deleteItems        = statement("deleteItems")
	recordItems        = statement("recordItems")
	finishBulk         = statement("finishBulk")
)

// maxOpenBulks is far above the number of open operations that there may be.
const maxOpenBulks = 1000

// OpenBulks reads all operations that are not finished, the oldest first: they are few.
func (s *Store) OpenBulks(ctx context.Context) ([]*job.Bulk, error) {
	return queryRows(ctx, s, scanBulk, openBulks, maxOpenBulks)
}

// GatherBulk looks at the next jobs of an operation, at so many of them, and takes those
// that match as its items. It gives the operation as it is then; false if another process
// did that, or it is finished.
func (s *Store) GatherBulk(ctx context.Context, b *job.Bulk, look, most int) (*job.Bulk, bool, error) {
	args := append(bulkArgs(b.JobsOf(), b.Filter, b.Position, b.CreatedAt), look, uuid(b.ID), uuid(b.Position), most)
	rows, err := queryRowsAs(ctx, s, "gather", scanBulk,
		bulkStatement(b.JobsOf(), b.Filter, gatherBulkOfClient, gatherBulkOfBatch, gatherBulkOfAll), args...)
	if err != nil || len(rows) == 0 {
		return b, false, err
	}
	return rows[0], true, nil
}

// DoItems takes the next items of an operation that have no result, after the given job
// and limit of them at most, with their jobs as they are now. do changes the jobs through
// this store, with the context that it is given, and gives the items that have a result
// now; the others stay. The changes and the results are one commit, so each item has its
// effect once, whatever dies in between (see recordItems).
//
// It answers with the items that it took: none, if they all have a result, or the
// operation is finished or being worked on elsewhere. A job that another transaction has
// locked fails all of them, soon.
func (s *Store) DoItems(ctx context.Context, bulk, after job.ID, limit int,
	do func(context.Context, []job.BulkItem) ([]job.BulkItem, error),
) (items []job.BulkItem, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if items, err = s.nextItems(ctx, tx, bulk, after, limit); err != nil || len(items) == 0 {
			return err
		}
		shared := &sharedTx{Tx: tx}
		defer shared.ended.Store(true)
		within := context.WithValue(ctx, sharedTxKey{}, shared)
		jobs, err := s.bulkJobs(within, column(items, func(i job.BulkItem) job.ID { return i.JobID }))
		if err != nil {
			return err
		}
		for i := range items {
			if j := jobs[items[i].JobID]; j != nil && j.ClientID == items[i].ClientID {
				items[i].Job = j
			}
		}
		ended, err := do(within, items)
		if err != nil || len(ended) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, recordItems, uuid(bulk),
			column(ended, func(i job.BulkItem) pgtype.UUID { return uuid(i.JobID) }),
			column(ended, func(i job.BulkItem) string { return string(i.Result) }),
			column(ended, func(i job.BulkItem) *string { return nullable(string(i.Code)) }),
			column(ended, func(i job.BulkItem) *string { return nullable(i.Detail) }),
			uuid(items[0].JobID), uuid(items[len(items)-1].JobID))
		return err
	})
	if err != nil {
		return items, s.failed("bulk", err)
	}
	return items, nil
}

// nextItems locks an operation and reads its next items.
func (s *Store) nextItems(ctx context.Context, tx pgx.Tx, bulk, after job.ID, limit int) ([]job.BulkItem, error) {
	if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = `+milliseconds(s.cfg.Timeout/lockedRowFraction)); err != nil {
		return nil, err
	}
	tag, err := tx.Exec(ctx, lockOpenBulk, uuid(bulk))
	if err != nil || tag.RowsAffected() == 0 {
		return nil, err
	}
	rows, err := tx.Query(ctx, nextBulkItems, uuid(bulk), [16]byte(after), limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanBulkItem)
}

func (s *Store) bulkJobs(ctx context.Context, ids []job.ID) (map[job.ID]*job.Job, error) {
	jobs, err := queryRows(ctx, s, func(row pgx.CollectableRow) (*job.Job, error) {
		var j job.Job
		return &j, scanJob(row, &j)
	}, bulkJobs, column(ids, uuid))
	found := make(map[job.ID]*job.Job, len(jobs))
	for _, j := range jobs {
		found[j.ID] = j
	}
	return found, err
}

// FinishBulk ends an operation whose items all have a result, and gives it; false if it
// has others, or is finished.
func (s *Store) FinishBulk(ctx context.Context, id job.ID) (*job.Bulk, bool, error) {
	rows, err := queryRowsAs(ctx, s, "bulk", scanBulk, finishBulk, uuid(id))
	if err != nil || len(rows) == 0 {
		return nil, false, err
	}
	return rows[0], true, nil
}

// RetryItems queues the next attempts of jobs, and gives what became of each in their
// order: Changed is false for one that was not FAILED at its attempt any more. With
// override it does so whether their failures are retryable or not, and beyond their
// attempts. All are one statement, of the transaction that ctx is of.
func (s *Store) RetryItems(ctx context.Context, retries []job.ItemRetry, override bool) ([]job.Change, error) {
	statement := retryJobs
	if override {
		statement = retryAnyway
	}
	answers, err := s.retryBy(ctx, s.db(ctx), statement, column(retries, func(r job.ItemRetry) retryRequest {
		return retryRequest{client: r.Item.ClientID, id: r.Item.JobID, attempt: r.Item.Attempt, wait: r.Wait}
	}))
	if err != nil {
		return nil, s.failed("bulk", err)
	}
	return column(answers, func(a answer[job.Change]) job.Change { return a.value }), nil
}

// CancelItems ends jobs that are not final, and gives those as CancelAll does. All are
// one statement, of the transaction that ctx is of.
func (s *Store) CancelItems(ctx context.Context, items []job.BulkItem) ([]job.Canceling, error) {
	requests := column(items, func(i job.BulkItem) cancelRequest { return cancelRequest{client: i.ClientID, id: i.JobID} })
	answers, err := s.cancelJobs(ctx, s.db(ctx), requests)
	if err != nil {
		return nil, s.failed("bulk", err)
	}
	var done []job.Canceling
	for _, a := range answers {
		if a.value.before != nil {
			done = append(done, job.Canceling{Change: a.value.Change, Before: a.value.before})
		}
	}
	return done, nil
}

// DeleteItems removes final jobs that have not changed since they were gathered, with all
// that belongs to them, and gives those. All are one statement, of the transaction that
// ctx is of.
func (s *Store) DeleteItems(ctx context.Context, items []job.BulkItem) ([]job.ID, error) {
	return queryRowsAs(ctx, s, "bulk", rowToID, deleteItems,
		column(items, func(i job.BulkItem) pgtype.UUID { return uuid(i.JobID) }),
		column(items, func(i job.BulkItem) int { return i.EventSeq }))
}

// CountsInBatch reports whether a job's end still counts in the outcome of an open batch,
// so that it cannot be deleted.
func (s *Store) CountsInBatch(ctx context.Context, id job.ID) (bool, error) {
	counts, _, err := queryFirst(ctx, s, pgx.RowTo[bool], inOpenBatch, uuid(id))
	return counts, err
}
