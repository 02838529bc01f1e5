package maintenance

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
)

// RelayStore is what the relay needs of storage.
type RelayStore interface {
	Epoch(ctx context.Context) (epoch int64, redisRunID string, err error)
	RaiseEpoch(ctx context.Context, current int64, redisRunID string) error
	// Waiting gives jobs that wait, in order of their time, from after the place
	// to those whose time comes within ahead; negative: that came so long ago.
	Waiting(ctx context.Context, after job.QueueCursor, ahead time.Duration, limit int) ([]job.Task, error)
	Redispatch(ctx context.Context, tasks []job.Task) ([]job.Task, error)
}

// RelayQueue is the queue as the relay sees it: every call waits for its
// answer.
type RelayQueue interface {
	Dispatch(ctx context.Context, tasks []job.Task) ([]job.Dispatched, error)
	Missing(ctx context.Context, tasks []job.Task) ([]job.Task, error)
	// Depth counts the tasks by state: "pending", "scheduled", "retry" and others.
	Depth(ctx context.Context) (map[string]int64, error)
	// LastScheduled is when the time of the last task comes of those that wait for
	// theirs; zero if there are none.
	LastScheduled(ctx context.Context) (time.Time, error)
	Epoch(ctx context.Context) (epoch int64, runID string, err error)
	SetEpoch(ctx context.Context, epoch int64) error
	// Mend removes what keeps the queue from working, whatever put it there.
	Mend(ctx context.Context) error
}

const (
	relayBatch = 500
	// relayMinAge is for how long a job must have been due: a younger one
	// is being enqueued, or not committed yet.
	relayMinAge = time.Second
	// relayFlushAge is the same where only the relay enqueues: jobs that were accepted before may be
	// committed after it, and come first.
	relayFlushAge = 50 * time.Millisecond
	probeBatch    = 8 * relayBatch // jobs that one round of the probe looks at
	// relayEnough is how many tasks last the workers for a while, so that the relay can rest, and
	// relayRest for how many times as long as a batch took.
	relayEnough = 10 * relayBatch
	relayRest   = 3
)

// Relay keeps the queue filled with the jobs that come next, whatever became of
// the tasks that were enqueued after their commits.
//
// It walks over the waiting jobs in order of their time, asks the queue for
// their tasks and enqueues those that it does not have, for as long as fewer
// than the window's tasks are there: the rest waits in storage alone. What was
// seen in the queue is not written down. The relay remembers how far it came,
// the watermark, and the probe goes over the jobs before the watermark again and again:
// a task that was lost from there is dispatched anew. In the same way it walks over
// the jobs whose time will come, for as long as the queue has room for more of them:
// half of the window. There the queue keeps those that come first.
//
// The queue keeps the epoch as a sentinel; when the sentinel is gone or the
// server is another one, its tasks may be gone too, so a new epoch begins and
// the relay starts over from the oldest job. So does a process that comes to
// lead for the first time.
type Relay struct {
	store   RelayStore
	queue   RelayQueue
	window  int
	metrics *app.Metrics
	log     *slog.Logger

	Clock *clock.Clock // Postgres' clock, set before the first round; nil: the machine's

	givesWay atomic.Bool // many jobs are being queued: what the workers do not need at once can wait
	again    atomic.Bool // jobs before the watermark were made due: the next round starts over

	// Used by the relay's loop alone.
	epoch int64           // that watermark and ahead belong to; 0 for none yet
	ahead job.QueueCursor // of the jobs whose time will come, those up to here were looked at
	alone bool            // the latest round found jobs that had not been enqueued

	probing, probingAhead job.QueueCursor // used by the probe's loop alone

	mu        sync.Mutex
	watermark job.QueueCursor // what waits up to here was given to the queue in this epoch, or is the probe's to find
}

// NewRelay makes a relay that keeps about window tasks in the queue;
// Maintenance runs it.
func NewRelay(store RelayStore, queue RelayQueue, window int, m *app.Metrics, log *slog.Logger) *Relay {
	return &Relay{store: store, queue: queue, window: window, metrics: m, log: log}
}

// round fills the window: first with what is due, then with what will be, for as
// long as there is room and this process leads.
func (r *Relay) round(ctx context.Context, leading func() bool) error {
	if err := r.queue.Mend(ctx); err != nil {
		return err
	}
	if err := r.fillDue(ctx, leading); err != nil {
		return err
	}
	return r.fillAhead(ctx, leading)
}

