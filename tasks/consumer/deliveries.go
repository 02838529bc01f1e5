package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// hintRetry is after how long a task of the queue is handled again when its handler failed.
const hintRetry = time.Second

// NewDeliveries makes a consumer of tasks that name clients that may have something to deliver, and of those that name an endpoint
// for which the time of a next attempt has come. It hands the clients to look and the endpoints to try.
//
// look and try return nil once that is under way: asynq then forgets the task. An error means that it could not be begun; the task
// is handled again after a second. They should return soon: a client has no more than three tasks, so while three are being handled
// no further one comes. The same client may be handled twice at once. The context ends when Redis has been away for half a minute
// or after a minute, and then the task is handled anew, perhaps elsewhere; it is no reason to stop.
func NewDeliveries(r *redisconn.Redis, cfg Config, look func(ctx context.Context, client job.ID) error,
	try func(context.Context, job.EndpointKey) error) *Consumer {
	wakeUps := handler(r, queue.DeliveryTask, r.Metrics.Woken, queue.ParseDelivery, look)
	attempts := handler(r, queue.AttemptTask, r.Metrics.Woken, queue.ParseAttempt, try)
	return newConsumer(r, cfg, redisconn.Webhooks, uncounted(func(ctx context.Context, t *asynq.Task) error {
		if t.Type() == queue.AttemptTask {
			return attempts(ctx, t)
		}
		return wakeUps(ctx, t)
	}))
}

// uncounted keeps tasks out of the queue's statistics: those are of attempts to deliver, and come with their results. A task that
// was handled is forgotten as one with which there is nothing to do, and one that failed comes again as if it had come early. A
// task that cannot be read is archived, and counted: somebody is to look.
func uncounted(handle asynq.HandlerFunc) asynq.HandlerFunc {
	return func(ctx context.Context, t *asynq.Task) error {
		err := handle(ctx, t)
		switch {
		case err == nil:
			return job.ErrTaskStale
		case errors.Is(err, queue.ErrBadPayload):
			return err
		}
		return &job.TaskEarly{Wait: hintRetry}
	}
}
