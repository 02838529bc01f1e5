package maintenance

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

const (
	relayBatch = 500
	// The relay skips jobs younger than relayMinAge, because the process that stored a job enqueues it.
	relayMinAge = time.Second
	// In every furtherEvery-th round, the relay also checks jobs after the oldest batch.
	furtherEvery = 10
)

// relay enqueues jobs with lost tasks again. Postgres knows which jobs wait; Redis may lose their tasks.
//
// Each round checks the oldest due, unclaimed jobs. If one of their tasks was missing, Redis may have lost all tasks, so the relay checks
// the next batch at once.
//
// If no worker can run the oldest jobs, later jobs never become the oldest. So the relay sometimes also checks a batch of later jobs.
type relay struct {
	store   *repo.Store
	queue   Queue
	metrics *app.Metrics
	clock   *clock.Clock

	rounds  int // rounds since the last check of later jobs
	further job.QueueCursor
}

func (r *relay) round(ctx context.Context, leading func() bool) error {
	if err := r.queue.Mend(ctx); err != nil {
		return err
	}
	age := r.minAge()
	for after := (job.QueueCursor{}); leading(); {
		tasks, err := r.store.Waiting(ctx, after, age, relayBatch)
		if err != nil {
			return err
		}
		made, err := r.ensure(ctx, tasks, "relay")
		if err != nil || len(tasks) < relayBatch {
			return err
		}
		after = tasks[len(tasks)-1].Cursor()
		if made == 0 {
			return r.lookFurther(ctx, after, age)
		}
	}
	return nil
}

// While a test bed's clock is frozen, jobs would never reach the minimum age.
func (r *relay) minAge() time.Duration {
	if r.clock.Moved() {
		return 0
	}
	return relayMinAge
}

// Once in furtherEvery calls, lookFurther checks a batch of jobs after `oldest`. It continues after the batch that it checked before.
func (r *relay) lookFurther(ctx context.Context, oldest job.QueueCursor, age time.Duration) error {
	if r.rounds++; r.rounds < furtherEvery {
		return nil
	}
	r.rounds = 0
	if r.further.RunAt.Before(oldest.RunAt) {
		r.further = oldest
	}
	tasks, err := r.store.Waiting(ctx, r.further, age, relayBatch)
	if err != nil {
		return err
	}
	if r.further = (job.QueueCursor{}); len(tasks) == relayBatch {
		r.further = tasks[len(tasks)-1].Cursor()
	}
	_, err = r.ensure(ctx, tasks, "relay")
	return err
}

func (r *relay) ensure(ctx context.Context, tasks []job.Task, by string) (made int, err error) {
	if len(tasks) == 0 {
		return 0, nil
	}
	made, err = r.queue.Ensure(ctx, tasks)
	r.metrics.Repaired.WithLabelValues(by).Add(float64(made))
	return made, err
}
