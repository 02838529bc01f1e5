package redisconn

import "fmt"

// asynq queues of job tasks and delivery tasks.
const (
	Jobs     = "jobs"
	Webhooks = "webhooks"
)

// Queues lists the asynq queues in the order of the dashboard.
var Queues = []string{Jobs, Webhooks}

// QueueKey returns an asynq key of a queue. This project reads such keys only to find damage by other programs.
func QueueKey(queue, name string) string { return fmt.Sprintf("asynq:{%s}:%s", queue, name) }
