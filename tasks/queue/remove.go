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
	maxRemovals = 4096 // buffered removals
	removeBatch = 100
	// If a task is not in Redis, Remove tries again after removeAgain, because a process may still buffer the task.
	removeAgain = time.Second
)

type removal struct {
	queue, id string
	again     bool
}

// Remove removes the task unless a worker is handling it. It is best effort and does not block. A worker that gets a remaining task drops
// the task as stale.
func (q *Queue) Remove(t job.Task) { q.removals.Add(removal{queue: redisconn.Jobs, id: TaskName(t)}) }

// RemoveDeliveries is like Remove, for the tasks of deliveries.
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
	if len(missing) > 0 { // if this process ends within removeAgain, workers drop these tasks as stale
		missing = slices.Clip(missing)
		time.AfterFunc(removeAgain, func() {
			for _, r := range missing {
				q.removals.Add(r)
			}
		})
	}
	return nil
}

// remove removes the task, and returns true if the task was missing. If the pending list is long, remove leaves a pending task in it,
// because Redis would search the whole list. The worker that gets the task drops the task.
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
	return false, q.redis.Ping(ctx) // a worker has the task, unless Redis is down
}
