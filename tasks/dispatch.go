package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/job"
)

const (
	dispatchers = 64  // tasks of one Dispatch that are on their way at once
	probeChunk  = 256 // tasks that one round trip of Missing asks for
)

// Dispatch puts tasks into the queue and tells of each, in order, what became
// of it. With an error none of the answers counts, though some of the tasks may
// be in the queue: asking again finds those present.
func (q *Queue) Dispatch(ctx context.Context, ts []job.Task) ([]job.Dispatched, error) {
	answers := make([]job.Dispatched, len(ts))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(dispatchers)
	for i, t := range ts {
		group.Go(func() (err error) {
			answers[i], err = q.dispatch(ctx, t)
			return err
		})
	}
	counts := q.redis.metrics.dispatched
	if err := group.Wait(); err != nil {
		counts.WithLabelValues(resultFailed).Add(float64(len(ts)))
		return nil, q.redis.failed("dispatch", err)
	}
	for _, a := range answers {
		counts.WithLabelValues(dispatchResults[a]).Inc()
	}
	return answers, nil
}

var dispatchResults = map[job.Dispatched]string{
	job.TaskEnqueued: resultOK, job.TaskPresent: resultPresent, job.TaskSpent: resultSpent,
}

// dispatch enqueues one task. Its name stays taken for as long as asynq keeps
// the task in any state, so a conflict is looked into. The task may be finished
// between the two steps; then its name is free again.
func (q *Queue) dispatch(ctx context.Context, t job.Task) (job.Dispatched, error) {
	for range 3 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		err := q.enqueue(ctx, t)
		if err == nil {
			return job.TaskEnqueued, nil
		}
		if !errors.Is(err, asynq.ErrTaskIDConflict) {
			return 0, err
		}
		state, err := q.redis.pipe.HGet(ctx, taskKey(queueJobs, taskName(t)), "state").Result()
		switch {
		case errors.Is(err, redis.Nil):
			continue
		case err != nil:
			return 0, err
		case waits(state):
			return job.TaskPresent, nil
		}
		return job.TaskSpent, nil
	}
	return job.TaskSpent, nil
}

// waits reports whether a task in this asynq state will still be run. An active
// one may be: but by a worker that is gone, for all that Redis knows, and a
// second task costs nothing.
//
// One in retry comes again within ten seconds.
//
// The state is the task's own; whether the list of its state really has it is
// not checked, since that costs time in proportion to the list. The two are
// written together and cannot come apart, unless Redis evicts keys, which it
// must be configured not to do.
func waits(state string) bool {
	return state == "pending" || state == "scheduled" || state == "retry"
}

// Missing gives those of the tasks that nobody is going to run: Redis does not
// know them, or they are finished, or the worker that took them has let its
// asynq lease (30 s) run out.
func (q *Queue) Missing(ctx context.Context, ts []job.Task) ([]job.Task, error) {
	var missing []job.Task
	for len(ts) > 0 {
		n := min(probeChunk, len(ts))
		var err error
		if missing, err = q.missing(ctx, ts[:n], missing); err != nil {
			return nil, q.redis.failed("probe", err)
		}
		ts = ts[n:]
	}
	return missing, nil
}

func (q *Queue) missing(ctx context.Context, ts []job.Task, missing []job.Task) ([]job.Task, error) {
	states := make([]*redis.StringCmd, len(ts))
	leases := make([]*redis.FloatCmd, len(ts))
	pipe := q.redis.client.Pipeline()
	for i, t := range ts {
		name := taskName(t)
		states[i] = pipe.HGet(ctx, taskKey(queueJobs, name), "state")
		leases[i] = pipe.ZScore(ctx, queueKey(queueJobs, "lease"), name)
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	now := float64(time.Now().Unix())
	for i, t := range ts {
		state, err := states[i].Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		active := state == "active" && leases[i].Val() >= now
		if !waits(state) && !active {
			missing = append(missing, t)
		}
	}
	return missing, nil
}

// Depth counts the tasks of queue "jobs" by asynq state: pending, active,
// scheduled, retry, archived, completed.
func (q *Queue) Depth(ctx context.Context) (map[string]int64, error) {
	return q.redis.depth(ctx, queueJobs)
}

// Ping asks Redis for a sign of life.
func (q *Queue) Ping(ctx context.Context) error { return q.redis.Ping(ctx) }

// depth takes the length of each list: asynq's own statistics read the tasks
// themselves and fail over a single damaged one.
func (r *Redis) depth(ctx context.Context, queue string) (map[string]int64, error) {
	var lengths map[string]*redis.IntCmd
	_, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		lengths = askDepth(ctx, p, queue)
		return nil
	})
	if err != nil {
		return nil, r.failed("depth", err)
	}
	depth := make(map[string]int64, len(lengths))
	for state, n := range lengths {
		depth[state] = n.Val()
	}
	return depth, nil
}

// askDepth asks for the length of each list of a queue, by state.
func askDepth(ctx context.Context, p redis.Pipeliner, queue string) map[string]*redis.IntCmd {
	lengths := map[string]*redis.IntCmd{}
	for _, state := range []string{"pending", "active"} {
		lengths[state] = p.LLen(ctx, queueKey(queue, state))
	}
	for _, state := range []string{"scheduled", "retry", "archived", "completed"} {
		lengths[state] = p.ZCard(ctx, queueKey(queue, state))
	}
	return lengths
}

// The keys of asynq that are read past it.

func queueKey(queue, part string) string { return fmt.Sprintf("asynq:{%s}:%s", queue, part) }

func taskKey(queue, name string) string { return queueKey(queue, "t:"+name) }
