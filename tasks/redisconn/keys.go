package redisconn

import "fmt"

// The asynq queues of job tasks and delivery tasks.
const (
	Jobs     = "jobs"
	Webhooks = "webhooks"
)

// Queues are the asynq queues, as the dashboard shows them.
var Queues = []string{Jobs, Webhooks}

// QueueKey returns one of asynq's keys for a queue. They are read only to find one damaged by another program.
func QueueKey(queue, name string) string { return fmt.Sprintf("asynq:{%s}:%s", queue, name) }
