package redisconn

import "fmt"

// asynq queues of job tasks and delivery tasks.
const (
	Jobs     = "jobs"
	Webhooks = "webhooks"
)

// Queues lists the asynq queues in the order of the dashboard.
var Queues = []string{Jobs, Webhooks}

// QueueKey returns the name of one of asynq's keys for a queue.
func QueueKey(queue, name string) string { return fmt.Sprintf("asynq:{%s}:%s", queue, name) }
