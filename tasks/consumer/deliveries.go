package consumer

import (
	"context"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// NewDeliveries makes a consumer of delivery tasks. The consumer passes each task to `handle`, which returns the same errors as in
// NewJobs. If a failed attempt will be repeated, `handle` returns a job.TaskFailed with the wait. The context of `handle` ends when Redis
// has been down for half a minute, or after five minutes. The task is then handled again, perhaps by another process; the handler need not
// stop.
func NewDeliveries(r *redisconn.Redis, cfg Config, handle func(ctx context.Context, t job.DeliveryTask) error) *Consumer {
	return newConsumer(r, cfg, redisconn.Webhooks,
		handler(r, queue.DeliveryTask, r.Metrics.DeliveriesHandled, queue.ParseDelivery, handle))
}
