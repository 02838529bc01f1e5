package consumer

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// deliveryRetries is how often a failed task is handled again; then it is forgotten, and the relay makes a new one. It is below
// queue.MaxRetry, after which asynq would archive the task and keep its name taken.
const deliveryRetries = 10

// NewDeliveries makes a consumer of tasks that name clients that may have something to deliver. It hands the client of each task
// to handle.
//
// handle returns nil once it has processed what storage has for the client: asynq then forgets the task. An error means that the
// infrastructure failed; the task is handled again after 1 to 10 seconds. It should return soon: a client has no more than three
// tasks, so while three are being handled no further one comes. The same client may be handled twice at once. The context ends
// when Redis has been away for half a minute or after a minute, and then the task is handled anew, perhaps elsewhere; it is no
// reason to stop.
func NewDeliveries(r *redisconn.Redis, cfg Config, handle func(ctx context.Context, client job.ID) error) *Consumer {
	return newConsumer(r, cfg, redisconn.Webhooks, handler(r, queue.DeliveryTask, r.Metrics.Woken, queue.ParseDelivery, bounded(handle)))
}

// bounded has a task forgotten that failed too often.
func bounded(handle func(context.Context, job.ID) error) func(context.Context, job.ID) error {
	return func(ctx context.Context, client job.ID) error {
		err := handle(ctx, client)
		if tried, _ := asynq.GetRetryCount(ctx); err != nil && tried >= deliveryRetries {
			return fmt.Errorf("%w: %w", err, asynq.RevokeTask)
		}
		return err
	}
}
