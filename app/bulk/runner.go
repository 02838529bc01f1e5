package bulk

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// The Runner applies a bulk operation to its items in parts. Each part is a transaction. After a part, the Runner pauses for as long as the
// part took.
const (
	roundTime    = time.Second // maximum duration of a round; new operations start in the next round
	gatherAtOnce = 2000        // jobs that one statement adds to an operation
	itemsAtOnce  = 50
	maxRate      = job.MaxBulkRate // items per second, for all operations together
	maxCatchUp   = time.Second     // a token bucket contains at most the tokens of one second
)

// Runner applies bulk operations in parts. Only one goroutine may use it.
type Runner struct {
	store   *repo.Store
	jobs    *jobs.Service
	metrics *app.Metrics
	log     *slog.Logger
	turns   turns
}

// NewRunner returns a Runner.
func NewRunner(store *repo.Store, jobs *jobs.Service, metrics *app.Metrics, log *slog.Logger) *Runner {
	return &Runner{store: store, jobs: jobs, metrics: metrics, log: log}
}

// Round applies parts of the unfinished operations, for at most roundTime. An operation that fails does not delay the others.
func (r *Runner) Round(ctx context.Context, leading func() bool) error {
	open, err := r.store.OpenBulks(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	r.turns.begin(open, began)
	var errs []error
	for len(open) > 0 && leading() && ctx.Err() == nil && time.Since(began) < roundTime {
		n := r.turns.next(open)
		b, part := open[n], time.Now()
		after, err := r.advance(ctx, b)
		if err != nil {
			errs = append(errs, err)
			r.log.WarnContext(ctx, "bulk operation makes no progress", "action", "bulk", "bulk_id", b.ID.String(), app.ErrorFields(err))
		}
		if after == nil {
			open = slices.Delete(open, n, n+1)
			continue
		}
		open[n] = after
		app.Sleep(ctx, time.Since(part))
	}
	return errors.Join(errs...)
}

// advance does the next step of an operation: collect items, process some items, or finish. If this round can do no more for the
// operation, advance returns nil, and otherwise the operation.
func (r *Runner) advance(ctx context.Context, b *job.Bulk) (*job.Bulk, error) {
	if b.GatheredAt == nil {
		r.turns.take(b)
		next, ok, err := r.store.GatherBulk(ctx, b, gatherAtOnce, job.MaxBulkItems)
		if err != nil || !ok {
			return nil, err
		}
		return next, nil
	}
	if b.Done < b.Total {
		switch more, err := r.doItems(ctx, b); {
		case err != nil:
			return nil, err
		case more:
			return b, nil
		}
	}
	finished, ok, err := r.store.FinishBulk(ctx, b.ID)
	if ok {
		logBulk(ctx, r.log, "bulk operation done", "finish_bulk", finished)
	}
	return nil, err
}

// doItems applies the operation to the next items. `more` is true if this round can process further items. If no item got a result, the
// remaining items wait for the next round.
func (r *Runner) doItems(ctx context.Context, b *job.Bulk) (more bool, err error) {
	w := r.turns.work[b.ID]
	limit := min(itemsAtOnce, r.turns.allowed(b))
	if limit < 1 {
		return false, nil
	}
	r.turns.take(b)
	taken, ended, err := r.part(ctx, b, w.after, limit)
	r.turns.spend(b, len(taken))
	switch {
	case err != nil:
		return false, err
	case len(taken) < limit: // no items are left: the next round starts again with the first unfinished item
		w.after = job.ID{}
		return false, nil
	}
	w.after = taken[len(taken)-1].JobID
	return ended > 0, nil
}

// part applies the operation to some items in one transaction. If the transaction fails, each item gets its own transaction. So one
// locked job does not block the other jobs.
func (r *Runner) part(ctx context.Context, b *job.Bulk, after job.ID, limit int) (taken []job.BulkItem, ended int, err error) {
	taken, ended, err = r.commit(ctx, b, after, limit, r.jobs.DoItems)
	if err == nil || len(taken) == 0 || ctx.Err() != nil || job.CodeOf(err) == job.CodeStorageUnavailable {
		return taken, ended, err
	}
	for _, i := range taken {
		n, err := r.single(ctx, b, after)
		if err != nil {
			return taken, ended, err
		}
		ended += n
		after = i.JobID
	}
	return taken, ended, nil
}

// single applies the operation to the first item after the job id `after`. If storage rejects the change, the item fails. Other errors
// are retried later.
func (r *Runner) single(ctx context.Context, b *job.Bulk, after job.ID) (ended int, err error) {
	_, ended, err = r.commit(ctx, b, after, 1, r.jobs.DoItems)
	if app.Refused(err) {
		_, ended, err = r.commit(ctx, b, after, 1, func(_ context.Context, _ *job.Bulk, items []job.BulkItem) ([]job.BulkItem, error) {
			for n, i := range items {
				items[n] = i.End(job.ItemFailed, job.CodeInternal, "The job could not be changed.")
			}
			return items, nil
		})
	}
	if err != nil && ctx.Err() == nil && job.CodeOf(err) != job.CodeStorageUnavailable {
		r.log.WarnContext(ctx, "skipping an item of a bulk operation for now", "action", "bulk", "bulk_id", b.ID.String(), app.ErrorFields(err))
		return 0, nil
	}
	return ended, err
}

func (r *Runner) commit(ctx context.Context, b *job.Bulk, after job.ID, limit int,
	do func(context.Context, *job.Bulk, []job.BulkItem) ([]job.BulkItem, error),
) (taken []job.BulkItem, n int, err error) {
	err = app.Within(ctx, func(ctx context.Context) error {
		var ended []job.BulkItem
		taken, err = r.store.DoItems(ctx, b.ID, after, limit, func(ctx context.Context, items []job.BulkItem) ([]job.BulkItem, error) {
			ended, err = do(ctx, b, items)
			return ended, err
		})
		app.AfterCommit(ctx, func() {
			n = len(ended)
			for _, i := range ended {
				r.metrics.BulkItems.WithLabelValues(string(b.Action), string(i.Result)).Inc()
			}
		})
		return err
	})
	return taken, n, err
}
