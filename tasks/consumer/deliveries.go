package consumer

import (
	"context"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// NewDeliveries makes a consumer of delivery tasks. It passes each to handle, whose result is like that of NewJobs; a failed attempt with
// a further one is a job.TaskFailed that says when. The context ends when Redis has been away for half a minute or after five minutes;
// then the task is handled again, perhaps elsewhere. Handlers need not stop for that.
func NewDeliveries(r *redisconn.Redis, cfg Config, handle func(ctx context.Context, t job.DeliveryTask) error) *Consumer {
	return newConsumer(r, cfg, redisconn.Webhooks,
		handler(r, queue.DeliveryTask, r.Metrics.DeliveriesHandled, queue.ParseDelivery, handle))
}