// fillDue moves the watermark on. The epoch is read for each batch: a queue that is
// emptied meanwhile is noticed, however long the backlog.
//
// The youngest jobs are left to the process that stored them, unless the latest round
// found jobs that had not been enqueued: then the others leave theirs to the relay.
func (r *Relay) fillDue(ctx context.Context, leading func() bool) error {
	minAge := r.minAge()
	if r.alone {
		minAge = min(minAge, relayFlushAge)
	}
	r.alone = false
	if r.again.Swap(false) {
		r.rewind()
	}
	cursor, room := r.passed(), unknownRoom
	for leading() {
		asked, followed := time.Now(), r.epoch != 0
		began, err := r.followEpoch(ctx)
		if err != nil {
			return err
		}
		if began {
			cursor, room = job.QueueCursor{}, unknownRoom
		}
		if began && followed { // no task is left
			minAge = min(minAge, relayFlushAge)
		}
		tasks, err := r.store.Waiting(ctx, cursor, -minAge, r.batch())
		if err != nil || len(tasks) == 0 {
			return err
		}
		if room == unknownRoom {
			if room, err = r.room(ctx, r.window, "pending", "retry"); err != nil {
				return err
			}
		}
		if room <= 0 {
			return r.watchHead(ctx)
		}
		enqueued, err := r.relay(ctx, tasks, "relay")
		if err != nil {
			return err
		}
		r.pass(tasks)
		r.alone = r.alone || enqueued > len(tasks)/2
		if len(tasks) < r.batch() {
			return nil
		}
		cursor, room = tasks[len(tasks)-1].Cursor(), room-enqueued
		if !r.rest(ctx, time.Since(asked), room) {
			return nil
		}
	}
	return nil
}

// rest leaves the machine to the scheduler for a while, if that has much to do and the
// queue has enough. It reports false if ctx ended.
func (r *Relay) rest(ctx context.Context, took time.Duration, room int) bool {
	if !r.givesWay.Load() || r.window-room < relayEnough {
		return ctx.Err() == nil
	}
	return app.Sleep(ctx, relayRest*took)
}

// minAge is relayMinAge, but where a clock was moved: frozen, it makes no job older. A task that is enqueued twice, or that
// overtakes another one, does no harm.
func (r *Relay) minAge() time.Duration {
	if r.Clock.Moved() {
		return 0
	}
	return relayMinAge
}

// watchHead sees to the jobs that come next while the queue is full: they may
// have no task all the same, and a watermark that begins anew is not moved on before
// there is room.
func (r *Relay) watchHead(ctx context.Context) error {
	tasks, err := r.store.Waiting(ctx, job.QueueCursor{}, -r.minAge(), r.batch())
	if err != nil || len(tasks) == 0 {
		return err
	}
	return r.repair(ctx, tasks)
}

// probe looks whether jobs behind the watermark still have their tasks, a slice of
// them each time, and dispatches anew those that do not.
func (r *Relay) probe(ctx context.Context, _ func() bool) error {
	if err := r.probeAhead(ctx); err != nil {
		return err
	}
	watermark := r.passed()
	tasks, err := r.store.Waiting(ctx, r.probing, -r.minAge(), probeBatch)
	if err != nil {
		return err
	}
	tasks = slices.DeleteFunc(tasks, func(t job.Task) bool { return t.Cursor().Compare(watermark) > 0 })
	if err := r.repair(ctx, tasks); err != nil {
		return err
	}
	r.probing = job.QueueCursor{} // around
	if len(tasks) == probeBatch {
		r.probing = tasks[probeBatch-1].Cursor()
	}
	return nil
}

func (r *Relay) repair(ctx context.Context, tasks []job.Task) error {
	if len(tasks) == 0 {
		return nil
	}
	missing, err := r.queue.Missing(ctx, tasks)
	if err != nil || len(missing) == 0 {
		return err
	}
	_, err = r.relay(ctx, missing, "probe")
	return err
}

// followEpoch starts over if there is a new epoch, and reports that. It opens one if
// the queue does not know the present one.
func (r *Relay) followEpoch(ctx context.Context) (began bool, err error) {
	epoch, err := r.currentEpoch(ctx)
	if err != nil || epoch == r.epoch {
		return false, err
	}
	r.epoch, r.ahead = epoch, job.QueueCursor{}
	r.rewind()
	return true, nil
}

// currentEpoch gives the epoch, after opening a new one if the queue does not
// know it.
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
	r.metrics.EpochsRaised.Inc()
	if knownServer == "" && sentinel == 0 {
		r.log.InfoContext(ctx, "the queue is used for the first time", "action", "dispatch", "epoch", epoch+1)
		return epoch + 1, nil
	}
	if sentinel == epoch {
		// Another run of the server with the data of the last one: a restart, which is nothing to worry about, though a server
		// that died may have lost what it had not written.
		r.log.InfoContext(ctx, "the queue's server has started again with its data; waiting jobs without a task are dispatched anew",
			"action", "dispatch", "epoch", epoch+1)
		return epoch + 1, nil
	}
	r.log.WarnContext(ctx, "the queue was emptied or replaced; all waiting jobs are dispatched anew", "action", "dispatch", "epoch", epoch+1)
	return epoch + 1, nil
}
