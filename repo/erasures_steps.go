package repo

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// Bounds of one part of an erasure, which is one short transaction.
const (
	eraseLimit    = 500    // rows
	eraseJobLimit = 100    // jobs, with what belongs to them
	eraseLook     = 2000   // rows looked at that may be removed
	countLook     = 10_000 // rows looked at to count them
)

// eraseFirst is the step that an erasure begins with: the default of the column.
const eraseFirst = "stop"

// eraseStep is one of the steps of an erasure, in their order. It reports that it is done
// when nothing is left that it could remove.
type eraseStep struct {
	name string
	run  func(*erasing, context.Context) (done bool, err error)
}

// eraseSteps remove what names others before these, and what can still be written before
// what it is written for:
//
//   - From the beginning on, new jobs, batches, webhooks, bulk operations and keys are
//     refused. settle waits for the transactions that did not see that.
//   - Jobs are canceled before the first is removed. One that was retried since is canceled
//     before it is.
//   - Deliveries are of a job or of a webhook, and go with it.
//   - settle_jobs waits for those who found a job before it went: its tombstone, and the item
//     of an operator's bulk operation, come before the steps that look for them.
//   - Events of no job are of webhooks and batches, which go before them.
//   - Then all is counted. If anything is left it begins again.
var eraseSteps = []eraseStep{
	{eraseFirst, (*erasing).stop},
	{"settle", (*erasing).settled},
	{"schedules", limited("schedules", eraseSchedules)},
	{"cancel", (*erasing).findUnfinished},
	{"waiting_deliveries", (*erasing).waitingDeliveries},
	{"jobs", (*erasing).jobs},
	{"settle_jobs", (*erasing).settled},
	{"webhooks", (*erasing).webhooks},
	{"batches", along("batches", eraseBatches)},
	{"tombstones", along("tombstones", eraseTombstones)},
	{"bulk_items", (*erasing).items},
	{"bulk_operations", limited("bulk_operations", eraseBulks)},
	{"testbed_sessions", limited("testbed_sessions", eraseSessions)},
	{"testbed_faults", limited("testbed_faults", eraseFaults)}, // once no session needs them
	{"testbed_exchanges", limited("testbed_exchanges", eraseExchanges)},
	{"client_events", limited("client_events", eraseClientEvents)},
	{"events", limited("events", eraseEvents)},
	{"idempotency_keys", limited("idempotency_keys", eraseAnswers)},
	{"client", (*erasing).client},
	{"count_deliveries", counted("deliveries", countDeliveries)},
	{"count_webhooks", counted("webhooks", countAllWebhooks)},
	{"count_batches", counted("batches", countBatches)},
	{"count_tombstones", counted("tombstones", countTombstones)},
	{"count_bulk_items", (*erasing).countItems},
	{"finish", (*erasing).finish},
}

// erasing is a part of an erasure under way.
type erasing struct {
	job.ErasureStep
	tx pgx.Tx
}

