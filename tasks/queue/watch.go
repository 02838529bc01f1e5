package queue

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

const (
	watchInterval = time.Second
	queuesEvery   = 5 // queue lengths are read at every fifth tick, because asynq needs three round trips per queue
)

// If a queue has more than longQueue pending tasks, Remove does not remove them, because Redis would search the whole list.
const longQueue = 1000

// Condition describes problems of Redis that an operator must fix, and whether many tasks wait.
type Condition struct {
	Paused []string // queues paused by asynq's tools
	Evicts string   // the maxmemory-policy if it lets Redis evict keys, otherwise ""
	Long   bool
}

// Condition returns the latest result of Watch.
func (q *Queue) Condition() Condition {
	if found := q.condition.Load(); found != nil {
		return *found
	}
	return Condition{}
}

// Watch keeps Condition up to date until ctx ends. While Redis is down, Condition does not change.
func (q *Queue) Watch(ctx context.Context) {
	ticks := time.NewTicker(watchInterval)
	defer ticks.Stop()
	for n := 0; ; n++ {
		q.look(ctx, n%queuesEvery == 0)
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

// look reads the paused queues. With `everything`, it also reads the eviction policy and queue lengths, and registers queues that asynq
// does not know.
func (q *Queue) look(ctx context.Context, everything bool) {
	paused, err := pausedQueues(ctx, q.redis.Client)
	if err != nil {
		return
	}
	c := q.Condition()
	c.Paused = paused
	if everything {
		c.Evicts, c.Long = evictionPolicy(q.redis.Client.Info(ctx, "memory").Val()), false
		for _, name := range redisconn.Queues {
			info, err := q.redis.QueueInfo(name)
			if errors.Is(err, asynq.ErrQueueNotFound) {
				_ = q.register(ctx, name) // after an error, the next look tries again
			}
			c.Long = c.Long || err == nil && info.Pending > longQueue
		}
	}
	q.condition.Store(&c)
}

// evictionPolicy returns Redis' maxmemory-policy, or "" if Redis never evicts keys or the policy is unknown.
func evictionPolicy(info string) string {
	policy := infoField(info, "maxmemory_policy")
	if limit := infoField(info, "maxmemory"); limit == "" || limit == "0" || policy == "noeviction" {
		return ""
	}
	return policy
}

func pausedQueues(ctx context.Context, client redis.UniversalClient) (paused []string, err error) {
	gets := make([]*redis.StringCmd, len(redisconn.Queues))
	_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error { // each reply has its own error
		for i, queue := range redisconn.Queues {
			gets[i] = p.Get(ctx, redisconn.QueueKey(queue, "paused"))
		}
		return nil
	})
	for i, get := range gets {
		switch err := get.Err(); {
		case err == nil, isWrongType(err):
			paused = append(paused, redisconn.Queues[i])
		case !errors.Is(err, redis.Nil):
			return nil, err
		}
	}
	return paused, nil
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func isWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }
