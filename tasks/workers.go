package tasks

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
)

// WorkersConfig is of Workers and of Couriers. It has defaults for what is zero.
type WorkersConfig struct {
	// Concurrency is how many tasks are handled at once. Default 1.
	Concurrency int
	// Servers is how many asynq servers share them. Each tells Redis every 5 s of
	// all tasks that it runs, and starts none meanwhile. Default: one for each 2500.
	Servers int
	// TaskCheckInterval is how often an idle process looks for tasks that it was
	// not told of, and so how late it may be when Redis' pub/sub fails it. Default
	// 500 ms.
	TaskCheckInterval time.Duration
	// DelayedTaskCheckInterval is how often a process looks for tasks whose time
	// has come. Default 500 ms.
	DelayedTaskCheckInterval time.Duration
	// ShutdownTimeout is how long Stop waits for handlers before it puts their
	// tasks back into the queue. Default 35 s, longer than a job's own grace.
	ShutdownTimeout time.Duration
}

func (c *WorkersConfig) setDefaults() {
	if c.Concurrency <= 0 {
		c.Concurrency = 1
	}
	if c.Servers <= 0 {
		c.Servers = (c.Concurrency + 2499) / 2500
	}
	c.Servers = min(c.Servers, c.Concurrency)
	if c.TaskCheckInterval <= 0 {
		c.TaskCheckInterval = 500 * time.Millisecond
	}
	if c.DelayedTaskCheckInterval <= 0 {
		c.DelayedTaskCheckInterval = 500 * time.Millisecond
	}
	if c.ShutdownTimeout <= 0 {
		c.ShutdownTimeout = 35 * time.Second
	}
}

// JobConsumer take tasks that point at jobs out of Redis and receive cancel signals,
// for one process. They run for as long as they are not stopped, with or without
// Redis.
type JobConsumer struct{ *consumer }

// NewJobConsumer makes workers that hand each task to handle and the id of each
// cancelled job to canceled.
//
// handle returns nil once the task is done with, whatever became of the job:
// Redis forgets the task about 2 ms later. An error means that the infrastructure
// failed; the task is run again after 1 to 10 seconds. The context ends when
// Redis has been away for half a minute or QueueConfig.MaxTaskTime is over;
// asynq then hands the task to somebody else while handle still runs. It is
// information and no reason to stop. canceled must return quickly.
//
// When the task tells of a span, the context is of one below it; the task's own
// TraceParent stays empty.
func NewJobConsumer(r *Redis, cfg WorkersConfig, handle func(ctx context.Context, t job.Task) error, canceled func(job.ID)) *JobConsumer {
	c := newConsumer(r, cfg, queueJobs, processed(r.tracer, handler(r, taskType, r.metrics.handled, parseTask, handle)))
	c.hears[cancelChannel] = r.hearCancel(canceled)
	return &JobConsumer{c}
}
