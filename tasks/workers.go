package tasks

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
)

// WorkersConfig has defaults for what is zero.
type WorkersConfig struct {
	// Concurrency is how many tasks are handled at once. Default 1.
	Concurrency int
	// Servers is how many asynq servers share them: each fetches with one
	// goroutine, about ten thousand tasks a second. Default: one for each 128.
	Servers int
	// TaskCheckInterval is how often an idle server looks for tasks, and so how
	// late it may be. Default 5 ms.
	TaskCheckInterval time.Duration
	// DelayedTaskCheckInterval is how often a server looks for tasks whose time
	// has come. Default 200 ms.
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
		c.Servers = (c.Concurrency + 127) / 128
	}
	c.Servers = min(c.Servers, c.Concurrency)
	if c.TaskCheckInterval <= 0 {
		c.TaskCheckInterval = 5 * time.Millisecond
	}
	if c.DelayedTaskCheckInterval <= 0 {
		c.DelayedTaskCheckInterval = 200 * time.Millisecond
	}
	if c.ShutdownTimeout <= 0 {
		c.ShutdownTimeout = 35 * time.Second
	}
}

// Workers take tasks out of Redis and receive cancel signals, for one process.
// They run for as long as they are not stopped, with or without Redis.
type Workers struct {
	redis    *Redis
	cfg      WorkersConfig
	handle   func(ctx context.Context, t job.Task) error
	canceled func(job.ID)

	client  redis.UniversalClient
	cutter  *cutter
	hurry   chan struct{} // closed: no more pauses after errors
	servers []*asynq.Server
	signals *subscription

	mu       sync.Mutex
	state    workersState
	quieting sync.WaitGroup
	stopped  chan struct{}
}

type workersState int

const (
	workersNew workersState = iota
	workersRunning
	workersQuiet
	workersStopped
)

// quietWait bounds how long Quiet waits for a fetch that hangs in Redis, and
// cutAfter by how much Stop may outlast ShutdownTimeout before it cuts the
// connections.
const (
	quietWait = time.Second
	cutAfter  = 2 * time.Second
)

// NewWorkers makes workers that hand each task to handle and the id of each
// cancelled job to canceled.
//
// handle returns nil once the task is done with, whatever became of the job:
// asynq then forgets the task at once. An error means that the infrastructure
// failed; the task is run again after 1 to 10 seconds. The context ends when
// Redis has been away for half a minute or QueueConfig.MaxTaskTime is over;
// asynq then hands the task to somebody else while handle still runs. It is
// information and no reason to stop. canceled must return quickly.
func NewWorkers(r *Redis, cfg WorkersConfig, handle func(ctx context.Context, t job.Task) error, canceled func(job.ID)) *Workers {
	cfg.setDefaults()
	w := &Workers{
		redis: r, cfg: cfg, handle: handle, canceled: canceled,
		cutter: newCutter(r.timeout, r.address.TLSConfig), hurry: make(chan struct{}), stopped: make(chan struct{}),
	}
	return w
}

// Start begins to fetch. It does not wait for Redis; while Redis is down the
// workers keep trying. ctx gives handlers its values; its end means nothing.
// A second Start, or one after Stop, does nothing.
func (w *Workers) Start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != workersNew {
		return nil
	}
	w.state = workersRunning
	w.connect()
	w.signals = w.redis.subscribe(w.client, w.canceled)
	log := newAsynqLog(w.redis.log)
	for i := range w.cfg.Servers {
		s := asynq.NewServerFromRedisClient(w.client, w.serverConfig(ctx, i, log))
		if err := s.Start(asynq.HandlerFunc(w.process)); err != nil {
			return fmt.Errorf("starting the asynq server: %w", err)
		}
		w.servers = append(w.servers, s)
	}
	return nil
}

// connect makes a client of the workers' own: with their timeouts, and with
// connections that can be cut.
func (w *Workers) connect() {
	o := w.redis.options(workerPatience*w.redis.timeout, min(w.cfg.Concurrency, 64)+4*w.cfg.Servers)
	o.Dialer = w.cutter.dial
	o.MaxRetries = 1 // asynq does not repair a lost "done" by itself
	w.client = redis.NewUniversalClient(o)
	w.client.AddHook(pacer{redis: w.redis, stop: w.hurry})
}

func (w *Workers) serverConfig(ctx context.Context, i int, log asynq.Logger) asynq.Config {
	concurrency := w.cfg.Concurrency / w.cfg.Servers
	if i < w.cfg.Concurrency%w.cfg.Servers {
		concurrency++
	}
	base := context.WithoutCancel(ctx)
	return asynq.Config{
		Concurrency:              concurrency,
		BaseContext:              func() context.Context { return base },
		Queues:                   map[string]int{queueJobs: 1},
		TaskCheckInterval:        w.cfg.TaskCheckInterval,
		DelayedTaskCheckInterval: w.cfg.DelayedTaskCheckInterval,
		ShutdownTimeout:          w.cfg.ShutdownTimeout,
		RetryDelayFunc:           retryDelay,
		Logger:                   log,
		LogLevel:                 asynq.InfoLevel,
	}
}

// retryDelay is the wait after the n-th failure (from 0) of a task's handler.
func retryDelay(n int, _ error, _ *asynq.Task) time.Duration {
	return min(time.Duration(n+1)*time.Second, 10*time.Second)
}

// process is the asynq handler. A task that cannot be read is archived, where
// the dashboard shows it.
func (w *Workers) process(ctx context.Context, t *asynq.Task) error {
	handled := w.redis.metrics.handled
	task, err := parseTask(string(t.Payload()))
	if err != nil || t.Type() != taskType {
		handled.WithLabelValues(resultBad).Inc()
		w.redis.log.Error("a task cannot be read; it is left in the archive",
			"type", t.Type(), slog.Int("bytes", len(t.Payload())))
		return fmt.Errorf("%w: %w", errBadPayload, asynq.SkipRetry)
	}
	if err := w.handle(ctx, task); err != nil {
		handled.WithLabelValues(resultFailed).Inc()
		return err
	}
	handled.WithLabelValues(resultOK).Inc()
	return nil
}

// Quiet stops fetching and leaves the running handlers alone. A fetch that is
// on its way may still bring a task. It may be called again.
func (w *Workers) Quiet() {
	w.mu.Lock()
	if w.state == workersRunning {
		w.state = workersQuiet
		for _, s := range w.servers {
			w.quieting.Go(s.Stop)
		}
	}
	w.mu.Unlock()
	waitFor(&w.quieting, quietWait)
}

// Stop stops fetching, waits up to ShutdownTimeout for the handlers, puts the
// tasks of those that still run back into the queue, and ends. It does not end
// handlers. It may be called again, before Start, and while Redis hangs.
func (w *Workers) Stop() {
	w.Quiet()
	w.mu.Lock()
	state := w.state
	w.state = workersStopped
	w.mu.Unlock()
	switch state {
	case workersStopped:
		<-w.stopped
		return
	case workersNew:
		close(w.stopped)
		return
	}
	defer close(w.stopped)
	close(w.hurry)
	var ending sync.WaitGroup
	for _, s := range w.servers {
		ending.Go(s.Shutdown)
	}
	ending.Go(w.signals.stop)
	if !waitFor(&ending, w.cfg.ShutdownTimeout+cutAfter) {
		w.redis.log.Warn("Redis does not answer; its connections are cut to stop")
		w.cutter.cut()
		ending.Wait()
	}
	w.quieting.Wait()
	_ = w.client.Close()
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
