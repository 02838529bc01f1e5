package queue

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

// epochKey is the sentinel: a Redis that lost its data has lost it too.
const epochKey = "forgerun:epoch"

// Epoch reads the sentinel, 0 when it is missing or not a number, and the run id of the server that holds it, "" if it has none.
// The run id changes with each start: a restart or a failover may have lost the last second of writes although the sentinel is
// there. In a cluster what another server loses is found by Missing.
func (q *Queue) Epoch(ctx context.Context) (epoch int64, runID string, err error) {
	server, err := q.redis.Holder(ctx, epochKey)
	if err != nil {
		return 0, "", q.redis.Failed("epoch", err)
	}
	pipe := server.Pipeline()
	value, info := pipe.Get(ctx, epochKey), pipe.Info(ctx, "server")
	_, _ = pipe.Exec(ctx)
	var refused redis.Error // an answer, unlike a broken connection
	if err := value.Err(); err != nil && !errors.Is(err, redis.Nil) && !isWrongType(err) {
		return 0, "", q.redis.Failed("epoch", err)
	}
	if err := info.Err(); err != nil && !errors.As(err, &refused) {
		return 0, "", q.redis.Failed("epoch", err)
	}
	if epoch, err = strconv.ParseInt(value.Val(), 10, 64); err != nil {
		epoch = 0
	}
	return epoch, infoField(info.Val(), "run_id"), nil
}

// SetEpoch writes the sentinel, and registers the queues for the dashboard.
// The last writer wins. Two leaders may for a moment leave the older epoch; the leader takes any difference for a loss.
func (q *Queue) SetEpoch(ctx context.Context, epoch int64) error {
	_, err := q.redis.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		addQueues(ctx, p)
		p.Set(ctx, epochKey, epoch, 0)
		return nil
	})
	return q.redis.Failed("epoch", err)
}

func addQueues(ctx context.Context, c redis.Cmdable) *redis.IntCmd {
	return c.SAdd(ctx, namesKey, redisconn.Queues)
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
