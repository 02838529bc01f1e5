package repo

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

var (
	lockErasure            = statement("lockErasure")
	moveErasure            = statement("moveErasure")
	finishErasure          = statement("finishErasure")
	erasureSettled         = statement("erasureSettled")
	stopErasedBulks        = statement("stopErasedBulks")
	stopErasedWebhooks     = statement("stopErasedWebhooks")
	lookErasedJobs         = statement("lookErasedJobs")
	chooseErasedJobs       = statement("chooseErasedJobs")
	hasErasedJobs          = statement("hasErasedJobs")
	eraseWaitingDeliveries = statement("eraseWaitingDeliveries")
	eraseJobsDeliveries    = statement("eraseJobsDeliveries")
	eraseWebhooksDelivery  = statement("eraseWebhooksDeliveries")
	countErasedAttempts    = statement("countErasedAttempts")
	jobsHaveDeliveries     = statement("jobsHaveDeliveries")
	webhooksHaveDeliveries = statement("webhooksHaveDeliveries")
	eraseJobs              = statement("eraseJobs")
	countErasedJobs        = statement("countErasedJobs")
	lookErasedWebhooks     = statement("lookErasedWebhooks")
	eraseWebhooks          = statement("eraseWebhooks")
	eraseBatches           = statement("eraseAlong", "{{table}}", "batches", "{{key}}", "batch_id")
	eraseTombstones        = statement("eraseAlong", "{{table}}", "tombstones", "{{key}}", "job_id")
	lockErasedItems        = statement("lockErasedItems")
	eraseItems             = statement("eraseItems")
	eraseBulks             = statement("eraseBulks")
	eraseClientEvents      = statement("eraseClientEvents")
	eraseEvents            = statement("eraseEvents")
	eraseAnswers           = statement("eraseAnswers")
	eraseKeys              = statement("eraseKeys")
	eraseClient            = statement("eraseClient")
	countDeliveries        = statement("countAlong", "{{table}}", "deliveries", "{{key}}", "delivery_id")
	countAllWebhooks       = statement("countAlong", "{{table}}", "webhooks", "{{key}}", "webhook_id")
	countBatches           = statement("countAlong", "{{table}}", "batches", "{{key}}", "batch_id")
	countTombstones        = statement("countAlong", "{{table}}", "tombstones", "{{key}}", "job_id")
	countItems             = statement("countItems")
	eraseSchedules         = statement("eraseSchedules")
	eraseFaults            = statement("eraseFaults")
	eraseSessions          = statement("eraseSessions")
	eraseExchanges         = statement("eraseExchanges")
	countErased            = statement("countErased")
)

// limited makes a step of a statement that removes so many rows of a table.
func limited(table, sql string) func(*erasing, context.Context) (bool, error) {
	return func(e *erasing, ctx context.Context) (bool, error) {
		tag, err := e.tx.Exec(ctx, sql, uuid(e.Erasure.ClientID), eraseLimit)
		n := int(tag.RowsAffected())
		e.removed(table, n)
		return n < eraseLimit, err
	}
}

// along makes a step that walks a table by primary key, and removes the client's rows.
func along(table, sql string) func(*erasing, context.Context) (bool, error) {
	return func(e *erasing, ctx context.Context) (bool, error) {
		n, done, err := e.walk(ctx, sql, eraseLook)
		e.removed(table, n)
		return done, err
	}
}

// counted makes a step that walks a table by primary key, and counts the client's rows.
func counted(table, sql string) func(*erasing, context.Context) (bool, error) {
	return func(e *erasing, ctx context.Context) (bool, error) {
		n, done, err := e.walk(ctx, sql, countLook)
		e.Erasure.Remaining[table] += n
		return done, err
	}
}

// walk sends a statement that looks at the next rows of a table, and answers with what it
// found.
func (e *erasing) walk(ctx context.Context, sql string, look int) (n int, done bool, err error) {
	var looked int
	var last job.ID
	err = e.tx.QueryRow(ctx, sql, uuid(e.Erasure.ClientID), [16]byte(e.Erasure.Position), look).Scan(&looked, scanID(&last), &n)
	if err == nil && looked > 0 {
		e.Erasure.Position = last
	}
	return n, looked < look, err
}

// lookedItems are items of bulk operations that were looked at.
type lookedItems struct {
	looked     int
	bulk, job  job.ID // the last one
	bulks, ids []idScanner
	n          int
}

// items removes items of bulk operations: the client's, and those of its jobs in
// operations of operators.
func (e *erasing) items(ctx context.Context) (bool, error) {
	found, err := rowsIn(ctx, e.tx, func(row pgx.CollectableRow) (l lookedItems, err error) {
		return l, row.Scan(&l.looked, scanID(&l.bulk), scanID(&l.job), &l.bulks, &l.ids, &l.n)
	}, lockErasedItems, uuid(e.Erasure.ClientID), [16]byte(e.Erasure.Position), [16]byte(e.Erasure.PositionJob), eraseLook)
	if err != nil || len(found) == 0 {
		return len(found) == 0, err
	}
	l := found[0]
	if len(l.ids) > 0 {
		raw := func(id idScanner) [16]byte { return [16]byte(id) }
		var n int
		if err := e.tx.QueryRow(ctx, eraseItems, column(l.bulks, raw), column(l.ids, raw)).Scan(&n); err != nil {
			return false, err
		}
		e.removed("bulk_items", n)
	}
	return e.behind(l), nil
}

func (e *erasing) countItems(ctx context.Context) (bool, error) {
	found, err := rowsIn(ctx, e.tx, func(row pgx.CollectableRow) (l lookedItems, err error) {
		return l, row.Scan(&l.looked, scanID(&l.bulk), scanID(&l.job), &l.n)
	}, countItems, uuid(e.Erasure.ClientID), [16]byte(e.Erasure.Position), [16]byte(e.Erasure.PositionJob), eraseLook)
	if err != nil || len(found) == 0 {
		return len(found) == 0, err
	}
	e.Erasure.Remaining["bulk_items"] += found[0].n
	return e.behind(found[0]), nil
}

// behind has the step go on behind the items, and reports whether they were the last.
func (e *erasing) behind(l lookedItems) bool {
	e.Erasure.Position, e.Erasure.PositionJob = l.bulk, l.job
	return l.looked < eraseLook
}
