package clients

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// Limits of one part of an erasure. Each part is a short transaction.
const (
	eraseLimit    = 500    // rows
	eraseJobLimit = 100    // jobs, with their data
	eraseLook     = 2000   // rows to read when searching for rows to remove
	countLook     = 10_000 // rows to read when counting the client's rows
)

type eraseStep struct {
	name    string
	inReset bool // the step is also part of a reset of a test bed
	run     func(*erasing, context.Context) (done bool, err error)
}

// The order of eraseSteps ensures that no new row appears in a table after the table's step:
//
//   - As soon as the erasure begins, new jobs, batches, webhooks, bulk operations and keys are
//     refused. The step settle waits for the transactions that did not see the erasure.
//   - Jobs are canceled before the first is removed. A job that is retried later is canceled again before its removal.
//   - Deliveries belong to a job or a webhook, and are removed with it.
//   - settle_jobs waits for transactions that read a job before its removal. Such a transaction may still write a
//     tombstone, or an item of an operator's bulk operation. Later steps remove both.
//   - Events without a job are removed after the webhooks and batches that they belong to.
//   - Then the steps count all rows. If any are left, the erasure begins again.
var eraseSteps = []eraseStep{
	{"stop", true, (*erasing).stop}, // the name is also the default of the column erasures.step
	{"settle", false, (*erasing).mayGoOn},
	{"schedules", true, limited("schedules", statement("eraseSchedules"))},
	{"cancel", true, (*erasing).findUnfinished},
	{"waiting_deliveries", true, (*erasing).waitingDeliveries},
	{"jobs", true, (*erasing).jobs},
	{"settle_jobs", false, (*erasing).mayGoOn},
	{"webhooks", true, (*erasing).webhooks},
	{"batches", true, along("batches", statement("eraseBatches"))},
	{"tombstones", true, along("tombstones", statement("eraseTombstones"))},
	{"bulk_items", true, along("bulk_items", statement("eraseItems"))},
	{"bulk_operations", true, limited("bulk_operations", statement("eraseBulks"))},
	{"testbed_sessions", false, limited("testbed_sessions", statement("eraseSessions"))},
	{"testbed_faults", true, limited("testbed_faults", statement("eraseFaults"))}, // a reset keeps the rules of open sessions with a profile
	{"testbed_exchanges", false, limited("testbed_exchanges", statement("eraseExchanges"))},
	{"testbed_requests", false, limited("testbed_requests", statement("eraseRequests"))},
	{"client_events", true, limited("client_events", statement("eraseClientEvents"))},
	{"events", false, limited("events", statement("eraseEvents"))},
	{"idempotency_keys", false, limited("idempotency_keys", statement("eraseAnswers"))},
	{"client", false, (*erasing).client},
	{"count_deliveries", false, counted("deliveries", statement("countDeliveries"))},
	{"count_webhooks", false, counted("webhooks", statement("countAllWebhooks"))},
	{"count_batches", false, counted("batches", statement("countBatches"))},
	{"count_tombstones", false, counted("tombstones", statement("countTombstones"))},
	{"count_bulk_items", false, counted("bulk_items", statement("countItems"))},
	{"finish", false, (*erasing).finish},
}

// resetSteps are the steps of a reset of a client's test bed. A reset does not refuse new rows, so it has no steps that wait for older
// transactions. Sessions and their recorded exchanges stay.
var resetSteps = append(slices.DeleteFunc(slices.Clone(eraseSteps), func(s eraseStep) bool { return !s.inReset }),
	eraseStep{"idempotency_keys", true, limited("idempotency_keys", statement("forgetAnswers"))})

func limited(table, sql string) func(*erasing, context.Context) (bool, error) {
	return func(e *erasing, ctx context.Context) (bool, error) {
		tag, err := e.tx.Exec(ctx, sql, pg.UUID(e.Erasure.ClientID), eraseLimit)
		n := int(tag.RowsAffected())
		e.removed(table, n)
		return n < eraseLimit, err
	}
}

func along(table, sql string) func(*erasing, context.Context) (bool, error) {
	return func(e *erasing, ctx context.Context) (bool, error) {
		return e.walk(ctx, sql, eraseLook, func(n int) { e.removed(table, n) })
	}
}

