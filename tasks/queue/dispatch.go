package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

const (
	askChunk = 256 // tasks that one round trip asks for
	// leaseRest is how much is left of an active task's lease (30 s) at least while its worker renews it, every 5 s.
	leaseRest = 20 * time.Second
	// leaseMost is more than an active task's lease can have left. A longer one was given by a machine whose clock is ahead.
	leaseMost = time.Minute
)

// Dispatch puts those of the tasks into the queue that it does not have, in their order, and returns what became of each.
// With an error there are no answers, though some of the tasks may be in the queue: asking again finds those present.
func (q *Queue) Dispatch(ctx context.Context, ts []job.Task) ([]job.Dispatched, error) {
	answers, err := q.dispatchAll(ctx, ts)
	counts := q.redis.Metrics.Dispatched
	if err != nil {
		counts.WithLabelValues(redisconn.ResultFailed).Add(float64(len(ts)))
		return nil, q.redis.Failed("dispatch", err)
	}
	for _, a := range answers {
		counts.WithLabelValues(dispatchResults[a]).Inc()
	}
	return answers, nil
}

// dispatchAll asks for all tasks first: that costs less than enqueueing one that turns out to be there. Whether a task that is
// present will be run is left to Missing.
func (q *Queue) dispatchAll(ctx context.Context, ts []job.Task) ([]job.Dispatched, error) {
	states, err := q.states(ctx, ts)
	if err != nil {
		return nil, err
	}
	answers := make([]job.Dispatched, len(ts))
	var missing []int
	for i := range ts {
		switch {
		case states[i] == "":
			missing = append(missing, i)
		case waits(states[i]):
			answers[i] = job.TaskPresent
		default:
			answers[i] = job.TaskIDUsed
		}
	}
	for chunk := range slices.Chunk(missing, maxPut) {
		some := make([]job.Task, len(chunk))
		for n, i := range chunk {
			some[n] = ts[i]
		}
		results, err := q.putTasks(ctx, some)
		if err != nil {
			return nil, err
		}
		for n, i := range chunk {
			answers[i] = dispatched[results[n]]
		}
	}
	return answers, nil
}

var dispatched = [...]job.Dispatched{putTaken: job.TaskPresent, putDone: job.TaskEnqueued, putRefused: job.TaskRefused}

var dispatchResults = map[job.Dispatched]string{
	job.TaskEnqueued: redisconn.ResultOK, job.TaskPresent: redisconn.ResultPresent, job.TaskIDUsed: redisconn.ResultUsed,
	job.TaskRefused: redisconn.ResultNoRoom,
}

// waits reports whether a task in this asynq state will still be run, if the list or set of the state has it. The worker of an
// active one may be gone.
func waits(state string) bool {
	return state == "pending" || state == "scheduled" || state == "retry"
}

// Missing returns those of the tasks that no worker is going to run: Redis does not know them, or they are finished, or their worker
// no longer renews its asynq lease, or the list of their state has lost them, or they are scheduled much later than they are due.
func (q *Queue) Missing(ctx context.Context, ts []job.Task) ([]job.Task, error) {
	states, err := q.states(ctx, ts)
	if err == nil {
		err = q.forgetLost(ctx, redisconn.Jobs, taskNames(ts), states, func(i int) time.Time { return ts[i].RunAt })
	}
	if err != nil {
		return nil, q.redis.Failed("probe", err)
	}
	var missing, taken []job.Task
	for i, t := range ts {
		switch {
		case states[i] == "active":
			taken = append(taken, t)
		case !waits(states[i]):
			missing = append(missing, t)
		}
	}
	abandoned, err := q.abandoned(ctx, taken)
	if err != nil {
		return nil, q.redis.Failed("probe", err)
	}
	return append(missing, abandoned...), nil
}

// states gives the asynq state of each task, "" for one that Redis does not know.
func (q *Queue) states(ctx context.Context, ts []job.Task) ([]string, error) {
	return q.statesOf(ctx, redisconn.Jobs, taskNames(ts))
}

func (q *Queue) statesOf(ctx context.Context, queue string, names []string) ([]string, error) {
	return ask(ctx, q.redis, names, func(p redis.Pipeliner, name string) *redis.StringCmd {
		return p.HGet(ctx, redisconn.TaskKey(queue, name), "state")
	})
}

func taskNames(ts []job.Task) []string {
	names := make([]string, len(ts))
	for i, t := range ts {
		names[i] = TaskName(t)
	}
	return names
}

// abandoned gives those of the active tasks whose worker does not renew its lease.
func (q *Queue) abandoned(ctx context.Context, active []job.Task) ([]job.Task, error) {
	leases, err := ask(ctx, q.redis, taskNames(active), func(p redis.Pipeliner, name string) *redis.FloatCmd {
		return p.ZScore(ctx, redisconn.QueueKey(redisconn.Jobs, "lease"), name)
	})
	var abandoned []job.Task
	renewed := float64(time.Now().Add(leaseRest).Unix())
	longest := float64(time.Now().Add(leaseMost).Unix())
	for i, lease := range leases {
		if lease < renewed || lease > longest { // 0: there is none
			abandoned = append(abandoned, active[i])
		}
	}
	return abandoned, err
}

// ask reads a value of each task, many in one round trip. One that is not there, or is none of asynq's, is zero.
func ask[V any, C interface{ Result() (V, error) }](
	ctx context.Context, r *redisconn.Redis, names []string, read func(p redis.Pipeliner, name string) C,
) ([]V, error) {
	values := make([]V, 0, len(names))
	for chunk := range slices.Chunk(names, askChunk) {
		answers := make([]C, len(chunk))
		pipe := r.Client.Pipeline()
		for i, name := range chunk {
			answers[i] = read(pipe, name)
		}
		_, _ = pipe.Exec(ctx) // each answer has its own error
		for _, a := range answers {
			value, err := a.Result()
			if err != nil && !errors.Is(err, redis.Nil) && !isWrongType(err) {
				return nil, err
			}
			values = append(values, value)
		}
	}
	return values, nil
}
