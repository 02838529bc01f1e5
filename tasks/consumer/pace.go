package consumer

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

// pacePause is the pause after a failed command of a consumer.
const pacePause = 200 * time.Millisecond

// pacer is a go-redis hook for consumers. asynq fetches again immediately after a failure. Without a pause it would spin until Redis works
// again.
type pacer struct {
	redis *redisconn.Redis
	stop  <-chan struct{}
}

func (p pacer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p pacer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if errors.Is(ctx.Err(), context.Canceled) { // asynq stores a task's result with a canceled context
			ctx = context.WithoutCancel(ctx)
		}
		err := next(ctx, cmd)
		if isOutage(err) {
			p.redis.Metrics.Errors.WithLabelValues("work").Inc()
			redisconn.Pause(ctx, pacePause, p.stop)
		}
		return err
	}
}

func (p pacer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// isOutage reports whether Redis failed. Expected errors are not an outage: an empty queue, an unknown script, or a missing task.
func isOutage(err error) bool {
	if err == nil || errors.Is(err, redis.Nil) || errors.Is(err, context.Canceled) {
		return false
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return true
	}
	text := strings.TrimPrefix(answer.Error(), "ERR ")
	return !strings.HasPrefix(text, "NOSCRIPT") && !strings.HasPrefix(text, "NOT FOUND")
}