// EraseStep does the next part of an erasure. What it removes and how far it has come are
// one commit: whatever dies in between, a part is done once. ErasureStep.Erasure is nil if
// the erasure is done, or being worked on elsewhere.
func (s *Store) EraseStep(ctx context.Context, id job.ID) (job.ErasureStep, error) {
	var part erasing
	err := s.inTx(ctx, "erase", func(ctx context.Context, tx pgx.Tx) error {
		part = erasing{tx: tx}
		// Who waits here holds back the event streams of all clients.
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = `+milliseconds(s.cfg.Timeout/lockedRowFraction)); err != nil {
			return err
		}
		found, err := rowsIn(ctx, tx, scanErasure, lockErasure, uuid(id))
		if err != nil || len(found) == 0 {
			return err
		}
		part.Erasure = found[0]
		return part.advance(ctx)
	})
	if err != nil {
		return job.ErasureStep{}, err
	}
	return part.ErasureStep, nil
}

// advance does a part of the step, and begins the next one when it is done.
func (e *erasing) advance(ctx context.Context) error {
	n := stepNumber(eraseSteps, e.Erasure.Step)
	before, removed := e.Erasure.Position, maps.Clone(e.Erasure.Removed)
	done, err := eraseSteps[n].run(e, ctx)
	if err != nil || e.Erasure.FinishedAt != nil {
		e.Progress = true
		return err
	}
	e.Progress = done || len(e.Unfinished) > 0 || e.Erasure.Position != before || !maps.Equal(e.Erasure.Removed, removed)
	if done {
		e.Erasure.Position, e.Erasure.PositionJob = job.ID{}, job.ID{}
		e.Erasure.Step = eraseSteps[(n+1)%len(eraseSteps)].name
	}
	moved, err := rowsIn(ctx, e.tx, scanErasure, moveErasure, uuid(e.Erasure.ID), e.Erasure.Step, uuid(e.Erasure.Position),
		uuid(e.Erasure.PositionJob), e.Erasure.Removed, e.Erasure.Remaining)
	if err != nil {
		return err
	}
	e.Erasure = moved[0]
	return nil
}

// stepNumber gives the place of a step. One that this program does not know, of a later one,
// is done from the beginning: each may be repeated.
func stepNumber(steps []eraseStep, name string) int {
	for n, step := range steps {
		if step.name == name {
			return n
		}
	}
	return 0
}

func (e *erasing) removed(table string, n int) { e.Erasure.Removed[table] += n }

// stop ends what belongs to the client and acts by itself.
func (e *erasing) stop(ctx context.Context) (bool, error) {
	e.Erasure.Remaining = map[string]int{}
	if _, err := e.tx.Exec(ctx, stopErasedBulks, uuid(e.Erasure.ClientID)); err != nil {
		return false, err
	}
	var err error
	e.Endpoints, err = rowsIn(ctx, e.tx, rowToID, stopErasedWebhooks, uuid(e.Erasure.ClientID))
	return true, err
}

func (e *erasing) settled(ctx context.Context) (settled bool, err error) {
	return settled, e.tx.QueryRow(ctx, erasureSettled, uuid(e.Erasure.ID)).Scan(&settled)
}

// erasedJob is a job as it was found.
type erasedJob struct {
	id                job.ID
	open              bool
	attempt, dispatch int
}

func scanErasedJob(row pgx.CollectableRow) (j erasedJob, err error) {
	return j, row.Scan(scanID(&j.id), &j.open, &j.attempt, &j.dispatch)
}

// split notes which jobs must be canceled, and gives the others.
func (e *erasing) split(found []erasedJob) (final []job.ID) {
	for _, j := range found {
		if j.open {
			e.Unfinished = append(e.Unfinished, j.id)
		} else {
			final = append(final, j.id)
		}
	}
	return final
}

// findUnfinished looks for jobs that are to be canceled. A leader that dies before it has
// canceled them leaves them to the step that removes jobs.
func (e *erasing) findUnfinished(ctx context.Context) (bool, error) {
	found, err := rowsIn(ctx, e.tx, scanErasedJob, lookErasedJobs, uuid(e.Erasure.ClientID), [16]byte(e.Erasure.Position), eraseLimit)
	if err != nil {
		return false, err
	}
	e.split(found)
	if len(found) > 0 {
		e.Erasure.Position = found[len(found)-1].id
	}
	return len(found) < eraseLimit, nil
}

// deliveries removes deliveries that a statement chooses, and gives how many.
func (e *erasing) deliveries(ctx context.Context, sql string, args ...any) (int, error) {
	var ids []idScanner
	var attempts, left int
	if err := e.tx.QueryRow(ctx, sql, args...).Scan(&ids, &attempts); err != nil {
		return 0, err
	}
	gone := column(ids, func(id idScanner) [16]byte { return [16]byte(id) })
	if err := e.tx.QueryRow(ctx, countErasedAttempts, gone).Scan(&left); err != nil {
		return 0, err
	}
	if left > 0 {
		return 0, fmt.Errorf("%d attempts of deliveries came up while these were removed", left)
	}
	e.removed("deliveries", len(ids))
	e.removed("delivery_attempts", attempts)
	return len(ids), nil
}

// waitingDeliveries removes what would still be sent. What is being sent just now goes with
// its job or webhook.
func (e *erasing) waitingDeliveries(ctx context.Context) (bool, error) {
	n, err := e.deliveries(ctx, eraseWaitingDeliveries, uuid(e.Erasure.ClientID), eraseLimit)
	return n == 0, err
}

// jobs removes jobs with all that belongs to them. What is counted afterwards, in the same
// transaction, can be told to be the client's at no other time; nothing is written of a job
// without its row, which is locked.
func (e *erasing) jobs(ctx context.Context) (bool, error) {
	found, err := rowsIn(ctx, e.tx, scanErasedJob, chooseErasedJobs, uuid(e.Erasure.ClientID), eraseJobLimit)
	if err != nil {
		return false, err
	}
	if len(found) == 0 { // or all are locked
		var left bool
		err := e.tx.QueryRow(ctx, hasErasedJobs, uuid(e.Erasure.ClientID)).Scan(&left)
		return !left, err
	}
	ids := column(e.split(found), func(id job.ID) [16]byte { return [16]byte(id) })
	n, err := e.deliveries(ctx, eraseJobsDeliveries, ids, eraseLimit)
	if err != nil || n == eraseLimit {
		return false, err
	}
	var sent bool
	if err := e.tx.QueryRow(ctx, jobsHaveDeliveries, ids).Scan(&sent); err != nil || sent {
		return false, err
	}
	var outcomes, events, reports, results, jobs int
	if err := e.tx.QueryRow(ctx, eraseJobs, ids).Scan(&outcomes, &events, &reports, &results, &jobs); err != nil {
		return false, err
	}
	e.removed("outcome_outbox", outcomes)
	e.removed("events", events)
	e.removed("reports", reports)
	e.removed("results", results)
	e.removed("jobs", jobs)
	for _, j := range found {
		if !j.open {
			e.Tasks = append(e.Tasks, job.Task{JobID: j.id, Attempt: j.attempt, Dispatch: j.dispatch})
		}
	}
	err = e.tx.QueryRow(ctx, countErasedJobs, ids).Scan(&outcomes, &reports, &results)
	if err == nil && outcomes+reports+results > 0 {
		err = fmt.Errorf("%d outcomes, %d reports and %d results came up while their jobs were removed", outcomes, reports, results)
	}
	return false, err
}

// webhooks removes webhooks with their deliveries.
func (e *erasing) webhooks(ctx context.Context) (bool, error) {
	found, err := rowsIn(ctx, e.tx, scanErasedJob, lookErasedWebhooks, uuid(e.Erasure.ClientID), [16]byte(e.Erasure.Position), eraseLook)
	if err != nil {
		return false, err
	}
	var ids [][16]byte
	for _, w := range found {
		if w.open { // is the client's
			ids = append(ids, [16]byte(w.id))
		}
	}
	if len(ids) > 0 {
		n, err := e.deliveries(ctx, eraseWebhooksDelivery, ids, eraseLimit)
		if err != nil || n == eraseLimit {
			return false, err
		}
		var sent bool
		if err := e.tx.QueryRow(ctx, webhooksHaveDeliveries, ids).Scan(&sent); err != nil || sent {
			return false, err
		}
		tag, err := e.tx.Exec(ctx, eraseWebhooks, ids)
		if err != nil {
			return false, err
		}
		e.removed("webhooks", int(tag.RowsAffected()))
	}
	if len(found) > 0 {
		e.Erasure.Position = found[len(found)-1].id
	}
	return len(found) < eraseLook, nil
}

// client removes the client with its keys, which all processes forget.
func (e *erasing) client(ctx context.Context) (bool, error) {
	keys, err := rowsIn(ctx, e.tx, pgx.RowTo[string], eraseKeys, uuid(e.Erasure.ClientID))
	if err != nil {
		return false, err
	}
	if err := notifyKeys(ctx, e.tx, keys); err != nil {
		return false, err
	}
	tag, err := e.tx.Exec(ctx, eraseClient, uuid(e.Erasure.ClientID))
	e.removed("api_keys", len(keys))
	e.removed("clients", int(tag.RowsAffected()))
	return true, err
}

// finish counts what it can by client, and ends the erasure with its record if nothing is
// left. Otherwise all steps are done again.
func (e *erasing) finish(ctx context.Context) (bool, error) {
	var jobs, events, clientEvents, bulks, schedules, faults, sessions, exchanges, answers, keys, clients int
	var at time.Time
	if err := e.tx.QueryRow(ctx, countErased, uuid(e.Erasure.ClientID)).Scan(
		&jobs, &events, &clientEvents, &bulks, &schedules, &faults, &sessions, &exchanges, &answers, &keys, &clients, &at); err != nil {
		return false, err
	}
	e.Erasure.Remaining["jobs"], e.Erasure.Remaining["events"], e.Erasure.Remaining["client_events"] = jobs, events, clientEvents
	e.Erasure.Remaining["bulk_operations"], e.Erasure.Remaining["idempotency_keys"] = bulks, answers
	e.Erasure.Remaining["testbed_faults"], e.Erasure.Remaining["testbed_sessions"] = faults, sessions
	e.Erasure.Remaining["testbed_exchanges"], e.Erasure.Remaining["schedules"] = exchanges, schedules
	e.Erasure.Remaining["api_keys"], e.Erasure.Remaining["clients"] = keys, clients
	for _, n := range e.Erasure.Remaining {
		if n > 0 {
			return true, nil // the step after the last is the first
		}
	}
	if err := e.Erasure.Finish(at); err != nil {
		return false, err
	}
	_, err := e.tx.Exec(ctx, finishErasure, uuid(e.Erasure.ID), at, e.Erasure.Removed, e.Erasure.Remaining, e.Erasure.Record, e.Erasure.SHA256)
	return true, err
}
