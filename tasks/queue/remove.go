package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

const (
	maxRemovals = 4096 // that may wait
	removeBatch = 100
	// removeAgain is after how long a task that was not there is removed once more: it may have been on its way.
	removeAgain = time.Second
)

// removal is of a task that is not wanted any more.
type removal struct {
	queue, id string
	again     bool // it was not there before
}

// Remove takes the task out of the queue, unless somebody has it, best effort, non-blocking. One that stays is found stale by who
// takes it.
func (q *Queue) Remove(t job.Task) { q.removals.Add(removal{queue: redisconn.Jobs, id: TaskName(t)}) }

// RemoveDeliveries does the same for the tasks of deliveries.
func (q *Queue) RemoveDeliveries(ids ...job.ID) {
	for _, id := range ids {
		q.removals.Add(removal{queue: redisconn.Webhooks, id: id.String()})
	}
}

func (q *Queue) sendRemovals(ctx context.Context, removals []removal) error {
	var missing []removal
	for _, r := range removals {
		gone, err := q.remove(ctx, r)
		if err != nil {
			return q.redis.Failed("remove", err)
		}
		if gone && !r.again {
			missing = append(missing, removal{r.queue, r.id, true})
		}
	}
	if len(missing) > 0 { // what waits when the process ends is left to who takes it
		missing = slices.Clip(missing)
		time.AfterFunc(removeAgain, func() {
			for _, r := range missing {
				q.removals.Add(r)
			}
		})
	}
	return nil
}

// remove reports whether the task was not there. A pending one stays in a long list: Redis would search all of it, and who takes the
// task finds nothing to do.
func (q *Queue) remove(ctx context.Context, r removal) (gone bool, err error) {
	if q.Condition().Long {
		if info, err := q.redis.Inspector.GetTaskInfo(r.queue, r.id); err == nil && info.State == asynq.TaskStatePending {
			return false, nil
		}
	}
	switch err := q.redis.Inspector.DeleteTask(r.queue, r.id); {
	case err == nil:
		return false, nil
	case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
		return true, nil
	}
	return false, q.redis.Ping(ctx) // somebody has the task, unless Redis is away
}
