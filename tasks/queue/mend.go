package queue

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

// Mend removes the queues' keys that have the wrong type. Every script that uses such a key would fail. After Mend, Ensure and
// EnsureDeliveries create the missing tasks.
func (q *Queue) Mend(ctx context.Context) error {
	damaged, err := wrongTypes(ctx, q.redis.Client)
	for key, holds := range damaged {
		if err == nil {
			err = q.redis.Client.Del(ctx, key).Err()
			q.redis.Log.Error("a key of the queue had the wrong type and was removed; no other program may use these keys",
				"action", "repair_queue", "key", key, "type", holds)
		}
	}
	return q.redis.Failed("mend", err)
}

func wrongTypes(ctx context.Context, client redis.UniversalClient) (map[string]string, error) {
	want := map[string]string{"asynq:queues": "set", "asynq:servers": "zset", "asynq:workers": "zset"}
	for _, queue := range redisconn.Queues {
		for _, key := range countKeys(queue) {
			want[key] = "string"
		}
		for _, name := range []string{"pending", "active"} {
			want[redisconn.QueueKey(queue, name)] = "list"
		}
		for _, name := range []string{"lease", "scheduled", "retry", "archived", "completed"} {
			want[redisconn.QueueKey(queue, name)] = "zset"
		}
	}
	found := map[string]*redis.StatusCmd{}
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for key := range want {
			found[key] = p.Type(ctx, key)
		}
		return nil
	})
	wrong := map[string]string{}
	for key, holds := range found {
		if holds.Err() == nil && holds.Val() != "none" && holds.Val() != want[key] {
			wrong[key] = holds.Val()
		}
	}
	return wrong, err
}

func countKeys(queue string) []string {
	today := time.Now().UTC().Format(":" + time.DateOnly)
	return []string{
		redisconn.QueueKey(queue, "processed"), redisconn.QueueKey(queue, "processed"+today),
		redisconn.QueueKey(queue, "failed"), redisconn.QueueKey(queue, "failed"+today),
	}
}

// discard removes a task that no worker is handling, even if asynq itself cannot remove it.
func (q *Queue) discard(ctx context.Context, queue, id string) error {
	err := q.redis.Inspector.DeleteTask(queue, id)
	if err == nil || errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
		return nil
	}
	_, err = q.redis.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.LRem(ctx, redisconn.QueueKey(queue, "pending"), 0, id)
		p.Del(ctx, redisconn.QueueKey(queue, "t:"+id))
		return nil
	})
	return err
}
