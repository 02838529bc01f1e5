// Package consumer takes tasks out of the asynq queues and hands them to handlers: tasks that point at jobs, with the cancel
// signals, and tasks that name clients that may have something to deliver.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/consumer/batch"
	"github.com/forgerun/forgerun/tasks/notify"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// Config has defaults for what is zero.
type Config struct {
	// Concurrency is how many tasks are handled at once. Default 1.
	Concurrency int
	// Servers is how many asynq servers share them. Each writes to Redis every 5 s
	// which tasks it runs, and starts none meanwhile. Default: one for each 2500.
	Servers int
	// TaskCheckInterval is how often an idle process looks for tasks without a wake-up. Default 500 ms.
	TaskCheckInterval time.Duration
	// DelayedTaskCheckInterval is how often a process looks for tasks whose time has come. Default 500 ms.
	DelayedTaskCheckInterval time.Duration
	// ShutdownTimeout is how long Stop waits for handlers before it puts their tasks back. Default 35 s, longer than a job's grace.
	ShutdownTimeout time.Duration
	// Clock is Postgres' clock, by which scheduled tasks wait for their time; nil: the machine's.
	Clock *clock.Clock
}

func (c *Config) setDefaults() {
	c.Concurrency = redisconn.Default(c.Concurrency, 1)
	c.Servers = min(redisconn.Default(c.Servers, (c.Concurrency+2499)/2500), c.Concurrency)
	c.TaskCheckInterval = redisconn.Default(c.TaskCheckInterval, 500*time.Millisecond)
	c.DelayedTaskCheckInterval = redisconn.Default(c.DelayedTaskCheckInterval, 500*time.Millisecond)
	c.ShutdownTimeout = redisconn.Default(c.ShutdownTimeout, 35*time.Second)
}

const (
	// timeouts is by how much consumers wait longer: the tasks of a fetch that Redis executes too late run half a minute later.
	timeouts = 5
	// quietWait bounds how long Quiet waits for a fetch that hangs in Redis.
	quietWait = time.Second
	// cutAfter is by how much Stop may outlast ShutdownTimeout before it cuts the connections.
	cutAfter = 2 * time.Second
)

// Consumer takes the tasks of one queue out of Redis, for one process. It runs until Stop, with or without Redis.
type Consumer struct {
	redis    *redisconn.Redis
	cfg      Config
	queue    string
	handle   asynq.HandlerFunc
	messages map[string]func(message string) // by the channel that they come from

	client     redis.UniversalClient
	cut        context.CancelFunc // breaks its connections
	broker     *batch.Broker
	servers    []*asynq.Server
	subscriber *notify.Subscriber
	wakeUps    notify.WakeUps

	start, quiet, halt sync.Once
	quieting           sync.WaitGroup
	stopping           chan struct{} // closed: no more pauses after errors
	stopped            chan struct{}
}

// newConsumer makes a consumer of the queue that hands each task to handle.
func newConsumer(r *redisconn.Redis, cfg Config, name string, handle asynq.HandlerFunc) *Consumer {
	cfg.setDefaults()
	return &Consumer{
		redis: r, cfg: cfg, queue: name, handle: handle, messages: map[string]func(string){},
		stopping: make(chan struct{}), stopped: make(chan struct{}),
	}
}

// Start begins to fetch. It does not wait for Redis, which is tried until Stop. ctx gives handlers its values; its end means nothing.
// A second Start, or one after Quiet or Stop, does nothing.
func (c *Consumer) Start(ctx context.Context) (err error) {
	c.start.Do(func() { err = c.run(ctx) })
	return err
}

func (c *Consumer) run(ctx context.Context) error {
	c.connect()
	log := redisconn.NewAsynqLog(c.redis.Log)
	for i := range c.cfg.Servers {
		s := asynq.NewServerFromRedisClient(c.broker, c.serverConfig(ctx, i, log))
		err := s.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			return c.broker.Handle(ctx, func() error { return c.handle(ctx, t) })
		}))
		if err != nil {
			return fmt.Errorf("starting the asynq server: %w", err)
		}
		c.servers = append(c.servers, s)
	}
	return nil
}

// connect makes the consumer's own client, with its timeouts and connections that can be cut, and the broker for asynq.
func (c *Consumer) connect() {
	timeout := timeouts * c.redis.Timeout
	o := c.redis.ClientOptions(timeout, 8+4*c.cfg.Servers)
	var connections context.Context
	connections, c.cut = context.WithCancel(context.Background())
	o.Dialer = c.redis.DialUntil(connections)
	o.MaxRetries = 1 // asynq does not repair a lost "retry" or "archive" by itself
	c.client = c.redis.NewClient(o)
	c.client.AddHook(pacer{redis: c.redis, stop: c.stopping})
	c.wakeUps = notify.NewWakeUps(c.redis, c.queue)
	c.wakeUps.Start()
	c.broker = batch.New(c.client, batch.Config{
		Queue: c.queue, Concurrency: c.cfg.Concurrency, CheckInterval: c.cfg.TaskCheckInterval,
		DelayedCheckInterval: c.cfg.DelayedTaskCheckInterval, Timeout: timeout, Moved: c.wakeUps.Send, Stopping: c.stopping, Clock: c.cfg.Clock,
	})
	c.broker.Start()
	c.messages[notify.WakeUpChannel(c.queue)] = func(string) { c.broker.WakeUp() }
	c.subscriber = notify.NewSubscriber(c.redis, notify.SubscriberConfig{
		Client:   c.client,
		Outages:  redisconn.NewCircuit("", slog.New(slog.DiscardHandler), nil), // asynq logs them
		Received: func(channel, message string) { c.messages[channel](message) },
	}, slices.Collect(maps.Keys(c.messages))...)
	c.subscriber.Start()
}