func counted(table, sql string) func(*erasing, context.Context) (bool, error) {
	return func(e *erasing, ctx context.Context) (bool, error) {
		return e.walk(ctx, sql, countLook, func(n int) { e.Erasure.Remaining[table] += n })
	}
}

// walk runs a statement that reads the next rows of a table, and may remove the client's rows. The statement returns the number of rows
// read, the last row read, and the number of the client's rows.
func (e *erasing) walk(ctx context.Context, sql string, look int, found func(n int)) (done bool, err error) {
	type looked struct {
		Looked        int
		Position, Job job.ID
		Found         int
	}
	l, _, err := pg.First(pg.RowsIn(ctx, e.tx, pgx.RowToStructByPos[looked], sql,
		pg.UUID(e.Erasure.ClientID), [16]byte(e.Erasure.Position), [16]byte(e.Erasure.PositionJob), look))
	if l.Looked > 0 {
		e.Erasure.Position, e.Erasure.PositionJob = l.Position, l.Job
		found(l.Found)
	}
	return l.Looked < look, err
}

func (e *erasing) stop(ctx context.Context) (bool, error) {
	e.Erasure.Remaining = map[string]int{}
	_, err := e.tx.Exec(ctx, statement("stopErasedBulks"), pg.UUID(e.Erasure.ClientID))
	if err == nil {
		_, err = e.tx.Exec(ctx, statement("stopErasedWebhooks"), pg.UUID(e.Erasure.ClientID))
	}
	return true, err
}

// mayGoOn reports whether all transactions that began before the current step have ended.
func (e *erasing) mayGoOn(ctx context.Context) (may bool, err error) {
	return may, e.tx.QueryRow(ctx, statement("erasureMayGoOn"), pg.UUID(e.Erasure.ID)).Scan(&may)
}

type erasedJob struct {
	ID                job.ID
	Open              bool
	Attempt, Dispatch int
}

func (e *erasing) split(found []erasedJob) (final [][16]byte) {
	for _, j := range found {
		if j.Open {
			e.Unfinished = append(e.Unfinished, j.ID)
		} else {
			final = append(final, j.ID)
		}
	}
	return final
}

// The leader cancels the found jobs after the commit. If it dies before that, the step "jobs" finds them again.
func (e *erasing) findUnfinished(ctx context.Context) (bool, error) {
	found, err := pg.RowsIn(ctx, e.tx, pgx.RowToStructByPos[erasedJob], statement("lookErasedJobs"),
		pg.UUID(e.Erasure.ClientID), [16]byte(e.Erasure.Position), eraseLimit)
	e.split(found)
	if len(found) > 0 {
		e.Erasure.Position = found[len(found)-1].ID
	}
	return len(found) < eraseLimit, err
}

func (e *erasing) deliveries(ctx context.Context, sql string, args ...any) (int, error) {
	var ids [][16]byte
	var tasks []job.ID
	var attempts, left int
	if err := e.tx.QueryRow(ctx, sql, args...).Scan(&ids, &tasks, &attempts); err != nil {
		return 0, err
	}
	e.Deliveries = append(e.Deliveries, tasks...)
	if err := e.tx.QueryRow(ctx, statement("countErasedAttempts"), ids).Scan(&left); err != nil {
		return 0, err
	}
	if left > 0 {
		return 0, fmt.Errorf("%d delivery attempts were added while the deliveries were removed", left)
	}
	e.removed("deliveries", len(ids))
	e.removed("delivery_attempts", attempts)
	return len(ids), nil
}

func (e *erasing) allDeliveries(ctx context.Context, ids [][16]byte) (gone bool, err error) {
	n, err := e.deliveries(ctx, statement("eraseDeliveries"), ids, eraseLimit)
	if err != nil || n == eraseLimit {
		return false, err
	}
	var left bool
	err = e.tx.QueryRow(ctx, statement("haveDeliveries"), ids).Scan(&left)
	return !left, err
}

