package tasks

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/forgerun/forgerun/job"
)

// queueJobs is the asynq queue of tasks that point at jobs.
const queueJobs = "jobs"

// Queues are the asynq queues, as the dashboard shows them.
var Queues = []string{queueJobs, queueWebhooks}

// maxRetry is how often asynq runs a task again whose handler reported trouble
// with the infrastructure. It is not the number of a job's attempts. When it
// is used up the task is archived, and the relay dispatches the job anew.
const maxRetry = 1000

// QueueConfig has defaults for what is zero.
type QueueConfig struct {
	// MaxTaskTime is after how long asynq takes a handler for lost and the task
	// is run again; more than any job can take. Default 1 h. Rounded up to whole
	// seconds.
	MaxTaskTime time.Duration
	// Buffer is how many tasks may wait to be enqueued. Default 65536.
	Buffer int
	// Senders is how many tasks are enqueued at once. Default 32.
	Senders int
}

// Queue puts tasks into Redis.
//
// Enqueue, SignalCancel, Publish and Wake are best effort and never wait;
// Progress waits for a moment; Dispatch, Missing, WakeDeliveries, AppendOutcomes, Epoch,
// SetEpoch and Depth answer, within their context and a few times
// Options.Timeout.
type Queue struct {
	redis   *Redis
	client  *asynq.Client
	options []asynq.Option
	circuit *circuit // of Enqueue and SignalCancel
	telling *circuit // of Publish
	hinting *circuit // of Wake: in a cluster its queue is on another server than "jobs"
	reading *circuit // of Progress, which gives up early

	maxTaskTime time.Duration

	tasks   chan job.Task
	signals chan job.ID
	news    chan job.Notification
	woken   *hints
	bells   map[string]*ringer // by queue
	senders int

	start, halt sync.Once
	stopped     atomic.Bool
	stopping    chan struct{} // closed: send what is buffered, then end
	abort       chan struct{} // closed: drop what is buffered
	running     sync.WaitGroup
	sent        chan struct{} // closed: nothing is sent any more
	ringing     sync.WaitGroup
}

// NewQueue makes a queue that buffers until Start.
func NewQueue(r *Redis, cfg QueueConfig) *Queue {
	if cfg.MaxTaskTime <= 0 {
		cfg.MaxTaskTime = time.Hour
	}
	if cfg.Buffer <= 0 {
		cfg.Buffer = 65536
	}
	if cfg.Senders <= 0 {
		cfg.Senders = 32
	}
	return &Queue{
		redis:  r,
		client: asynq.NewClientFromRedisClient(r.pipe),
		options: []asynq.Option{
			asynq.Queue(queueJobs), asynq.MaxRetry(maxRetry), asynq.Timeout(ceilSecond(cfg.MaxTaskTime)),
		},
		circuit:     newCircuit("enqueueing", r.log, func(bool) {}),
		telling:     newCircuit("telling news", r.log, func(bool) {}),
		hinting:     newCircuit("hinting at deliveries", r.log, func(bool) {}),
		reading:     newCircuit("reading progress", r.log, func(bool) {}),
		maxTaskTime: cfg.MaxTaskTime,
		tasks:       make(chan job.Task, cfg.Buffer),
		signals:     make(chan job.ID, 4096),
		news:        make(chan job.Notification, newsBuffer),
		woken:       newHints(),
		bells:       map[string]*ringer{queueJobs: newRinger(r, queueJobs), queueWebhooks: newRinger(r, queueWebhooks)},
		senders:     cfg.Senders,
		stopping:    make(chan struct{}),
		abort:       make(chan struct{}),
		sent:        make(chan struct{}),
	}
}

// Start begins to send. It does not wait for Redis and may be called again.
func (q *Queue) Start() {
	q.start.Do(func() {
		if q.stopped.Load() {
			return
		}
		for range q.senders {
			q.running.Go(q.send)
		}
		q.running.Go(q.sendSignals)
		q.running.Go(q.sendNews)
		q.running.Go(q.sendHints)
		q.running.Go(q.register)
		for _, bell := range q.bells {
			q.ringing.Go(func() { bell.run(q.sent) })
		}
	})
}

// Stop sends what is buffered and ends. When ctx ends first it drops the rest
// and returns ctx's error; what is on its way to Redis then may still arrive.
// It may be called again, and before Start. Later tasks, signals, news and hints
// are dropped.
func (q *Queue) Stop(ctx context.Context) error {
	q.start.Do(func() {}) // a later Start starts nothing
	q.halt.Do(func() {
		q.stopped.Store(true)
		close(q.stopping)
		done := make(chan struct{})
		go func() {
			q.running.Wait()
			close(q.sent)
			q.ringing.Wait()
			close(done)
		}()
		select {
		case <-done:
		case <-ctx.Done():
			close(q.abort)
		}
	})
	return ctx.Err()
}

// Enqueue puts the task into the queue, soon. It never waits and reports
// nothing: a task that finds the buffer full or Redis down is dropped and
// counted, and the relay dispatches it.
func (q *Queue) Enqueue(t job.Task) {
	if q.stopped.Load() {
		q.count(resultDropped)
		return
	}
	select {
	case q.tasks <- t:
		q.redis.metrics.buffered.Inc()
	default:
		q.count(resultDropped)
	}
}

// send is one sender.
func (q *Queue) send() {
	for {
		select {
		case t := <-q.tasks:
			q.sendOne(t)
		case <-q.stopping:
			q.drain()
			return
		}
	}
}

func (q *Queue) drain() {
	for {
		select {
		case t := <-q.tasks:
			q.sendOne(t)
		default:
			return
		}
	}
}

func (q *Queue) sendOne(t job.Task) {
	q.redis.metrics.buffered.Dec()
	select {
	case <-q.abort:
		q.count(resultDropped)
		return
	default:
	}
	if !q.circuit.allow() {
		q.count(resultSkipped)
		return
	}
	err := q.enqueue(context.Background(), t)
	switch {
	case err == nil:
		q.count(resultOK)
	case errors.Is(err, asynq.ErrTaskIDConflict):
		q.count(resultConflict)
		err = nil
	default:
		q.count(resultFailed)
		err = q.redis.failed("enqueue", err)
	}
	q.circuit.report(err)
}

func (q *Queue) count(result string) { q.redis.metrics.enqueued.WithLabelValues(result).Inc() }

// enqueue puts one task into Redis. asynq forgets the fraction of a second of
// the time it is given, so that is rounded up: a task never comes early.
func (q *Queue) enqueue(ctx context.Context, t job.Task) error {
	options := append([]asynq.Option{asynq.TaskID(taskName(t))}, q.options...)
	later := t.RunAt.After(time.Now())
	if later {
		options = append(options, asynq.ProcessAt(ceilTime(t.RunAt)))
	}
	return q.traced(ctx, t, func(ctx context.Context, task *asynq.Task) error {
		_, err := q.client.EnqueueContext(ctx, task, options...)
		if err == nil && !later {
			q.bells[queueJobs].ring()
		}
		return err
	})
}

func ceilTime(t time.Time) time.Time {
	if down := t.Truncate(time.Second); !down.Equal(t) {
		return down.Add(time.Second)
	}
	return t
}

func ceilSecond(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}
