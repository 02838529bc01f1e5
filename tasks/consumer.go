package tasks

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// consumer takes the tasks of one queue out of Redis: what Workers and Couriers
// have in common.
type consumer struct {
	redis  *Redis
	cfg    WorkersConfig
	queue  string
	handle asynq.HandlerFunc
	// hears are the channels that it listens to, and what is done with what comes;
	// its queue's bell is one.
	hears map[string]func(message string)

	client  redis.UniversalClient
	cutter  *cutter
	hurry   chan struct{} // closed: no more pauses after errors
	broker  *broker
	servers []*asynq.Server
	heard   *subscription
	ringer  *ringer
	ended   chan struct{} // closed: the servers have ended
	aside   sync.WaitGroup

	mu       sync.Mutex
	state    consumerState
	quieting sync.WaitGroup
	stopped  chan struct{}
}

type consumerState int

const (
	consumerNew consumerState = iota
	consumerRunning
	consumerQuiet
	consumerStopped
)

// quietWait bounds how long Quiet waits for a fetch that hangs in Redis, and
// cutAfter by how much Stop may outlast ShutdownTimeout before it cuts the
// connections.
const (
	quietWait = time.Second
	cutAfter  = 2 * time.Second
)

// newConsumer makes a consumer of the queue that hands each task to handle.
func newConsumer(r *Redis, cfg WorkersConfig, queue string, handle asynq.HandlerFunc) *consumer {
	cfg.setDefaults()
	return &consumer{
		redis: r, cfg: cfg, queue: queue, handle: handle, hears: map[string]func(string){}, ringer: newRinger(r, queue),
		cutter: newCutter(r.timeout, r.address.TLSConfig), hurry: make(chan struct{}),
		ended: make(chan struct{}), stopped: make(chan struct{}),
	}
}

// Start begins to fetch. It does not wait for Redis; while Redis is down the
// consumer keeps trying. ctx gives handlers its values; its end means nothing.
// A second Start, or one after Stop, does nothing.
func (c *consumer) Start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != consumerNew {
		return nil
	}
	c.state = consumerRunning
	c.connect()
	c.heard = c.redis.subscribe(c.client, c.hears)
	c.aside.Go(func() { c.broker.finisher.run(c.ended) })
	c.aside.Go(func() { c.ringer.run(c.ended) })
	log := newAsynqLog(c.redis.log)
	for i := range c.cfg.Servers {
		s := asynq.NewServerFromRedisClient(c.broker, c.serverConfig(ctx, i, log))
		if err := s.Start(asynq.HandlerFunc(c.handleOne)); err != nil {
			return fmt.Errorf("starting the asynq server: %w", err)
		}
		c.servers = append(c.servers, s)
	}
	return nil
}

// handleOne counts the handler while it runs, even if it panics.
func (c *consumer) handleOne(ctx context.Context, t *asynq.Task) error {
	c.broker.fetcher.slots.enter()
	defer c.broker.fetcher.slots.leave()
	return c.handle(ctx, t)
}

// connect makes a client of the consumer's own: with its timeouts, and with
// connections that can be cut.
func (c *consumer) connect() {
	patience := workerPatience * c.redis.timeout
	o := c.redis.options(patience, 8+4*c.cfg.Servers)
	o.Dialer = c.cutter.dial
	o.MaxRetries = 1 // asynq does not repair a lost "retry" or "archive" by itself
	c.client = c.redis.newClient(o)
	c.client.AddHook(pacer{redis: c.redis, stop: c.hurry})
	fetcher := newFetcher(c.client, patience, c.queue, c.cfg.Concurrency, c.cfg.TaskCheckInterval)
	c.hears[bellChannel(c.queue)] = func(string) { fetcher.tell() }
	c.broker = &broker{
		UniversalClient: c.client, keys: fetcher.keys, fetcher: fetcher, finisher: newFinisher(c.client, c.queue),
		moved: func() {
			fetcher.bell.ring()
			c.ringer.ring()
		},
	}
}

func (c *consumer) serverConfig(ctx context.Context, i int, log asynq.Logger) asynq.Config {
	concurrency := c.cfg.Concurrency / c.cfg.Servers
	if i < c.cfg.Concurrency%c.cfg.Servers {
		concurrency++
	}
	delayed := c.cfg.DelayedTaskCheckInterval
	if i > 0 {
		delayed = time.Hour // the first server looks for all
	}
	base := context.WithoutCancel(ctx)
	return asynq.Config{
		Concurrency:              concurrency,
		BaseContext:              func() context.Context { return base },
		Queues:                   map[string]int{c.queue: 1},
		TaskCheckInterval:        1, // the fetcher has waited
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

// handler makes the asynq handler for tasks of one type whose payload parse
// reads. A task that cannot be read is archived, where the dashboard shows it.
func handler[T any](
	r *Redis, taskType string, handled *prometheus.CounterVec, parse func(string) (T, error), handle func(context.Context, T) error,
) asynq.HandlerFunc {
	return func(ctx context.Context, t *asynq.Task) error {
		task, err := parse(string(t.Payload()))
		if err != nil || t.Type() != taskType {
			handled.WithLabelValues(resultBad).Inc()
			r.log.Error("a task cannot be read; it is left in the archive",
				"type", t.Type(), slog.Int("bytes", len(t.Payload())))
			return fmt.Errorf("%w: %w", errBadPayload, asynq.SkipRetry)
		}
		if err := handle(ctx, task); err != nil {
			handled.WithLabelValues(resultFailed).Inc()
			return err
		}
		handled.WithLabelValues(resultOK).Inc()
		return nil
	}
}

// Quiet stops fetching and leaves the running handlers alone. A fetch that is
// on its way may still bring a task. It may be called again.
func (c *consumer) Quiet() {
	c.mu.Lock()
	if c.state == consumerRunning {
		c.state = consumerQuiet
		close(c.broker.fetcher.quiet)
		for _, s := range c.servers {
			c.quieting.Go(s.Stop)
		}
		c.quieting.Go(c.broker.fetcher.silence)
	}
	c.mu.Unlock()
	waitFor(&c.quieting, quietWait)
}

// Stop stops fetching, waits up to ShutdownTimeout for the handlers, puts the
// tasks of those that still run back into the queue, and ends. It does not end
// handlers. It may be called again, before Start, and while Redis hangs.
func (c *consumer) Stop() {
	c.Quiet()
	c.mu.Lock()
	state := c.state
	c.state = consumerStopped
	c.mu.Unlock()
	switch state {
	case consumerStopped:
		<-c.stopped
		return
	case consumerNew:
		close(c.stopped)
		return
	}
	defer close(c.stopped)
	close(c.hurry)
	var ending sync.WaitGroup
	for _, s := range c.servers {
		ending.Go(s.Shutdown)
	}
	ending.Go(c.heard.stop)
	cut := time.AfterFunc(c.cfg.ShutdownTimeout+cutAfter, func() {
		c.redis.log.Warn("Redis does not answer; its connections are cut to stop")
		c.cutter.cut()
	})
	ending.Wait()
	c.quieting.Wait()
	close(c.ended)
	c.aside.Wait()
	cut.Stop()
	_ = c.client.Close()
}

// waitFor waits for the group, at most for d, and reports whether it is done.
func waitFor(group *sync.WaitGroup, d time.Duration) bool {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