func (c *Consumer) serverConfig(ctx context.Context, i int, log asynq.Logger) asynq.Config {
	concurrency := c.cfg.Concurrency / c.cfg.Servers
	if i < c.cfg.Concurrency%c.cfg.Servers {
		concurrency++
	}
	delayed := time.Duration(1) // the broker has waited
	if i > 0 {
		delayed = time.Hour // the first server looks for all
	}
	base := context.WithoutCancel(ctx)
	return asynq.Config{
		Concurrency:              concurrency,
		BaseContext:              func() context.Context { return base },
		Queues:                   map[string]int{c.queue: 1},
		TaskCheckInterval:        1,
		DelayedTaskCheckInterval: delayed,
		ShutdownTimeout:          c.cfg.ShutdownTimeout,
		RetryDelayFunc:           retryDelay,
		Logger:                   log,
		LogLevel:                 asynq.InfoLevel,
	}
}

// retryDelay is the wait after the n-th failure (from 0) of a task's handler.
func retryDelay(n int, _ error, _ *asynq.Task) time.Duration {
	return min(time.Duration(n+1)*time.Second, 10*time.Second)
}

// archived has asynq keep a task in the archive, with the text as its error.
type archived struct{ error }

func (archived) Is(target error) bool { return target == asynq.SkipRetry }

func (a archived) Unwrap() error { return a.error }

// handler makes the handler for tasks of one type. A task that parse cannot read is archived, where the dashboard shows it.
func handler[T any](
	r *redisconn.Redis, taskType string, results *prometheus.CounterVec, parse func(string) (T, error), handle func(context.Context, T) error,
) asynq.HandlerFunc {
	return func(ctx context.Context, t *asynq.Task) error {
		task, err := parse(string(t.Payload()))
		if err != nil || t.Type() != taskType {
			results.WithLabelValues(redisconn.ResultBad).Inc()
			r.Log.Error("a task cannot be read; it is left in the archive", "type", t.Type(), slog.Int("bytes", len(t.Payload())))
			return archived{queue.ErrBadPayload}
		}
		result, err := resultOf(handle(ctx, task))
		results.WithLabelValues(result).Inc()
		return err
	}
}

// resultOf gives what is counted of a handled task, and what asynq is to hear: a task whose work failed is archived.
func resultOf(err error) (string, error) {
	var failed *job.TaskFailed
	var early *job.TaskEarly
	switch {
	case err == nil:
		return redisconn.ResultOK, nil
	case errors.As(err, &failed):
		return redisconn.ResultOK, archived{failed}
	case errors.Is(err, job.ErrTaskStale):
		return redisconn.ResultStale, err
	case errors.As(err, &early):
		return redisconn.ResultEarly, err
	}
	return redisconn.ResultFailed, err
}

// Hold stops fetching for now, or goes on; handlers go on. It comes after Start.
func (c *Consumer) Hold(on bool) {
	if c.broker != nil { // it was stopped before
		c.broker.Hold(on)
	}
}

// Quiet stops fetching; handlers go on. A fetch in flight may still bring a task. It may be called again.
func (c *Consumer) Quiet() {
	c.start.Do(func() {}) // a later Start starts nothing
	c.quiet.Do(func() {
		for _, s := range c.servers {
			c.quieting.Go(s.Stop)
		}
		if c.broker != nil {
			c.quieting.Go(c.broker.Quiet)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), quietWait)
	defer cancel()
	_ = redisconn.WaitFor(ctx, c.quieting.Wait)
}

// Stop stops fetching, waits up to ShutdownTimeout for the handlers, puts the tasks of those that still run back into the queue,
// and ends. It does not end handlers. When ctx ends first the rest goes on without it. It may be called again, before Start, and
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
		return // it was never started
	}
	close(c.stopping)
	cut := time.AfterFunc(c.cfg.ShutdownTimeout+cutAfter, func() {
		c.redis.Log.Warn("Redis does not answer; its connections are cut to stop")
		c.cut()
	})
	var ending sync.WaitGroup
	for _, s := range c.servers {
		ending.Go(s.Shutdown)
	}
	ctx := context.Background()
	ending.Go(func() { _ = c.subscriber.Stop(ctx) })
	ending.Wait()
	c.quieting.Wait()
	_ = c.broker.Stop(ctx)
	_ = c.wakeUps.Stop(ctx)
	cut.Stop()
	_ = c.client.Close()
	c.cut()
}
