package consumer

import (
	"context"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// NewDeliveries makes a consumer of delivery tasks. It passes each task to `handle`, which returns errors as described at NewJobs. For a
// failed attempt that will be repeated, `handle` returns a job.TaskFailed with the time until the next attempt. The context of `handle`
// ends after five minutes, or if Redis is down for half a minute. In both cases, the task is handled again, perhaps by another process,
// even if the first call of `handle` has not returned.
func NewDeliveries(r *redisconn.Redis, cfg Config, handle func(ctx context.Context, t job.DeliveryTask) error) *Consumer {
	return newConsumer(r, cfg, redisconn.Webhooks,
		handler(r, queue.DeliveryTask, r.Metrics.DeliveriesHandled, queue.ParseDelivery, handle))
}
