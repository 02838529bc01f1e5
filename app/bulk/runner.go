package bulk

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// WorkStore is what the Runner needs of storage.
type WorkStore interface {
	OpenBulks(ctx context.Context) ([]*job.Bulk, error)
	// GatherBulk takes those of the next jobs that match as items; false if another
	// process does.
	GatherBulk(ctx context.Context, b *job.Bulk, look, most int) (*job.Bulk, bool, error)
	// DoItems takes the next items after a job, and commits what do changes with the
	// results that it gives.
	DoItems(ctx context.Context, bulk, after job.ID, limit int, do func(context.Context, []job.BulkItem) ([]job.BulkItem, error)) (
		items []job.BulkItem, err error)
	// FinishBulk ends an operation whose items all have a result; false if there are others.
	FinishBulk(ctx context.Context, id job.ID) (*job.Bulk, bool, error)
}

// Jobs changes jobs.
type Jobs interface {
	// Freshen is called before jobs are queued.
	Freshen(ctx context.Context) error
	// DoItems does the action of an operation to items. Those that it gives have a result;
	// for the others there is no room at the moment.
	DoItems(ctx context.Context, operation *job.Bulk, items []job.BulkItem) ([]job.BulkItem, error)
}

// Bounds of the work beside others': each part is one short transaction, and the Runner
// rests after it for as long as it took.
const (
	gatherAtOnce = 2000 // jobs that one statement looks at
	gatherTime   = 100 * time.Millisecond
	itemsAtOnce  = 50
	maxRate      = job.MaxBulkRate // items per second of all operations together
	maxCatchUp   = time.Second     // of the rate, after a pause
)

// Runner does the operations, one part after the other. All that it knows of them is in
// storage, but for their rates, and where it saves itself to look again.
type Runner struct {
	store   WorkStore
	jobs    Jobs
	metrics *app.Metrics
	log     *slog.Logger
	clock   app.Clock

	budget tokens // of all operations
	work   map[job.ID]*work
	turn   int // which operation comes first in the next round
}

// work is what the Runner knows of an operation.
type work struct {
	budget tokens
	after  job.ID // the item taken last; zero: from the first one on
}

// tokens are how many items may be done now.
type tokens struct {
	n  float64
	at time.Time // when they were counted; zero at the beginning
}

// refill adds what has come up at a rate per second.
func (t *tokens) refill(now time.Time, rate int) {
	if t.at.IsZero() {
		*t = tokens{1, now}
		return
	}
	t.n = min(t.n+max(0, now.Sub(t.at)).Seconds()*float64(rate), maxCatchUp.Seconds()*float64(rate))
	t.at = now
}

// NewRunner makes a runner; the clock is time.Now if nil. It is used by one goroutine.
func NewRunner(store WorkStore, jobs Jobs, metrics *app.Metrics, clock app.Clock, log *slog.Logger) *Runner {
	if clock == nil {
		clock = time.Now
	}
	return &Runner{store: store, jobs: jobs, metrics: metrics, log: log, clock: clock, work: map[job.ID]*work{}}
}

// Round does as much of each open operation as its rate, and that of all together, allows
// now. An operation that fails does not keep the others.
func (r *Runner) Round(ctx context.Context, leading func() bool) error {
	open, err := r.store.OpenBulks(ctx)
	if err != nil {
		return err
	}
	r.forget(open)
	r.budget.refill(r.clock(), maxRate)
	var errs []error
	for n := range open {
		if !leading() {
			return nil
		}
		b := open[(n+r.turn)%len(open)]
		if err := r.advance(ctx, leading, b); err != nil {
			errs = append(errs, err)
			r.log.WarnContext(ctx, "bulk operation does not get on", "action", "bulk", "bulk_id", b.ID.String(), app.ErrorFields(err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	r.turn++
	return errors.Join(errs...)
}

// forget drops what is known of operations that are not open any more.
func (r *Runner) forget(open []*job.Bulk) {
	known := r.work
	r.work = make(map[job.ID]*work, len(open))
	for _, b := range open {
		w := known[b.ID]
		if w == nil {
			w = &work{}
		}
		r.work[b.ID] = w
	}
}

// advance does the next part of an operation.
func (r *Runner) advance(ctx context.Context, leading func() bool, b *job.Bulk) error {
	if b.GatheredAt == nil {
		return r.gather(ctx, leading, b)
	}
	if b.Done < b.Total {
		if err := r.doItems(ctx, leading, b); err != nil {
			return err
		}
	}
	finished, ok, err := r.store.FinishBulk(ctx, b.ID)
	if ok {
		logBulk(ctx, r.log, "bulk operation done", "finish_bulk", finished)
	}
	return err
}

// gather looks for the items of an operation, for a while.
func (r *Runner) gather(ctx context.Context, leading func() bool, b *job.Bulk) error {
	for began := r.clock(); leading() && r.clock().Sub(began) < gatherTime; {
		step := r.clock()
		next, ok, err := r.store.GatherBulk(ctx, b, gatherAtOnce, job.MaxBulkItems)
		if err != nil || !ok || next.GatheredAt != nil || !r.rest(ctx, step) {
			return err
		}
		b = next
	}
	return nil
}

// rest waits for as long as it took since a moment; false if ctx ended.
func (r *Runner) rest(ctx context.Context, since time.Time) bool {
	return app.Sleep(ctx, r.clock().Sub(since))
}

// doItems does items as the rates allow. Where there is no room for any of a part, the
// next round goes on.
func (r *Runner) doItems(ctx context.Context, leading func() bool, b *job.Bulk) error {
	w := r.work[b.ID]
	w.budget.refill(r.clock(), b.Rate)
	if b.Action == job.BulkRetry {
		if err := r.jobs.Freshen(ctx); err != nil {
			return err
		}
	}
	for leading() {
		limit := min(itemsAtOnce, int(w.budget.n), int(r.budget.n))
		if limit < 1 {
			return nil
		}
		began := r.clock()
		taken, ended, err := r.part(ctx, b, w.after, limit)
		w.budget.n -= float64(len(taken))
		r.budget.n -= float64(len(taken))
		switch {
		case err != nil:
			return err
		case len(taken) < limit: // the next ones, if any, are those that were left
			w.after = job.ID{}
			return nil
		}
		w.after = taken[len(taken)-1].JobID
		if ended == 0 || !r.rest(ctx, began) {
			return nil
		}
	}
	return nil
}

// part does some items in one transaction. If that fails, each of them gets one of its
// own: a job that is locked or damaged must not keep the others.
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

// single does the one item after a job. What storage will not take, however often it is
// offered, is the item's result; one that fails otherwise has its turn later.
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
		r.log.WarnContext(ctx, "item of a bulk operation is left for later", "action", "bulk", "bulk_id", b.ID.String(), app.ErrorFields(err))
		return 0, nil
	}
	return ended, err
}

// commit does items in one transaction, and counts them after it.
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
