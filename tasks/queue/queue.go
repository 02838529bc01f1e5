// Package queue puts tasks into the asynq queues and reads their state.
//
// A task is a hint: "check job J, attempt N", or "check delivery D". A task may come late, twice, or never. If a task cannot be sent, it
// is counted and dropped. The relay creates dropped tasks again from Postgres.
package queue

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/notify"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// MaxRetry is how often asynq runs a task again after its handler returned an error. After the last retry, asynq archives the task, and the
// relay starts the archived task again.
const MaxRetry = 1000

const (
	enqueueBatch   = 256   // tasks
	maxBuffered    = 65536 // limit of buffered job tasks, and also of buffered delivery tasks
	deliveryTime   = 5 * time.Minute
	farAhead       = 365 * 24 * time.Hour
	defaultTaskFor = time.Hour
)

// Config configures a queue. Fields with the zero value get defaults.
type Config struct {
	// MaxTaskTime is how long a job's task may run. After this time, the handler counts as lost, and asynq runs the task again. MaxTaskTime
	// must be longer than any job. Default 1 h; rounded up to whole seconds.
	MaxTaskTime time.Duration
	// Clock decides when tasks are due. It should follow Postgres' clock; nil means the machine's clock.
	Clock *clock.Clock
}

// Queue puts tasks into Redis and publishes notifications.
//
// Enqueue, EnqueueDelivery, Remove, RemoveDeliveries, SignalCancel and Publish are best effort and do not block. Progress waits for
// Redis, but only briefly. Ensure, EnsureDeliveries and AppendOutcomes wait for a few round trips to Redis. redisconn.Options.Timeout
// limits each round trip.
type Queue struct {
	*notify.Publisher
	redis    *redisconn.Redis
	clock    *clock.Clock
	taskTime time.Duration // see Config.MaxTaskTime
	client   *asynq.Client

	jobs       *notify.Sender[hint]
	deliveries *notify.Sender[hint]
	removals   *notify.Sender[removal]

	sightings sightings
	ready     struct {
		mu  sync.Mutex
		at  time.Time
		err error
	}
	condition atomic.Pointer[Condition]
}

// New makes a queue that buffers until Start.
func New(r *redisconn.Redis, cfg Config) *Queue {
	cfg.MaxTaskTime = cmp.Or(cfg.MaxTaskTime, defaultTaskFor)
	q := &Queue{
		Publisher: notify.NewPublisher(r, cfg.MaxTaskTime),
		redis:     r,
		clock:     cfg.Clock,
		taskTime:  (cfg.MaxTaskTime + time.Second - 1).Truncate(time.Second),
		sightings: sightings{of: map[string]sighting{}},
		client:    asynq.NewClientFromRedisClient(r.Client),
	}
	q.removals = notify.NewSender(notify.SenderConfig[removal]{
		Buffer: maxRemovals, Batch: removeBatch, Send: q.sendRemovals, Circuit: redisconn.NewCircuit("removing tasks", r.Log, nil),
	})
	q.jobs = q.newSender("enqueueing", r.Metrics.Enqueued, r.Metrics.Buffered)
	// Deliveries have their own sender and circuit, because in a cluster their queue may be on another server.
	q.deliveries = q.newSender("enqueueing deliveries", r.Metrics.DeliveriesEnqueued, nil)
	return q
}

const registration = "registration"

// register makes a queue known to asynq's inspectors. An asynq client registers a queue only with the client's first task. So register
// enqueues a task with a new client, and removes the task immediately.
func (q *Queue) register(ctx context.Context, name string) error {
	_, err := asynq.NewClientFromRedisClient(q.redis.Client).EnqueueContext(ctx, asynq.NewTask(registration, nil), asynq.Queue(name),
		asynq.TaskID(registration), asynq.ProcessIn(farAhead))
	if err == nil || errors.Is(err, asynq.ErrTaskIDConflict) {
		err = q.redis.Inspector.DeleteTask(name, registration)
	}
	if errors.Is(err, asynq.ErrTaskNotFound) { // another process has removed it
		return nil
	}
	return err
}

func (q *Queue) newSender(what string, results *prometheus.CounterVec, waiting prometheus.Gauge) *notify.Sender[hint] {
	return notify.NewSender(notify.SenderConfig[hint]{
		Buffer: maxBuffered, Batch: enqueueBatch, Waiting: waiting, Results: results, Circuit: redisconn.NewCircuit(what, q.redis.Log, nil),
		Send: func(ctx context.Context, hints []hint) error { return q.send(ctx, hints, results) },
	})
}

// Start starts sending. It does not wait for Redis and may be called again.
func (q *Queue) Start() {
	q.Publisher.Start()
	q.jobs.Start()
	q.deliveries.Start()
	q.removals.Start()
}

// Stop sends the buffered tasks and then ends the senders; see notify.Sender.Stop. Later tasks, signals and notifications are dropped.
func (q *Queue) Stop(ctx context.Context) error {
	_ = q.Publisher.Stop(ctx)
	_ = q.jobs.Stop(ctx)
	_ = q.deliveries.Stop(ctx)
	return q.removals.Stop(ctx)
}

// Enqueue puts the task into the queue, after earlier tasks. It does not block: if the buffer is full or Redis is down, the task is
// dropped and counted, and the relay creates it again.
func (q *Queue) Enqueue(t job.Task) { q.jobs.Add(jobHint(t)) }

// EnqueueDelivery is like Enqueue, for a delivery.
func (q *Queue) EnqueueDelivery(t job.DeliveryTask) { q.deliveries.Add(deliveryHint(t)) }

// send enqueues the tasks one after another, so that they keep their order.
func (q *Queue) send(ctx context.Context, hints []hint, results *prometheus.CounterVec) error {
	for i, h := range hints {
		err := q.put(ctx, h, 0)
		switch {
		case err == nil:
			results.WithLabelValues(redisconn.ResultOK).Inc()
		case errors.Is(err, asynq.ErrTaskIDConflict):
			results.WithLabelValues(redisconn.ResultConflict).Inc()
		default:
			results.WithLabelValues(redisconn.ResultFailed).Add(float64(len(hints) - i))
			return q.redis.Failed("enqueue", err)
		}
	}
	return nil
}

// put enqueues a task. If n is not 0, the task's id gets the suffix "/n". put returns asynq.ErrTaskIDConflict if a task with the same id
// exists.
func (q *Queue) put(ctx context.Context, h hint, n int) (err error) {
	if q.redis.Tracer != nil && h.traceparent != "" {
		var end func(error)
		h.traceparent, end = q.trace(ctx, h)
		defer func() { end(err) }()
	}
	timeout := q.taskTime
	if h.queue == redisconn.Webhooks {
		timeout = deliveryTime
	}
	_, err = q.client.EnqueueContext(ctx, h.task(), asynq.Queue(h.queue), asynq.TaskID(h.name(n)), asynq.MaxRetry(MaxRetry),
		asynq.Timeout(timeout), asynq.ProcessAt(q.processAt(h.at)))
	return err
}

// processAt converts t from the service's time to the machine's time. With a frozen clock the result would be infinite. So the result is
// limited to a year ahead.
func (q *Queue) processAt(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return time.Now().Add(min(q.clock.Wait(t.Sub(q.clock.Now())), farAhead))
}
