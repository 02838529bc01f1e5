package queue

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

const watchInterval = time.Second

// Condition is what an operator has to change in Redis.
type Condition struct {
	Paused []string // queues that somebody paused, in asynq's way
	Evicts string   // the maxmemory-policy by which Redis evicts keys when it is full; "" if it does not
}

// Condition returns what Watch found last.
func (q *Queue) Condition() Condition {
	if found := q.condition.Load(); found != nil {
		return *found
	}
	return Condition{}
}

// Watch keeps Condition up to date until ctx ends. While Redis does not answer, the last answer counts.
func (q *Queue) Watch(ctx context.Context) {
	ticks := time.NewTicker(watchInterval)
	defer ticks.Stop()
	for {
		if paused, err := pausedQueues(ctx, q.redis.Client); err == nil {
			q.condition.Store(&Condition{paused, evicts(q.redis.Client.Info(ctx, "memory").Val())})
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

// evicts returns the policy by which Redis evicts keys, "" if it never does or does not tell.
func evicts(info string) string {
	policy := infoField(info, "maxmemory_policy")
	if limit := infoField(info, "maxmemory"); limit == "" || limit == "0" || policy == "noeviction" {
		return ""
	}
	return policy
}

// pausedQueues returns the queues that have the key by which asynq pauses them, whatever is in it.
func pausedQueues(ctx context.Context, client redis.UniversalClient) (paused []string, err error) {
	for _, queue := range redisconn.Queues {
		switch err := client.Get(ctx, redisconn.QueueKey(queue, "paused")).Err(); {
		case err == nil, isWrongType(err):
			paused = append(paused, queue)
		case !errors.Is(err, redis.Nil):
			return nil, err
		}
	}
	return paused, nil
}
