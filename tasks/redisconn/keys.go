package redisconn

import "fmt"

// The asynq queues: of tasks that point at jobs, and of tasks that point at deliveries.
const (
	Jobs     = "jobs"
	Webhooks = "webhooks"
)

// Queues are the asynq queues, as the dashboard shows them.
var Queues = []string{Jobs, Webhooks}

// QueueKey is one of the keys that asynq has for a queue. They are read only to find one that another program has damaged.
func QueueKey(queue, name string) string { return fmt.Sprintf("asynq:{%s}:%s", queue, name) }
