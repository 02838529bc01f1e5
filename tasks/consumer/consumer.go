// Package consumer takes tasks from the asynq queues and passes them to handlers. It handles the tasks of jobs and of deliveries, and
// cancel signals.
package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/notify"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// Config configures a consumer. Fields with the zero value get defaults.
type Config struct {
	// Concurrency is how many tasks are handled at the same time. Default 1.
	Concurrency int
	// TaskCheckInterval is how often an idle consumer looks for tasks. Default 40 ms.
	TaskCheckInterval time.Duration
	// DelayedTaskCheckInterval is how often a consumer looks for due deferred tasks. Default 250 ms.
	DelayedTaskCheckInterval time.Duration
	// ShutdownTimeout is how long Stop waits for handlers before it puts their tasks back. Default 35 s, longer than a job's grace period.
	ShutdownTimeout time.Duration
	// Clock decides when tasks are due. It should follow Postgres' clock; nil means the machine's clock.
	Clock *clock.Clock
}

func (c *Config) setDefaults() {
	c.Concurrency = cmp.Or(c.Concurrency, 1)
	c.TaskCheckInterval = cmp.Or(c.TaskCheckInterval, 40*time.Millisecond)
	c.DelayedTaskCheckInterval = cmp.Or(c.DelayedTaskCheckInterval, 250*time.Millisecond)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 35*time.Second)
}

const (
	// A consumer's Redis timeout is timeoutFactor times the timeout of other clients, so that fetches rarely time out. After a timeout, a task
	// might be marked as active although no worker handles it.
	timeoutFactor = 5
	quietWait     = time.Second
	// cutAfter is how long Stop waits after ShutdownTimeout before it closes the connections.
	cutAfter = 2 * time.Second
	// longestWait limits the wait of an early task. With a frozen clock the wait would be infinite.
	longestWait = 365 * 24 * time.Hour
)

// Consumer takes tasks of one queue out of Redis and passes them to a handler. While Redis is down, the consumer retries until Stop.
type Consumer struct {
	redis    *redisconn.Redis
	cfg      Config
	queue    string
	handler  asynq.Handler
	canceled func(job.ID) // may be nil

	client     redis.UniversalClient
	cut        context.CancelFunc
	subscriber *notify.Subscriber
	values     context.Context

	start, halt sync.Once
	stopping    chan struct{} // closed by Stop, to end the pauses after errors
	stopped     chan struct{}

	mu       sync.Mutex
	server   *asynq.Server // nil before Start and while Hold(true) is in effect
	held     []*asynq.Server
	quiet    bool
	quieting sync.WaitGroup // servers that stop fetching
	ending   sync.WaitGroup // servers that wait for their handlers
}

func newConsumer(r *redisconn.Redis, cfg Config, name string, handle asynq.HandlerFunc) *Consumer {
	cfg.setDefaults()
	return &Consumer{redis: r, cfg: cfg, queue: name, handler: handle, stopping: make(chan struct{}), stopped: make(chan struct{})}
}

// Start starts fetching. It does not wait for Redis, and retries until Stop. Handlers get the values of ctx, but not its cancellation. A
// second Start, or a Start after Quiet or Stop, does nothing.
func (c *Consumer) Start(ctx context.Context) (err error) {
	c.start.Do(func() {
		c.values = context.WithoutCancel(ctx)
		c.connect()
		c.mu.Lock()
		defer c.mu.Unlock()
		err = c.serve()
	})
	return err
}

func (c *Consumer) connect() {
	o := c.redis.ClientOptions(timeoutFactor*c.redis.Timeout, 16)
	var connections context.Context
	connections, c.cut = context.WithCancel(context.Background())
	o.Dialer = c.redis.DialUntil(connections)
	o.MaxRetries = 1 // one retry per command, because asynq does not retry the command that stores a task's result
	c.client = c.redis.NewClient(o)
	c.client.AddHook(pacer{redis: c.redis, stop: c.stopping})
	if c.canceled != nil {
		c.subscriber = notify.ReceiveCancels(c.redis, c.client, c.canceled)
	}
}

// The caller of serve must hold c.mu.
func (c *Consumer) serve() error {
	s := asynq.NewServerFromRedisClient(c.client, asynq.Config{
		Concurrency:              c.cfg.Concurrency,
		BaseContext:              func() context.Context { return c.values },
		Queues:                   map[string]int{c.queue: 1},
		TaskCheckInterval:        c.cfg.TaskCheckInterval,
		DelayedTaskCheckInterval: c.cfg.DelayedTaskCheckInterval,
		ShutdownTimeout:          c.cfg.ShutdownTimeout,
		RetryDelayFunc:           retryDelay,
		IsFailure:                isFailure,
		Logger:                   redisconn.NewAsynqLog(c.redis.Log),
		LogLevel:                 asynq.InfoLevel,
	})
	if err := s.Start(c.handler); err != nil {
		return fmt.Errorf("starting the asynq server: %w", err)
	}
	c.server = s
	return nil
}

