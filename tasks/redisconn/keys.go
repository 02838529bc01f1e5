package redisconn

import (
	"fmt"

	"github.com/hibiken/asynq"
)

// The asynq queues: of tasks that point at jobs, and of tasks that point at deliveries.
const (
	Jobs     = "jobs"
	Webhooks = "webhooks"
)

// Queues are the asynq queues, as the dashboard shows them.
var Queues = []string{Jobs, Webhooks}

// QueueKey is one of the keys that asynq has for a queue. They are read only to find one that another program has damaged.
func QueueKey(queue, name string) string { return fmt.Sprintf("asynq:{%s}:%s", queue, name) }

// Depth is how many tasks a queue has, by asynq state.
func Depth(i *asynq.QueueInfo) map[string]int {
	return map[string]int{
		"pending": i.Pending, "active": i.Active, "scheduled": i.Scheduled, "retry": i.Retry, "archived": i.Archived, "completed": i.Completed,
	}
}
