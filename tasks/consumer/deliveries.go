package consumer

import (
	"context"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// NewDeliveries makes a consumer of tasks that point at deliveries. It hands each to handle, which returns what NewJobs' does; a
// failed attempt after which another one is due is a job.TaskFailed that says when. The context ends when Redis has been away for
// half a minute or after five minutes, and then the task is handled anew, perhaps elsewhere; it is no reason to stop.
func NewDeliveries(r *redisconn.Redis, cfg Config, handle func(ctx context.Context, t job.DeliveryTask) error) *Consumer {
	return newConsumer(r, cfg, redisconn.Webhooks,
		handler(r, queue.DeliveryTask, r.Metrics.DeliveriesHandled, queue.ParseDelivery, handle))
}
