package redisconn

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
)

// The asynq queues: of tasks that point at jobs, and of tasks that each name a client that may have something to deliver.
const (
	Jobs     = "jobs"
	Webhooks = "webhooks"
)

// Queues are the asynq queues, as the dashboard shows them.
var Queues = []string{Jobs, Webhooks}

// QueueKey is one of the keys that asynq has for a queue.
func QueueKey(queue, name string) string { return fmt.Sprintf("asynq:{%s}:%s", queue, name) }

// TaskKey is the key of a task.
func TaskKey(queue, id string) string { return QueueKey(queue, "t:"+id) }

// CountKeys are where asynq counts the tasks of a queue that were processed, those of the day and all, and those that failed; until
// says for how long it keeps a day's counts, in seconds since 1970.
func CountKeys(queue string, now time.Time) (keys []string, until int64) {
	day := ":" + now.UTC().Format(time.DateOnly)
	for _, name := range []string{"processed", "failed"} {
		keys = append(keys, QueueKey(queue, name+day), QueueKey(queue, name))
	}
	return keys, now.Add(90 * 24 * time.Hour).Unix()
}

// Score is the place of a time in a set of tasks that wait for theirs: seconds since 1970, rounded up to a microsecond, in which
// Postgres counts, so that none comes early. Redis' numbers are exact enough for that until the year 2242. asynq compares it with
// whole seconds, and shows it without its fraction.
func Score(t time.Time) string {
	us := t.Add(time.Microsecond - 1).UnixMicro()
	return fmt.Sprintf("%d.%06d", us/1e6, us%1e6)
}

// ScoreTime is the time of a Score.
func ScoreTime(score float64) time.Time { return time.UnixMicro(int64(math.Round(score * 1e6))) }

// Depth counts the tasks of a queue by asynq state.
func (r *Redis) Depth(ctx context.Context, queue string) (map[string]int64, error) {
	var lengths map[string]*redis.IntCmd
	_, err := r.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		lengths = askDepth(ctx, p, queue)
		return nil
	})
	if err != nil {
		return nil, r.Failed("depth", err)
	}
	depth := make(map[string]int64, len(lengths))
	for state, n := range lengths {
		depth[state] = n.Val()
	}
	return depth, nil
}

// askDepth asks for the length of each list of a queue, by state. asynq's own
// statistics read the tasks themselves and fail over a single damaged one.
func askDepth(ctx context.Context, p redis.Pipeliner, queue string) map[string]*redis.IntCmd {
	lengths := map[string]*redis.IntCmd{}
	for _, state := range []string{"pending", "active"} {
		lengths[state] = p.LLen(ctx, QueueKey(queue, state))
	}
	for _, state := range []string{"scheduled", "retry", "archived", "completed"} {
		lengths[state] = p.ZCard(ctx, QueueKey(queue, state))
	}
	return lengths
}
