package maintenance

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
)

// RelayStore is what the relay needs of storage.
type RelayStore interface {
	// Waiting returns waiting jobs after the cursor, ordered by time, up to the present time plus ahead.
	Waiting(ctx context.Context, after job.QueueCursor, ahead time.Duration, limit int) ([]job.Task, error)
}

// RelayQueue is what the relay needs of the queue. Each call waits for the answer.
type RelayQueue interface {
	// Ensure gives each due job a task that will run, and enqueues the missing tasks of later jobs. It returns how many tasks it
	// enqueued or moved.
	Ensure(ctx context.Context, tasks []job.Task) (made int, err error)
	// Mend removes what keeps the queue from working, such as a key of another type.
	Mend(ctx context.Context) error
}

const (
	relayBatch = 500
	// relayMinAge leaves younger jobs to the process that stored them: it is about to enqueue them.
	relayMinAge = time.Second
	// relayAhead is how early the relay looks for the tasks of deferred jobs, and aheadBatches limits how many it looks for in a round.
	relayAhead   = 5 * time.Second
	aheadBatches = 20
)

// Relay enqueues jobs again whose tasks were lost. Postgres knows which jobs wait; Redis may lose any of their tasks.
//
// Each round checks the oldest due jobs that no worker has claimed. If none of them lacked a task, the round ends. A task that is
// missing further back is found once its job is among the oldest, before the workers run out of work. If some lacked a task, Redis
// may have been emptied, and the relay continues with the next batch at once.
type Relay struct {
	store   RelayStore
	queue   RelayQueue
	metrics *app.Metrics

	Clock *clock.Clock // Postgres' clock, set before the first round; nil: the machine's
}

// NewRelay returns a relay for Maintenance to run.
func NewRelay(store RelayStore, queue RelayQueue, m *app.Metrics) *Relay {
	return &Relay{store: store, queue: queue, metrics: m}
}

func (r *Relay) round(ctx context.Context, leading func() bool) error {
	if err := r.queue.Mend(ctx); err != nil {
		return err
	}
	if err := r.ensureDue(ctx, leading); err != nil {
		return err
	}
	return r.ensureAhead(ctx, leading)
}

// ensureDue checks the oldest due jobs, and continues for as long as it finds jobs without a task.
func (r *Relay) ensureDue(ctx context.Context, leading func() bool) error {
	minAge := relayMinAge
	if r.Clock.Moved() { // jobs do not age while the clock is frozen
		minAge = 0
	}
	for after := (job.QueueCursor{}); leading(); {
		last, made, err := r.ensureBatch(ctx, after, -minAge)
		if err != nil || made == 0 || last == after {
			return err
		}
		after = last
	}
	return nil
}

// ensureAhead checks the jobs that are due soon, so that they start in time although Redis has lost their tasks.
func (r *Relay) ensureAhead(ctx context.Context, leading func() bool) error {
	after := job.QueueCursor{RunAt: r.Clock.Now()}
	for range aheadBatches {
		if !leading() {
			return nil
		}
		last, _, err := r.ensureBatch(ctx, after, relayAhead)
		if err != nil || last == after {
			return err
		}
		after = last
	}
	return nil
}

// ensureBatch checks a batch of jobs. It returns where the next batch begins, or after if there is none.
func (r *Relay) ensureBatch(ctx context.Context, after job.QueueCursor, ahead time.Duration) (last job.QueueCursor, made int, err error) {
	tasks, err := r.store.Waiting(ctx, after, ahead, relayBatch)
	if err != nil || len(tasks) == 0 {
		return after, 0, err
	}
	made, err = r.ensure(ctx, tasks, "relay")
	if len(tasks) < relayBatch {
		return after, made, err
	}
	return tasks[len(tasks)-1].Cursor(), made, err
}

// ensure gives the jobs tasks, and counts those that had none.
func (r *Relay) ensure(ctx context.Context, tasks []job.Task, by string) (made int, err error) {
	if len(tasks) == 0 {
		return 0, nil
	}
	made, err = r.queue.Ensure(ctx, tasks)
	r.metrics.Repaired.WithLabelValues(by).Add(float64(made))
	return made, err
}