// waitingDeliveries removes deliveries that are not being sent. The others are removed later with their job or webhook.
func (e *erasing) waitingDeliveries(ctx context.Context) (bool, error) {
	n, err := e.deliveries(ctx, statement("eraseWaitingDeliveries"), pg.UUID(e.Erasure.ClientID), eraseLimit)
	return n == 0, err
}

// jobs removes jobs with all their data. In the same transaction it checks that no data of these jobs is left, because such data could not
// be assigned to the client later. The jobs are locked, so that no other statement adds data to them meanwhile.
func (e *erasing) jobs(ctx context.Context) (bool, error) {
	found, err := pg.RowsIn(ctx, e.tx, pgx.RowToStructByPos[erasedJob], statement("chooseErasedJobs"),
		pg.UUID(e.Erasure.ClientID), eraseJobLimit)
	if err != nil {
		return false, err
	}
	if len(found) == 0 { // none are left, or all are locked
		var left bool
		err := e.tx.QueryRow(ctx, statement("hasErasedJobs"), pg.UUID(e.Erasure.ClientID)).Scan(&left)
		return !left, err
	}
	ids := e.split(found)
	if gone, err := e.allDeliveries(ctx, ids); err != nil || !gone {
		return false, err
	}
	var removed map[string]int
	if err := e.tx.QueryRow(ctx, statement("eraseJobs"), ids).Scan(&removed); err != nil {
		return false, err
	}
	for table, n := range removed {
		e.removed(table, n)
	}
	for _, j := range found {
		if !j.Open {
			e.Tasks = append(e.Tasks, job.Task{JobID: j.ID, Attempt: j.Attempt, Dispatch: j.Dispatch})
		}
	}
	var left int
	err = e.tx.QueryRow(ctx, statement("countErasedJobs"), ids).Scan(&left)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d outcomes, reports and results were added while their jobs were removed", left)
	}
	return false, err
}

func (e *erasing) webhooks(ctx context.Context) (bool, error) {
	type webhook struct {
		ID   job.ID
		Mine bool
	}
	found, err := pg.RowsIn(ctx, e.tx, pgx.RowToStructByPos[webhook], statement("lookErasedWebhooks"),
		pg.UUID(e.Erasure.ClientID), [16]byte(e.Erasure.Position), eraseLook)
	if err != nil || len(found) == 0 {
		return true, err
	}
	var ids [][16]byte
	for _, w := range found {
		if w.Mine {
			ids = append(ids, w.ID)
		}
	}
	if len(ids) > 0 {
		if gone, err := e.allDeliveries(ctx, ids); err != nil || !gone {
			return false, err
		}
		tag, err := e.tx.Exec(ctx, statement("eraseWebhooks"), ids)
		if err != nil {
			return false, err
		}
		e.removed("webhooks", int(tag.RowsAffected()))
	}
	e.Erasure.Position = found[len(found)-1].ID
	return len(found) < eraseLook, nil
}

func (e *erasing) client(ctx context.Context) (bool, error) {
	keys, err := forgetKeys(ctx, e.tx, statement("eraseKeys"), e.Erasure.ClientID)
	if err != nil {
		return false, err
	}
	tag, err := e.tx.Exec(ctx, statement("eraseClient"), pg.UUID(e.Erasure.ClientID))
	e.removed("api_keys", keys)
	e.removed("clients", int(tag.RowsAffected()))
	return true, err
}

func (e *erasing) finish(ctx context.Context) (bool, error) {
	var counts map[string]int
	var at time.Time
	if err := e.tx.QueryRow(ctx, statement("countErased"), pg.UUID(e.Erasure.ClientID)).Scan(&counts, &at); err != nil {
		return false, err
	}
	maps.Copy(e.Erasure.Remaining, counts)
	for _, n := range e.Erasure.Remaining {
		if n > 0 {
			return true, nil // rows are left, so the erasure starts again
		}
	}
	if err := e.Erasure.Finish(at); err != nil {
		return false, err
	}
	_, err := e.tx.Exec(ctx, statement("finishErasure"),
		pg.UUID(e.Erasure.ID), at, e.Erasure.Removed, e.Erasure.Remaining, e.Erasure.Record, e.Erasure.SHA256)
	return true, err
}
