// Package queue puts tasks into the asynq queues and answers for what is there.
//
// A task is a hint: "look at job J, attempt N", or "look at what client C is to be sent". It may come late, twice, or never. What
// could not be sent is counted and dropped, and the relay sends it again from Postgres.
package queue

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/notify"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// MaxRetry is how often asynq runs a task again whose handler reported a failure of the infrastructure; it is not the number of a
// job's attempts. Then the task is archived, and the relay dispatches the job anew.
const MaxRetry = 1000

// Config has defaults for what is zero.
type Config struct {
	// MaxTaskTime is after how long asynq takes a handler for lost and the task is run again; more than any job can take.
	// Default 1 h. Rounded up to whole seconds.
	MaxTaskTime time.Duration
	// Buffer is how many tasks may wait to be enqueued. Default 65536.
	Buffer int
	// Scheduled is how many tasks of jobs may wait in Redis for their time. Default 25000.
	Scheduled int
	// Clock is Postgres' clock, by which tasks wait for their time; nil: the machine's.
	Clock *clock.Clock
}

// Queue puts tasks into Redis, and publishes notifications.
//
// Enqueue, Remove, SignalCancel, Publish and WakeDelivery are best effort, non-blocking; Progress waits for a moment; Dispatch, Missing,
// WakeDeliveries, AppendOutcomes, Epoch, SetEpoch and Depth answer, within their context and a few times Options.Timeout.
type Queue struct {
	*notify.Publisher
	redis     *redisconn.Redis
	clock     *clock.Clock
	taskTime  time.Duration // see Config.MaxTaskTime
	scheduled int

	tasks    *notify.Sender[job.Task]
	removals *notify.Sender[removal]
	clients  *notify.Sender[job.ID]    // of WakeDelivery
	attempts *notify.Sender[*shown]    // of Attempted and DropDeliveries
	wakeUps  map[string]notify.WakeUps // by queue
	senders  []sender                  // all of them

	ready      readiness
	condition  atomic.Pointer[Condition]
	registered atomic.Bool
}

type sender interface {
	Start()
	Stop(ctx context.Context) error
}

// New makes a queue that buffers until Start.
func New(r *redisconn.Redis, cfg Config) *Queue {
	cfg.MaxTaskTime = redisconn.Default(cfg.MaxTaskTime, time.Hour)
	q := &Queue{
		Publisher: notify.NewPublisher(r, cfg.MaxTaskTime),
		redis:     r,
		clock:     cfg.Clock,
		taskTime:  ceilSecond(cfg.MaxTaskTime),
		scheduled: redisconn.Default(cfg.Scheduled, 25_000),
		wakeUps:   map[string]notify.WakeUps{},
	}
	for _, name := range redisconn.Queues {
		q.wakeUps[name] = notify.NewWakeUps(r, name)
	}
	q.removals = q.newRemovals()
	q.attempts = q.newAttempts()
	q.tasks = notify.NewSender(notify.SenderConfig[job.Task]{
		Buffer: redisconn.Default(cfg.Buffer, 65536), Batch: maxPut,
		Send: q.sendTasks, Waiting: r.Metrics.Buffered,
		Circuit: redisconn.NewCircuit("enqueueing", r.Log, nil), Results: r.Metrics.Enqueued,
	})
	q.clients = notify.NewSender(notify.SenderConfig[job.ID]{
		Buffer: maxWoken, Batch: maxPut, Pause: wakeUpRest, Send: q.sendWakeUps,
		// In a cluster this queue is on another server than "jobs".
		Circuit: redisconn.NewCircuit("waking deliveries", r.Log, nil), Results: r.Metrics.WakeUps,
	})
	q.senders = []sender{q.Publisher, q.tasks, q.removals, q.clients, q.attempts}
	for _, name := range redisconn.Queues {
		q.senders = append(q.senders, q.wakeUps[name])
	}
	return q
}

// Start begins to send. It does not wait for Redis and may be called again.
func (q *Queue) Start() {
	for _, s := range q.senders {
		s.Start()
	}
}

// Stop sends what is buffered and ends; see notify.Sender.Stop. Later tasks, signals, notifications and wake-ups are dropped.
func (q *Queue) Stop(ctx context.Context) error {
	for _, s := range q.senders { // wake-ups last: the others send some
		_ = s.Stop(ctx)
	}
	return ctx.Err()
}

// Enqueue puts the task into the queue, after those that were enqueued before, best effort, non-blocking: a task that finds the
// buffer full or Redis down is dropped and counted, and the relay dispatches it.
func (q *Queue) Enqueue(t job.Task) { q.tasks.Add(t) }

func (q *Queue) sendTasks(ctx context.Context, ts []job.Task) error {
	results, err := q.putTasks(ctx, ts)
	if err != nil {
		q.redis.Metrics.Enqueued.WithLabelValues(redisconn.ResultFailed).Add(float64(len(ts)))
		return q.redis.Failed("enqueue", err)
	}
	for _, result := range results {
		q.redis.Metrics.Enqueued.WithLabelValues(enqueueResults[result]).Inc()
	}
	return nil
}

var enqueueResults = [...]string{putTaken: redisconn.ResultConflict, putDone: redisconn.ResultOK, putRefused: redisconn.ResultNoRoom}

// putTasks puts at most maxPut tasks into the queue, in their order.
func (q *Queue) putTasks(ctx context.Context, ts []job.Task) ([]putResult, error) {
	entries := make([]entry, len(ts))
	end := func(error) {}
	if q.redis.Tracer != nil { // else the consumer may trace the task
		ts = slices.Clone(ts)
		end = q.trace(ctx, ts)
	}
	for i, t := range ts {
		m := message{
			kind: JobTask, payload: payloadOf(t), id: TaskName(t), queue: redisconn.Jobs, timeout: q.taskTime, traceparent: t.TraceParent,
		}
		entries[i] = entry{m.id, m.encode(), t.RunAt}
	}
	results, err := q.put(ctx, redisconn.Jobs, entries, q.scheduled)
	end(err)
	return results, err
}

func ceilSecond(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

// Depth counts the tasks of queue "jobs" by asynq state: pending, active,
// scheduled, retry, archived, completed.
func (q *Queue) Depth(ctx context.Context) (map[string]int64, error) {
	return q.redis.Depth(ctx, redisconn.Jobs)
}

// LastScheduled is when the time of the last task comes of those of queue "jobs" that wait for theirs; zero if there are none.
func (q *Queue) LastScheduled(ctx context.Context) (time.Time, error) {
	last, err := q.redis.Client.ZRevRangeWithScores(ctx, redisconn.QueueKey(redisconn.Jobs, "scheduled"), 0, 0).Result()
	if err != nil || len(last) == 0 {
		return time.Time{}, q.redis.Failed("depth", err)
	}
	return redisconn.ScoreTime(last[0].Score), nil
}

// Ping checks that Redis answers.
func (q *Queue) Ping(ctx context.Context) error { return q.redis.Ping(ctx) }
