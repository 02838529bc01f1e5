package bulk

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
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
	// DoItems does the action of an operation to items. Those that it gives have a result;
	// for the others there is no room at the moment.
	DoItems(ctx context.Context, operation *job.Bulk, items []job.BulkItem) ([]job.BulkItem, error)
}

// Bounds of the work beside others': each part is one short transaction, and the Runner
// rests after it for as long as it took.
const (
	roundTime    = time.Second // operations that begin meanwhile have their turn in the next round
	gatherAtOnce = 2000        // jobs that one statement looks at
	itemsAtOnce  = 50
	maxRate      = job.MaxBulkRate // items per second of all operations together
	maxCatchUp   = time.Second     // of the rate, after a pause
)

// Runner does the operations, one part after the other. All that it knows of them is in
// storage, but for their rates, their order, and where it saves itself to look again.
type Runner struct {
	store   WorkStore
	jobs    Jobs
	metrics *app.Metrics
	log     *slog.Logger
	clock   app.Clock

	budget tokens // of all operations
	work   map[job.ID]*work
	parts  int // that were done
}

// work is what the Runner knows of an operation.
type work struct {
	budget tokens
	after  job.ID // the item taken last; zero: from the first one on
	turn   int    // the number of its last part
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

// Round does parts of the open operations until their rates, that of all together, or its time are used up. The next part
// is always of the owner whose last one is longest ago: the small operation of one waits for a part of each of the others,
// however many operations they have. An operation that fails does not keep the others.
func (r *Runner) Round(ctx context.Context, leading func() bool) error {
	open, err := r.store.OpenBulks(ctx)
	if err != nil {
		return err
	}
	began := r.clock()
	r.forget(open)
	r.budget.refill(began, maxRate)
	for _, b := range open {
		r.work[b.ID].budget.refill(began, b.Rate)
	}
	var errs []error
	for len(open) > 0 && leading() && ctx.Err() == nil && r.clock().Sub(began) < roundTime {
		n := r.next(open)
		b, step := open[n], r.clock()
		after, err := r.advance(ctx, b)
		if err != nil {
			errs = append(errs, err)
			r.log.WarnContext(ctx, "bulk operation does not get on", "action", "bulk", "bulk_id", b.ID.String(), app.ErrorFields(err))
		}
		if after == nil {
			open = slices.Delete(open, n, n+1)
			continue
		}
		open[n] = after
		app.Sleep(ctx, r.clock().Sub(step))
	}
	return errors.Join(errs...)
}

// next is the place of the operation whose turn it is: of its owner's, the one whose last part is longest ago.
func (r *Runner) next(open []*job.Bulk) int {
	owners := map[job.BulkOwner]int{}
	for _, b := range open {
		owners[b.Owner] = max(owners[b.Owner], r.work[b.ID].turn)
	}
	first := 0
	for n, b := range open {
		if c := cmp.Compare(owners[b.Owner], owners[open[first].Owner]); c < 0 || c == 0 && r.work[b.ID].turn < r.work[open[first].ID].turn {
			first = n
		}
	}
	return first
}

// begin notes that a part of an operation is done now.
func (r *Runner) begin(b *job.Bulk) {
	r.parts++
	r.work[b.ID].turn = r.parts
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

// advance does the next part of an operation, and gives it as it is then; nil if nothing more can be done in this round.
func (r *Runner) advance(ctx context.Context, b *job.Bulk) (*job.Bulk, error) {
	if b.GatheredAt == nil {
		r.begin(b)
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

// doItems does as many items as one part has and the rates allow, and reports whether there may be more. Where there is no
// room for any of a part, the next round goes on.
func (r *Runner) doItems(ctx context.Context, b *job.Bulk) (more bool, err error) {
	w := r.work[b.ID]
	limit := min(itemsAtOnce, int(w.budget.n), int(r.budget.n))
	if limit < 1 {
		return false, nil
	}
	r.begin(b)
	taken, ended, err := r.part(ctx, b, w.after, limit)
	w.budget.n -= float64(len(taken))
	r.budget.n -= float64(len(taken))
	switch {
	case err != nil:
		return false, err
	case len(taken) < limit: // the next ones, if any, are those that were left
		w.after = job.ID{}
		return false, nil
	}
	w.after = taken[len(taken)-1].JobID
	return ended > 0, nil
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
