package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/forgerun/forgerun/job"
)

// RelayStore is what the relay needs of storage.
type RelayStore interface {
	Epoch(ctx context.Context) (epoch int64, redisRunID string, err error)
	RaiseEpoch(ctx context.Context, current int64, redisRunID string) error
	Undispatched(ctx context.Context, epoch int64, after job.Place, horizon, minAge time.Duration, limit int) ([]job.Task, error)
	Overdue(ctx context.Context, epoch int64, after job.Place, age time.Duration, limit int) ([]job.Task, error)
	Stamp(ctx context.Context, epoch int64, tasks []job.Task) error
	Redispatch(ctx context.Context, tasks []job.Task) ([]job.Task, error)
}

// RelayQueue is the queue as the relay sees it: every call waits for its
// answer.
type RelayQueue interface {
	Dispatch(ctx context.Context, tasks []job.Task) ([]job.Dispatched, error)
	Missing(ctx context.Context, tasks []job.Task) ([]job.Task, error)
	Epoch(ctx context.Context) (epoch int64, runID string, err error)
	SetEpoch(ctx context.Context, epoch int64) error
}

const (
	relayBatch   = 500
	relayMinAge  = time.Second      // younger jobs are being enqueued by whoever changed them
	relayRescan  = 30 * time.Second // how often the relay starts over from the oldest job
	relaySettled = 10 * time.Second // the place never comes closer to now than this: new jobs appear there
	probeAge     = 5 * time.Second  // a job that is due for so long may have lost its task
	probeBatch   = 200
)

// Relay makes sure that every waiting job that is due has a task in the queue,
// whatever became of the one that was enqueued after its commit.
//
// A job is stamped with the epoch that was read before its task was enqueued,
// and only after that: a stamp that came first would lose the job if the
// process died in between. The queue keeps the epoch as a sentinel; when the
// sentinel is gone or the server is another one, its tasks may be gone too, so
// a new epoch begins and every job is dispatched anew, the oldest first.
type Relay struct {
	store   RelayStore
	queue   RelayQueue
	metrics *Metrics
	log     *slog.Logger

	// Used by the leader's two loops, one each.
	place   job.Place // everything before it is stamped, since scanned
	epoch   int64     // that place belongs to
	scanned time.Time // when the relay last started over
	probing job.Place
}

// NewRelay makes a relay; Maintenance runs it.
func NewRelay(store RelayStore, queue RelayQueue, m *Metrics, log *slog.Logger) *Relay {
	return &Relay{store: store, queue: queue, metrics: m, log: log}
}

// round dispatches what is not stamped with the current epoch, in batches, for
// as long as this process leads. The epoch is read for each batch: a queue that
// is emptied meanwhile is noticed, however long the backlog.
func (r *Relay) round(ctx context.Context, leading func() bool) error {
	if time.Since(r.scanned) > relayRescan {
		r.place, r.scanned = job.Place{}, time.Now()
	}
	place := r.place
	for leading() {
		epoch, err := r.currentEpoch(ctx)
		if err != nil {
			return err
		}
		if epoch != r.epoch {
			r.place, r.epoch, r.scanned = job.Place{}, epoch, time.Now()
			place = r.place
		}
		tasks, err := r.store.Undispatched(ctx, epoch, place, dispatchHorizon, relayMinAge, relayBatch)
		if err != nil || len(tasks) == 0 {
			return err
		}
		if err := r.dispatch(ctx, epoch, tasks); err != nil {
			return err
		}
		r.metrics.repaired.WithLabelValues("relay").Add(float64(len(tasks)))
		last := tasks[len(tasks)-1]
		place = job.Place{RunAt: last.RunAt, JobID: last.JobID}
		if place.RunAt.Before(time.Now().Add(-relaySettled)) {
			r.place = place
		}
		if len(tasks) < relayBatch {
			return nil
		}
	}
	return nil
}

// currentEpoch gives the epoch to stamp with, after opening a new one if the
// queue does not know it.
func (r *Relay) currentEpoch(ctx context.Context) (int64, error) {
	epoch, knownServer, err := r.store.Epoch(ctx)
	if err != nil {
		return 0, err
	}
	sentinel, server, err := r.queue.Epoch(ctx)
	if err != nil {
		return 0, err
	}
	if sentinel == epoch && server == knownServer {
		return epoch, nil
	}
	if err := r.store.RaiseEpoch(ctx, epoch, server); err != nil {
		return 0, err
	}
	if err := r.queue.SetEpoch(ctx, epoch+1); err != nil {
		return 0, err
	}
	r.metrics.epochsRaised.Inc()
	if knownServer == "" && sentinel == 0 {
		r.log.InfoContext(ctx, "the queue is used for the first time", "action", "dispatch", "epoch", epoch+1)
		return epoch + 1, nil
	}
	r.log.WarnContext(ctx, "the queue was emptied or replaced; all waiting jobs are dispatched anew", "action", "dispatch", "epoch", epoch+1)
	return epoch + 1, nil
}

// dispatch enqueues tasks, then stamps those that are in the queue. A task
// whose name is spent gets a new one.
func (r *Relay) dispatch(ctx context.Context, epoch int64, tasks []job.Task) error {
	present, spent, err := r.offer(ctx, tasks)
	if err != nil {
		return err
	}
	if len(spent) > 0 {
		renamed, err := r.store.Redispatch(ctx, spent)
		if err != nil {
			return err
		}
		more, _, err := r.offer(ctx, renamed) // what is spent again is found again
		if err != nil {
			return err
		}
		present = append(present, more...)
	}
	if len(present) == 0 {
		return nil
	}
	return r.store.Stamp(ctx, epoch, present)
}

// offer enqueues tasks and tells which are in the queue now, and which cannot
// be because their name is spent.
func (r *Relay) offer(ctx context.Context, tasks []job.Task) (present, spent []job.Task, err error) {
	answers, err := r.queue.Dispatch(ctx, tasks)
	if err != nil {
		return nil, nil, err
	}
	for i, t := range tasks {
		if answers[i] == job.TaskSpent {
			spent = append(spent, t)
		} else {
			present = append(present, t)
		}
	}
	return present, spent, nil
}

// probe looks whether jobs that should have been picked up long ago still have
// their task, a small sample at a time, and dispatches anew those that do not.
func (r *Relay) probe(ctx context.Context) error {
	epoch, _, err := r.store.Epoch(ctx)
	if err != nil {
		return err
	}
	tasks, err := r.store.Overdue(ctx, epoch, r.probing, probeAge, probeBatch)
	if err != nil {
		return err
	}
	if len(tasks) < probeBatch {
		r.probing = job.Place{}
	} else {
		last := tasks[len(tasks)-1]
		r.probing = job.Place{RunAt: last.RunAt, JobID: last.JobID}
	}
	if len(tasks) == 0 {
		return nil
	}
	missing, err := r.queue.Missing(ctx, tasks)
	if err != nil || len(missing) == 0 {
		return err
	}
	renamed, err := r.store.Redispatch(ctx, missing)
	if err != nil {
		return err
	}
	r.metrics.repaired.WithLabelValues("probe").Add(float64(len(renamed)))
	return r.dispatch(ctx, epoch, renamed)
}