// `n` is the number of earlier failures of the task.
func retryDelay(n int, err error, _ *asynq.Task) time.Duration {
	var early *job.TaskEarly
	var failed *job.TaskFailed
	switch {
	case errors.As(err, &early):
		return min(early.Wait, longestWait)
	case errors.As(err, &failed):
		return min(failed.Again, longestWait)
	}
	return min(time.Duration(n+1)*time.Second, 10*time.Second)
}

// An early task does not count as a failure.
func isFailure(err error) bool {
	var early *job.TaskEarly
	return !errors.As(err, &early)
}

// archived is an error that makes asynq archive the task and show the error's text.
type archived struct{ error }

func (archived) Is(target error) bool { return target == asynq.SkipRetry }

func (a archived) Unwrap() error { return a.error }

// handler parses a task and calls `handle`. It archives unreadable tasks.
func handler[T any](
	r *redisconn.Redis, taskType string, results *prometheus.CounterVec, parse func([]byte) (T, error), handle func(context.Context, T) error,
) asynq.HandlerFunc {
	return func(ctx context.Context, t *asynq.Task) error {
		task, err := parse(t.Payload())
		if err != nil || t.Type() != taskType {
			results.WithLabelValues(redisconn.ResultBad).Inc()
			r.Log.Error("a task cannot be read; it goes to asynq's archive and is not tried again", "type", t.Type(),
				slog.Int("bytes", len(t.Payload())))
			return archived{queue.ErrBadPayload}
		}
		result, err := resultOf(handle(ctx, task))
		results.WithLabelValues(result).Inc()
		return err
	}
}

func resultOf(err error) (string, error) {
	var failed *job.TaskFailed
	var early *job.TaskEarly
	switch {
	case err == nil:
		return redisconn.ResultOK, nil
	case errors.Is(err, job.ErrTaskStale):
		return redisconn.ResultStale, nil
	case errors.As(err, &failed) && failed.Again > 0:
		return redisconn.ResultOK, failed
	case errors.As(err, &failed):
		return redisconn.ResultOK, archived{failed}
	case errors.As(err, &early):
		return redisconn.ResultEarly, err
	}
	return redisconn.ResultFailed, err
}

// Hold pauses fetching if `on` is true, otherwise it resumes fetching. Running handlers continue. Call Hold after Start.
func (c *Consumer) Hold(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.quiet || c.client == nil: // already stopped
	case on:
		c.stopFetching()
	case c.server == nil:
		for _, s := range c.held {
			c.ending.Go(s.Shutdown)
		}
		c.held = nil
		if err := c.serve(); err != nil {
			c.redis.Log.Error("cannot fetch more tasks", "action", "fetch", "error_message", err.Error())
		}
	}
}

// The caller of stopFetching must hold c.mu.
func (c *Consumer) stopFetching() {
	if c.server != nil {
		c.quieting.Go(c.server.Stop)
		c.held = append(c.held, c.server)
		c.server = nil
	}
}

// Quiet stops fetching. Running handlers continue, and a pending fetch may still return a task. Quiet returns after at most a second. It
// may be called again.
func (c *Consumer) Quiet() {
	c.start.Do(func() {}) // a later Start starts nothing
	c.mu.Lock()
	c.quiet = true
	c.stopFetching()
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), quietWait)
	defer cancel()
	_ = redisconn.WaitFor(ctx, c.quieting.Wait)
}

// Stop stops fetching and waits up to ShutdownTimeout for handlers. Tasks of handlers that still run go back into the queue. Stop does not
// cancel handlers. If ctx ends, Stop returns early, and stopping continues in the background. Stop may be called twice, before Start, or
// while Redis hangs.
func (c *Consumer) Stop(ctx context.Context) error {
	c.Quiet()
	c.halt.Do(func() {
		go func() {
			defer close(c.stopped)
			c.shutDown()
		}()
	})
	select {
	case <-c.stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Consumer) shutDown() {
	if c.client == nil {
		return // never started
	}
	close(c.stopping)
	cut := time.AfterFunc(c.cfg.ShutdownTimeout+cutAfter, func() {
		c.redis.Log.Warn("Redis does not answer; closing its connections to stop")
		c.cut()
	})
	for _, s := range c.held { // after Quiet, no other goroutine changes c.held
		c.ending.Go(s.Shutdown)
	}
	if c.subscriber != nil {
		c.ending.Go(func() { _ = c.subscriber.Stop(context.Background()) })
	}
	c.ending.Wait()
	c.quieting.Wait()
	cut.Stop()
	_ = c.client.Close()
	c.cut()
}
